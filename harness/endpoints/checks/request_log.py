"""events.jsonl of a run, as far as checks need it: times of the performance requests, failures, prompts.

Texts are not decoded and tokens not counted, so that a log of gigabytes is read in the time of one pass over
it, in memory of about 400 bytes a request.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import astuple

from harness.arrays import Int64
from harness.endpoints.numbers.event_record import COMPLETE, ENDED, ERRORS, FIRST, ISSUED, LATER, START, STOP
from harness.endpoints.samples import SAMPLE, Samples, ttft_ns
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
    """The requests of the performance phase."""

    samples: Samples
    """in the order of issue, their tokens not counted"""
    prompts: int | None
    """different prompts among them; None where the log holds none"""

    @property
    def issue_s(self) -> float:
        """From the first issue to the last."""
        return _span_s(self.samples["issued_ns"])

    @property
    def elapsed_s(self) -> float:
        """From the first issue to the last completion."""
        issued, ended = self.samples["issued_ns"], self.samples["complete_ns"]
        return float(max(ended.max(), issued.max()) - issued.min()) / 1e9 if len(issued) else 0.0

    @property
    def ttft_p90_ns(self) -> float:
        """nan where no answer has a first fragment."""
        return percentile(ttft_ns(self.samples), 0.9)

    def issue_s_of(self, first: int, last: int, size: int) -> float:
        """The same over super-passes of ``size`` requests, ends included."""
        return _span_s(self.samples["issued_ns"][first * size : (last + 1) * size])


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


class _Row(msgspec.Struct, gc=False):
    """A row of SAMPLE."""

    issued_ns: int
    first_ns: int = 0
    complete_ns: int = 0
    output_tokens: int = 0
    suffix_tokens: int = 0
    failed: bool = False


class _Reader:
    """Takes events in their order."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._by_uuid: dict[str, _Row] = {}
        self._prompts: set[int] = set()
        self._tracking = self._tracked = self._ended = False

    def feed(self, event: _Event) -> None:
        kind, ns = event.event_type, event.timestamp_ns
        if kind == ISSUED and self._tracking:
            row = self._by_uuid[event.sample_uuid] = _Row(ns)
            self._rows.append(row)
            self._prompts.update(_prompt(event.data))
        elif kind.startswith("session."):
            self._session(kind)
        elif (known := self._by_uuid.get(event.sample_uuid)) is not None:
            if kind == FIRST and not known.complete_ns:
                known.first_ns = ns
            elif kind == COMPLETE:
                known.complete_ns = known.complete_ns or ns
            elif kind.startswith(ERRORS):
                known.failed = True

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
        rows = np.array([astuple(row) for row in self._rows], SAMPLE)
        order = np.argsort(rows["issued_ns"], kind="stable")
        return RequestLog(rows[order], len(self._prompts) or None)


def _prompt(data: msgspec.Raw) -> Iterator[int]:
    """The hash of a prompt, where the event has one: the first element is the name of the type."""
    _, _, rest = bytes(data).partition(b",")
    if rest.strip(b"nul, []\n"):
        yield hash(rest)


def _span_s(times: npt.NDArray[np.int64]) -> float:
    return float(times.max() - times.min()) / 1e9 if len(times) else 0.0
