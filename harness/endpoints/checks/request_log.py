"""events.jsonl of a run, as far as checks need it: times of the performance requests, failures, prompts.

Texts are not decoded and tokens not counted, so that a log of gigabytes is read in the time of one pass over
it, in memory of 100 bytes a request.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from harness.arrays import Int64
from harness.endpoints.numbers.event_record import COMPLETE, ENDED, ERRORS, FIRST, ISSUED, LATER, START, STOP
from harness.endpoints.steady.super_passes import percentile

_MOST_LINE_BYTES = 1 << 26  # an answer of a million tokens
_NOT_FIRST = f'"{LATER}"'.encode()  # one for each chunk; nothing here needs them
_TYPE_WITHIN = 64  # the type comes first in a line


class LogError(Exception):
    """The log cannot be read, or is not complete: what, and in which line."""


class _Event(msgspec.Struct, gc=False):
    event_type: str
    timestamp_ns: Int64
    sample_uuid: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class RequestLog(msgspec.Struct, frozen=True):
    """The requests of the performance phase in the order of issue; times are ns of one monotonic clock."""

    issued_ns: npt.NDArray[np.int64]
    first_ns: npt.NDArray[np.int64]
    """0: none"""
    complete_ns: npt.NDArray[np.int64]
    """0: it never ended"""
    failed: npt.NDArray[np.bool_]
    prompts: int | None
    """different prompts among them; None where the log holds none"""

    @property
    def issue_s(self) -> float:
        """From the first issue to the last."""
        return _span_s(self.issued_ns)

    @property
    def elapsed_s(self) -> float:
        """From the first issue to the last completion."""
        if not len(self.issued_ns):
            return 0.0
        return float(max(self.complete_ns.max(), self.issued_ns.max()) - self.issued_ns.min()) / 1e9

    @property
    def ttft_p90_ns(self) -> float:
        """nan where no answer has a first fragment."""
        began = self.first_ns > 0
        return percentile(self.first_ns[began] - self.issued_ns[began], 0.9)

    def issue_s_of(self, first: int, last: int, size: int) -> float:
        """The same over super-passes of ``size`` requests, ends included."""
        return _span_s(self.issued_ns[first * size : (last + 1) * size])


def read_log(path: Path) -> RequestLog:
    """Read a log. Raises LogError."""
    reader = _Reader()
    try:
        with path.open("rb") as file:
            for line_number, line in enumerate(iter(lambda: file.readline(_MOST_LINE_BYTES), b""), 1):
                if _NOT_FIRST in line[:_TYPE_WITHIN]:
                    continue
                if line.strip():
                    reader.feed(_decoded(line, line_number))
    except OSError as error:
        raise LogError(f"cannot be read: {error.strerror}") from error
    return reader.log()


_DECODER = msgspec.json.Decoder(_Event)


def _decoded(line: bytes, number: int) -> _Event:
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        cut_off = "" if line.endswith(b"\n") else ", which is cut off"
        raise LogError(f"line {number}{cut_off} is no event: {error}") from error


class _Reader:
    """Takes events in their order."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._issued: list[int] = []
        self._first: dict[int, int] = {}
        self._complete: dict[int, int] = {}
        self._failed: set[int] = set()
        self._prompts: set[int] = set()
        self._tracking = False
        self._tracked = self._ended = False

    def feed(self, event: _Event) -> None:
        kind = event.event_type
        if kind == ISSUED and self._tracking:
            self._rows[event.sample_uuid] = len(self._issued)
            self._issued.append(event.timestamp_ns)
            self._prompts.update(_prompt(event.data))
        elif kind.startswith("session."):
            self._session(kind)
        elif (row := self._rows.get(event.sample_uuid)) is not None:
            if kind == FIRST:
                self._first.setdefault(row, event.timestamp_ns)
            elif kind == COMPLETE:
                self._complete.setdefault(row, event.timestamp_ns)
            elif kind.startswith(ERRORS):
                self._failed.add(row)

    def _session(self, kind: str) -> None:
        if kind == START:
            self._tracking = self._tracked = True
        elif kind == STOP:
            self._tracking = False
        elif kind == ENDED:
            self._ended = True

    def log(self) -> RequestLog:
        if not self._tracked:
            raise LogError(f"has no {START}: it holds no performance run")
        if not self._ended:
            raise LogError(f"has no {ENDED}: it is cut off, or the run did not end")
        count = len(self._issued)
        order = np.argsort(np.array(self._issued, np.int64), kind="stable")
        failed = np.zeros(count, np.bool_)
        failed[list(self._failed)] = True
        return RequestLog(
            np.array(self._issued, np.int64)[order],
            _times(self._first, count)[order],
            _times(self._complete, count)[order],
            failed[order],
            len(self._prompts) or None,
        )


def _times(found: dict[int, int], count: int) -> npt.NDArray[np.int64]:
    times = np.zeros(count, np.int64)
    times[list(found)] = list(found.values())
    return times


def _prompt(data: msgspec.Raw) -> Iterator[int]:
    """The hash of a prompt, where the event has one: the first element is the name of the type."""
    _, _, rest = bytes(data).partition(b",")
    if rest.strip(b"nul, []\n"):
        yield hash(rest)


def _span_s(times: npt.NDArray[np.int64]) -> float:
    return float(times.max() - times.min()) / 1e9 if len(times) else 0.0
