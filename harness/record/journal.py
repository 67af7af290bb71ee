"""The crash-safe record of every query, which workers write during the run.

A worker appends one row per finished query to ``queries-<worker>.bin`` (QUERY_ROW; ``crc`` is the checksum of
the bytes before it) and one JSON line per Failure to ``failures-<worker>.jsonl``. All times are
CLOCK_MONOTONIC nanoseconds, 0 where the moment never came.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
import numpy.typing as npt

from harness.arrays import kept
from harness.json_files import intact_lines
from harness.record.failure_details import status_of, status_remedy, time_limit_text
from harness.record.outcome import FailureKind

# One finished query: its fields and their types on disk. Times of a resumed answer are 0.
_QUERY_FIELDS = [
    ("query_id", "<u8"),  # LoadGen's response id
    ("sample_index", "<u4"),
    ("worker", "<u2"),
    ("replica", "<u2"),
    ("issued_ns", "<i8"),  # LoadGen called the issue callback
    ("sent_ns", "<i8"),  # the last byte of the request was handed to the kernel
    ("first_byte_ns", "<i8"),  # first byte of the response
    ("first_token_ns", "<i8"),  # arrival of the event that carried the first token
    ("last_byte_ns", "<i8"),  # arrival of the bytes that completed the answer
    ("isl", "<u4"),
    ("osl", "<u4"),
    ("first_event_tokens", "<u4"),  # tokens in that event: the real stream interval
    ("finish", "<u1"),  # FINISH_REASONS index; 0 where it failed
    ("failure", "<u1"),  # FailureKind; 0 where it completed
    ("retries", "<u1"),  # number of times that it was sent again
    ("resumed", "<u1"),  # 1: the answer of an earlier attempt at this run; it has no times
]
_MOST_BYTES = 1 << 24  # most that is read at once: a slow reader catches up over several reads
_CODES = {"<u8": "Q", "<u4": "I", "<u2": "H", "<u1": "B", "<i8": "q"}  # codes of struct by numpy's types
_BODY = struct.Struct("<" + "".join(_CODES[kind] for _, kind in _QUERY_FIELDS))
CRC = struct.Struct("<I")  # of the bytes before it
QUERY_ROW = np.dtype([*_QUERY_FIELDS, ("crc", "<u4")])
TIMES = tuple(name for name, _ in _QUERY_FIELDS if name.endswith("_ns"))  # its moments

Rows = npt.NDArray[np.void]
"""rows of QUERY_ROW"""

FINISH_REASONS = ("", "stop", "length", "other")

# One row for each first token or end that LoadGen got; its process writes them at its end.
LOADGEN_CALL_ROW = np.dtype(
    [
        ("query_id", "<u8"),
        ("kind", "<i8"),  # FIRST_TOKEN, COMPLETE or FAILED
        ("arrived_ns", "<i8"),  # the bytes reached the worker, or it saw the failure
        ("reported_ns", "<i8"),  # LoadGen was called, and took its own time stamp
    ]
)
FIRST_TOKEN, COMPLETE, FAILED = 1, 2, 3  # kinds of a call
LOADGEN_CALLS_FILE = "reports.bin"
# The files of one worker, or of all with ``*``; harness/record/answer_log.py describes those of answers.
QUERIES_FILE, ANSWERS_FILE = "queries-{}.bin", "answers-{}.bin"
COUNTS_FILE = "counts-{}.bin"
QUERY_ANSWERS_FILE = "query_answers-{}.bin"
FAILURES_FILE, RETRIES_FILE = "failures-{}.jsonl", "retries-{}.jsonl"

# One row for each answer that came as text.
COUNT_ROW = np.dtype([("query_id", "<u8"), ("ids", "<u4"), ("counted", "<u4")])  # counted: by the server
_COUNT = struct.Struct("<QII")

NOWHERE = 0xFFFF  # worker and replica of a lost query: unknown


class _FailureLine(msgspec.Struct):
    query_id: int
    detail: str
    kind: str = ""
    time_ns: int = 0  # when its worker wrote it
    replica: int = NOWHERE  # that had been sent the query


def encode_row(*values: int) -> bytes:
    """A row of ``queries-<worker>.bin`` from the values of QUERY_ROW in its order, without ``crc``."""
    body = _BODY.pack(*values)
    return body + CRC.pack(zlib.crc32(body))


def encode_count(query_id: int, ids: int, counted: int) -> bytes:
    """A row of ``counts-<worker>.bin``."""
    return _COUNT.pack(query_id, ids, counted)


def read_counts(directory: Path) -> Rows:
    """The COUNT_ROWs of a run; a row that was cut short is left out."""
    parts = [np.empty(0, COUNT_ROW)]
    for path in sorted(directory.glob(COUNTS_FILE.format("*"))):
        parts.append(_whole_rows(path.read_bytes(), COUNT_ROW))
    rows: Rows = np.concatenate(parts)
    return rows


class Journal(msgspec.Struct, frozen=True, dict=True):
    """The content of a run's journal."""

    rows: Rows
    _failures: Sequence[_FailureLine]
    broken: int
    """rows that were cut short or have a wrong checksum"""

    @cached_property
    def details(self) -> Mapping[int, str]:
        """Evidence of failures, by query id."""
        return {line.query_id: line.detail for line in self._failures}

    @property
    def time_limit(self) -> str:
        """A limit of time that the failures show; "" for none."""
        return _time_limit(self._failures)


def read_journal(directory: Path) -> Journal:
    """Read all files of a journal; a row cut short or with a wrong checksum counts as broken."""
    parts, broken = [np.empty(0, QUERY_ROW)], 0
    for path in sorted(directory.glob(QUERIES_FILE.format("*"))):
        data = path.read_bytes()
        rows = _whole_rows(data, QUERY_ROW)
        good = _intact(data, rows)
        parts.append(kept(rows, good))
        broken += int((~good).sum()) + (rows.nbytes != len(data))
    return Journal(np.concatenate(parts), _failure_lines(directory), broken)


class JournalTail:
    """Reads the rows that workers have added to a journal since the last time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}  # bytes of complete rows

    def read(self) -> Rows:
        """New complete rows; a row that is being written is read the next time. Raises OSError."""
        parts = [np.empty(0, QUERY_ROW)]
        for path in sorted(self._directory.glob(QUERIES_FILE.format("*"))):
            with path.open("rb") as file:
                parts.append(self._new_rows(path, file))
        rows: Rows = np.concatenate(parts)
        return rows

    def _new_rows(self, path: Path, file: IO[bytes]) -> Rows:
        begin = self._read.get(path, 0)
        file.seek(begin)
        rows = _whole_rows(file.read(_MOST_BYTES), QUERY_ROW)
        self._read[path] = begin + rows.nbytes
        return rows


def read_loadgen_calls(directory: Path) -> npt.NDArray[np.void]:
    """The LOADGEN_CALL_ROWs of a run; empty where LoadGen's process was killed."""
    path = directory / LOADGEN_CALLS_FILE
    return np.fromfile(path, LOADGEN_CALL_ROW) if path.is_file() else np.empty(0, LOADGEN_CALL_ROW)


def lost_rows(lost: Sequence[tuple[int, int]]) -> npt.NDArray[np.void]:
    """Rows for queries whose worker died, from (query id, sample index): their times are unknown."""
    rows = np.zeros(len(lost), QUERY_ROW)
    if lost:
        rows["query_id"], rows["sample_index"] = np.array(lost, dtype=np.uint64).T
    rows["worker"] = rows["replica"] = NOWHERE
    rows["failure"] = FailureKind.WORKER_LOST
    return rows


def _whole_rows(data: bytes, kind: np.dtype[np.void]) -> Rows:
    """Without a row at the end that was cut short."""
    rows: Rows = np.frombuffer(data, kind, len(data) // kind.itemsize)
    return rows


def _intact(data: bytes, rows: Rows) -> npt.NDArray[np.bool_]:
    view, size = memoryview(data), QUERY_ROW.itemsize
    sums = (zlib.crc32(view[start : start + _BODY.size]) for start in range(0, rows.nbytes, size))
    intact: npt.NDArray[np.bool_] = np.fromiter(sums, np.uint32, len(rows)) == rows["crc"]
    return intact


def failure_reasons(directory: Path) -> str:
    """Reasons of failed queries so far, the most frequent kind first: ``timeout (no end within 5 s)``.

    Without numbers: workers write their failures after they have counted them.
    """
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    lines = _failure_lines(directory)
    for line in lines:
        counts[line.kind] += 1
        first.setdefault(line.kind, line.detail)
    kinds = ", ".join(f"{kind} ({first[kind]})" for kind, _ in counts.most_common())
    return "; ".join(filter(None, (kinds, _time_limit(lines))))


def _time_limit(lines: Sequence[_FailureLine]) -> str:
    """By the moments of the failures: a server that dies ends all of its queries at one."""
    return time_limit_text((line.detail, line.time_ns) for line in lines)


def first_failure(directory: Path, urls: Sequence[str]) -> str:
    """What happened to the first query that failed, with the remedy if there is one.

    "" for none, and where it cannot be read, as for want of a file descriptor: that is worth no run.
    ``urls`` are those of the replicas: of several the query's is named.
    """
    try:
        line = next(iter(_failure_lines(directory)), None)
    except OSError:
        return ""
    if line is None or not line.detail:
        return ""
    url = urls[line.replica] if 1 < len(urls) > line.replica else ""
    at = f", at {url}" if url not in line.detail else ""
    remedy = status_remedy(status_of(line.detail))
    return "; ".join(filter(None, (f"the first{at}: {line.detail}", remedy)))


def _failure_lines(directory: Path) -> list[_FailureLine]:
    """Those of all workers, in the order of their times. Of a damaged one the query's row has the failure."""
    files = sorted(directory.glob(FAILURES_FILE.format("*")))
    lines = (line for file in files for line in intact_lines(file, _FailureLine))
    return sorted(lines, key=lambda line: line.time_ns)
