"""Live counters in shared memory, for the progress line: one row of int64 for each process."""

import mmap
import os
from enum import IntEnum
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.record.outcome import FailureKind
from harness.system_calls import memory_file


class Counter(IntEnum):
    """Columns of a row."""

    ISSUED = 0  # LoadGen process: queries that LoadGen has issued
    SENT = 1  # workers from here on: requests that were begun
    FIRST_TOKENS = 2
    COMPLETED = 3
    FAILED = 4  # LoadGen's row counts queries that were lost with a worker
    OUTPUT_TOKENS = 5
    TTFT_SUM_NS = 6
    TPOT_SUM_NS = 7
    TPOT_COUNT = 8
    CPU_NS = 9  # every process: CPU time since the run began
    HEARTBEAT_NS = 10  # every process: when it was last seen to run, CLOCK_MONOTONIC
    RECEPTIONS = 11  # reads that brought a part of an answer, not its head alone
    RETRIED = 12  # requests that failed and are sent again
    RESUMED = 13  # queries answered from an earlier attempt at the run
    CLOCK_STEPS_NS = 14  # sum of the wall clock's jumps
    LOOP_LAG_NS = 15  # the greatest delay of a worker's tick
    GC_RUNS = 16  # collections since the run began
    PARTIAL_TOKENS = 17  # tokens of answers that are not complete yet, as far as they were parsed
    LONGEST_FLUSH_NS = 18  # the longest time that a write of the journal took, or takes
    LATE_FIRST_TOKENS = 19  # LoadGen process: reported late after their arrival
    LONGEST_ANSWER = 20  # tokens


_MAXIMA = [Counter.CLOCK_STEPS_NS, Counter.LOOP_LAG_NS, Counter.LONGEST_FLUSH_NS, Counter.LONGEST_ANSWER]
FIRST_FAILURE = len(Counter)  # a row's further columns: failures by FailureKind
_COLUMNS = FIRST_FAILURE + max(FailureKind) + 1


class CounterBoard:
    """``rows`` rows of counters over one memfd. A row has one writer; readers may see it mid-update.

    By default the columns are those of Counter and one for each FailureKind; a board of other columns has
    ``row`` and ``values``.
    """

    def __init__(self, rows: int, columns: int = _COLUMNS, descriptor: int | None = None) -> None:
        size = rows * columns * 8
        if descriptor is None:
            descriptor = memory_file("mlperf-counters")
            os.ftruncate(descriptor, size)
        self.descriptor = descriptor
        self.rows = rows
        self.columns = columns
        self._map = mmap.mmap(descriptor, size)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle for a spawned process, as a descriptor."""
        return _attach, (DupFd(self.descriptor), self.rows, self.columns)

    def row(self, index: int) -> memoryview:
        """One process's counters, writable, by Counter; then failures, by FIRST_FAILURE + FailureKind."""
        size = self.columns * 8
        return memoryview(self._map)[index * size : (index + 1) * size].cast("q")

    def table(self) -> npt.NDArray[np.int64]:
        """A copy of all rows, shape (rows, len(Counter))."""
        return self.values()[:, :FIRST_FAILURE].copy()

    def totals(self) -> npt.NDArray[np.int64]:
        """``totals_of`` all rows."""
        return totals_of(self.table())

    def failures(self) -> dict[FailureKind, int]:
        """The number of failed queries by kind; kinds without one are omitted."""
        sums = self.values()[:, FIRST_FAILURE:].sum(axis=0)
        return {kind: int(sums[kind]) for kind in FailureKind if sums[kind]}

    def values(self) -> npt.NDArray[np.int64]:
        """All counters as they are now and will be, shape (rows, columns)."""
        return np.frombuffer(self._map, dtype=np.int64).reshape(self.rows, self.columns)


def totals_of(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sums over rows of a board's table, shape (len(Counter),); of longest times and lengths the maximum."""
    totals: npt.NDArray[np.int64] = table.sum(axis=0, dtype=np.int64)
    totals[_MAXIMA] = table[:, _MAXIMA].max(axis=0)
    return totals


def _attach(descriptor: Any, rows: int, columns: int) -> CounterBoard:
    return CounterBoard(rows, columns, descriptor.detach())
