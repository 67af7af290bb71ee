"""requests.parquet as columns of numbers, small enough for millions of queries."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from harness.arrays import Floats
from harness.arrow import numpy_numbers, reading

_TIMES = ("issued_ns", "sent_ns", "first_token_ns", "last_byte_ns")
_SECONDS = ("issued", "sent", "ended", "ttft", "tpot", "latency")
_PER_QUERY = ("isl", "osl", "replica", "finish", "failure")
_LABELS = ("replica", "finish_reason", "failure")
_REPORTED = "reported_done_ns"  # absent in tables of rows that LoadGen got no report of
_COLUMNS = (*_TIMES, "isl", "osl", "resumed", *_LABELS)
_BATCH_ROWS, _BUFFER_BYTES = 1 << 13, 1 << 16

_KINDS = {**dict.fromkeys((*_TIMES, _REPORTED), pa.int64()), "resumed": pa.bool_()}

Codes = npt.NDArray[np.int16]


class Queries(msgspec.Struct, frozen=True):
    """Queries in order of issue. Times are in seconds, NaN where the event did not occur."""

    issued: Floats
    """since the first issue"""
    sent: Floats
    """to a server, since the first issue"""
    ended: Floats
    """since the first issue; of a query that failed without a byte, when LoadGen was told"""
    ttft: Floats
    """NaN for a failed query and for an answer that was not streamed"""
    tpot: Floats
    """the same, and NaN for an answer of a single token"""
    latency: Floats
    """NaN for a failed query"""
    isl: npt.NDArray[np.int32]
    osl: npt.NDArray[np.int32]
    replica: Codes
    """index in `replicas`; -1 for none"""
    finish: Codes
    """index in `finish_reasons`; -1 for none"""
    failure: Codes
    """index in `failures`; -1 for none"""
    replicas: tuple[str, ...]
    """URLs"""
    finish_reasons: tuple[str, ...]
    failures: tuple[str, ...]
    start_ns: int
    """CLOCK_MONOTONIC of the first issue; 0 where it is not known"""

    def __len__(self) -> int:
        return len(self.issued)

    @property
    def completed(self) -> npt.NDArray[np.bool_]:
        """A mask of the queries with a complete answer."""
        return self.failure < 0

    @property
    def span(self) -> float:
        """Seconds from the first issue to the last event; 0 where no time is known."""
        if not len(self):
            return 0.0
        return float(np.fmax(np.fmax.reduce(self.issued), np.fmax.reduce(self.ended, initial=0.0)))


def of_replica(queries: Queries, replica: int) -> Queries:
    """The queries that one replica got."""
    rows = np.flatnonzero(queries.replica == replica)
    columns = {name: getattr(queries, name)[rows] for name in (*_SECONDS, *_PER_QUERY)}
    return replace(queries, **columns)


def metric(queries: Queries, name: str) -> Floats:
    """TTFT or TPOT of each query, in seconds."""
    return {"TTFT": queries.ttft, "TPOT": queries.tpot}[name]


def known_over(queries: Queries, name: str, limit: float) -> Floats:
    """When each query over the limit was known to be: TTFT when it had waited that long, TPOT at its end."""
    over = metric(queries, name) > limit
    return queries.issued[over] + (limit if name == "TTFT" else queries.latency[over])


def read_queries(path: Path) -> Queries:
    """Read the table in parts, so that memory holds little more than the columns.

    Answers of an earlier attempt (``resumed``) have no times and are left out. Raises DatasetError for a
    damaged file, FileNotFoundError where there is none.
    """
    # Buffered column chunks of millions of rows would fill 100 MB: pages are read as they are needed.
    with reading(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
        columns, schema = _Columns(file.metadata.num_rows), file.schema_arrow
        wanted = [*_COLUMNS, *({_REPORTED} & set(schema.names))]
        for name, kind in _KINDS.items():
            if name in schema.names and (found := schema.field(name).type) != kind:
                raise ValueError(f"column {name} has values of type {found}, expected {kind}")
        for batch in file.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
            columns.add(batch)
    return columns.queries()


class _Columns:
    """Columns of a known length that fill up batch by batch."""

    def __init__(self, rows: int) -> None:
        self._start: int | None = None  # first issue, ns
        self._filled = 0
        # float32 has 24 bits: it resolves 1 us in a latency of 10 s, 2 ms in a time of an 8-hour run.
        self._seconds = {name: np.empty(rows, np.float32) for name in _SECONDS}
        self._counts = {name: np.empty(rows, np.int32) for name in ("isl", "osl")}
        self._codes = {name: np.empty(rows, np.int16) for name in _LABELS}
        self._names: dict[str, dict[str, int]] = {name: {} for name in _LABELS}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the batch's queries that were issued in this attempt."""
        kept = ~numpy_numbers(batch.column("resumed"))
        issued_ns, sent_ns, first_ns, last_ns = (_nanoseconds(batch.column(name))[kept] for name in _TIMES)
        if self._start is None and (present := issued_ns[issued_ns > 0]).size:
            self._start = int(present[0])  # the first row; 0 stands for queries lost with a worker
        begin, end = self._filled, self._filled + len(issued_ns)
        for name, counts in self._counts.items():
            counts[begin:end] = numpy_numbers(batch.column(name))[kept]
        for name, codes in self._codes.items():
            codes[begin:end] = _coded(batch.column(name), self._names[name])[kept]
        issued, sent, first, last = (
            _since(moments, self._start or 0) for moments in (issued_ns, sent_ns, first_ns, last_ns)
        )
        good, osl = self._codes["failure"][begin:end] < 0, self._counts["osl"][begin:end]
        columns = {name: column[begin:end] for name, column in self._seconds.items()}
        columns["issued"][:], columns["sent"][:] = issued, sent
        columns["ended"][:] = np.where(np.isnan(last), self._reported(batch, kept), last)
        columns["ttft"][:] = np.where(good, first - issued, np.nan)
        columns["tpot"][:] = (last - first) / np.where(good & (osl >= 2), osl - 1, np.nan)
        columns["latency"][:] = np.where(good, last - issued, np.nan)
        self._filled = end

    def _reported(self, batch: pa.RecordBatch, kept: npt.NDArray[np.bool_]) -> Floats:
        """When LoadGen got the end of each query."""
        if _REPORTED not in batch.schema.names:
            return np.full(int(kept.sum()), np.nan)
        return _since(_nanoseconds(batch.column(_REPORTED))[kept], self._start or 0)

    def queries(self) -> Queries:
        """All that was added."""
        part = slice(self._filled)
        numbers: dict[str, Any] = {
            name: column[part] for name, column in (self._seconds | self._counts).items()
        }
        replica, finish, failure = (self._codes[name][part] for name in _LABELS)
        replicas, finish_reasons, failures = (tuple(self._names[name]) for name in _LABELS)
        return Queries(
            **numbers,
            replica=replica,
            finish=finish,
            failure=failure,
            replicas=replicas,
            finish_reasons=finish_reasons,
            failures=failures,
            start_ns=self._start or 0,
        )


def _nanoseconds(column: pa.Array) -> npt.NDArray[np.int64]:
    return numpy_numbers(column, null=0)


def _since(moments: npt.NDArray[np.int64], start: int) -> Floats:
    return np.where(moments > 0, (moments - start) / 1e9, np.nan)


def _coded(column: pa.Array, names: dict[str, int]) -> Codes:
    """The index of each label in ``names``, to which new labels are added."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    labels = column.dictionary.to_pylist()  # "" stands for no label
    numbers = [names.setdefault(str(label), len(names)) if label else -1 for label in labels]
    table = np.array([*numbers, -1], dtype=np.int16)
    codes: Codes = table[numpy_numbers(column.indices, null=len(numbers))]
    return codes
