"""The end of a probe once more queries are over a latency limit than a VALID run may have."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.analysis.statistics import completed, ttft_ns
from harness.analysis.statistics import tpot_ns as tpot_of
from harness.errors import RunError
from harness.files import JOURNAL_DIR
from harness.progress.progress_line import ProgressSnapshot
from harness.record.journal import COMPLETE, FIRST_TOKEN, JournalTail, Rows, read_journal, read_loadgen_calls

# LoadGen takes the time of a first token when it is called, at most this long after the bytes arrived. Its
# TPOT of an answer can be smaller than ours by this, divided by the tokens.
LATE_REPORT_NS = 100_000_000
# Workers count first tokens four times a second: after this time each one is counted.
_COUNTED_S = 1.0
_NS = 1e9


class DecidedError(RunError):
    """The run can no longer become VALID."""


@dataclass(slots=True)
class Over:
    """Queries over each limit."""

    ttft: int = 0
    tpot: int = 0


class CutOff:
    """Counts the queries over a limit while a run lasts; raises DecidedError once they are too many.

    It counts only what LoadGen will count, too. Its times begin when a query is scheduled and end when it is
    called, so its TTFT is never less than ours. Queries that wait for their first token longer than its limit
    count at once; a lower bound of their number is the queries issued by then less all first tokens.
    """

    def __init__(self, log_dir: Path, limits_ns: Mapping[str, int], most_over: int) -> None:
        self.over = Over()
        self.decided_s: float | None = None
        self._journal = log_dir / JOURNAL_DIR
        self._tail = JournalTail(self._journal)
        self._ttft_ns, self._tpot_ns = limits_ns["TTFT"], limits_ns["TPOT"]
        self._most_over = most_over
        self._issued: deque[tuple[float, int]] = deque()  # elapsed seconds, queries
        self._ended = Over()  # counts of the queries that have ended

    def __call__(self, moment: ProgressSnapshot) -> None:
        """Look at the run. Raises DecidedError and OSError."""
        self._count_ended()
        waiting = self._overdue(moment)
        self.over = Over(self._ended.ttft + waiting, self._ended.tpot)
        name, count = max(("TTFT", self.over.ttft), ("TPOT", self.over.tpot), key=lambda pair: pair[1])
        if count > self._most_over:
            self.decided_s = moment.elapsed_s
            raise DecidedError(
                f"ended early: {count} queries are over the limit of {name}, of which a VALID run may have "
                f"{max(self._most_over, 0)}"
            )

    def count_all(self) -> None:
        """Count by LoadGen's own times, in a run that was not cut. Raises OSError."""
        if self.decided_s is None:
            self.over = over_by_loadgen(self._journal, self._ttft_ns, self._tpot_ns)

    def _count_ended(self) -> None:
        rows = self._tail.read()
        self._ended.ttft += late_first_tokens(rows, self._ttft_ns)
        self._ended.tpot += surely_slow(rows, self._tpot_ns)

    def _overdue(self, moment: ProgressSnapshot) -> int:
        """Queries without a first token that were issued longer ago than the limit of TTFT."""
        self._issued.append((moment.elapsed_s, moment.issued))
        since_s = moment.elapsed_s - self._ttft_ns / _NS - _COUNTED_S
        while len(self._issued) > 1 and self._issued[1][0] <= since_s:
            self._issued.popleft()
        at_s, issued = self._issued[0]
        return max(0, issued - moment.first_tokens - moment.failed) if at_s <= since_s else 0


def late_first_tokens(rows: Rows, limit_ns: int) -> int:
    """Completed queries whose first token came later than its limit."""
    return int((ttft_ns(completed(rows)) > limit_ns).sum())


def surely_slow(rows: Rows, limit_ns: int) -> int:
    """Completed queries whose TPOT is over its limit even when their first token was reported late."""
    good = completed(rows)
    good = good[(good["osl"] >= 2) & (good["first_token_ns"] > 0)]
    gaps = good["osl"].astype("i8") - 1
    return int((good["last_byte_ns"] - good["first_token_ns"] - LATE_REPORT_NS > limit_ns * gaps).sum())


def over_by_loadgen(journal: Path, ttft_ns: int, tpot_ns: int) -> Over:
    """Queries over each limit by the times at which LoadGen was called, from the issue of each.

    Raises OSError. LoadGen counts a first token from the scheduled time, which is a little earlier.
    """
    rows, calls = completed(read_journal(journal).rows), read_loadgen_calls(journal)
    first, done = (calls[calls["kind"] == kind] for kind in (FIRST_TOKEN, COMPLETE))
    if not len(first) or not len(rows):
        return Over(late_first_tokens(rows, ttft_ns), int((tpot_of(rows) > tpot_ns).sum()))
    rows = rows[np.isin(rows["query_id"], first["query_id"]) & np.isin(rows["query_id"], done["query_id"])]
    first_ns, done_ns = (_reported(part, rows["query_id"]) for part in (first, done))
    gaps = np.maximum(rows["osl"].astype(np.int64) - 1, 1)
    slow = (rows["osl"] >= 2) & ((done_ns - first_ns) // gaps > tpot_ns)
    return Over(int((first_ns - rows["issued_ns"] > ttft_ns).sum()), int(slow.sum()))


def _reported(calls: Rows, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The time of LoadGen's call for each query."""
    order = np.argsort(calls["query_id"], kind="stable")
    at = np.searchsorted(calls["query_id"][order], ids)
    times: npt.NDArray[np.int64] = calls["reported_ns"][order][at]
    return times
