"""The end of a probe once too many queries are over a limit, or it shows no rate: the rest shows nothing."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.analysis.early_stopping import late_first_tokens, over_limit_text
from harness.analysis.statistics import completed
from harness.analysis.statistics import tpot_ns as tpot_of
from harness.peak.peak_options import SearchOptions
from harness.peak.search.probe import NO_ROOM
from harness.progress.lost_run import LostRunError, failures_text
from harness.progress.progress_line import Over, ProgressSnapshot
from harness.record.journal import COMPLETE, FIRST_TOKEN, Rows, read_journal, read_loadgen_calls

_TOLD_S = 3.0  # by then the alarm has said what the first failure was, and other reasons are known


class CutOff:
    """Ends a run of a search once its rest would show nothing.

    At once where more queries are over a limit than may be: ``cut`` is then the moment. A little later where
    a query, a process or a server has failed, unless the options say when failures end a run.
    """

    def __init__(self, options: SearchOptions, most_over: int = 0) -> None:
        self.cut: ProgressSnapshot | None = None
        self._most_over = most_over
        self._at_failures = options.fail_fast is not False and options.max_failures is None
        self._failed_s = math.inf

    def __call__(self, moment: ProgressSnapshot) -> None:
        """Look at the run. Raises LostRunError."""
        if reason := over_limit_text(*moment.over.most, self._most_over):
            self.cut = moment
            raise LostRunError(reason)
        kinds = moment.failures.keys()
        if self._at_failures and (kinds - {NO_ROOM} or (moment.lost and not kinds)):
            self._failed_s = min(self._failed_s, moment.elapsed_s)
            if moment.elapsed_s >= self._failed_s + _TOLD_S:
                why = failures_text(moment) or moment.lost
                raise LostRunError(f"{why} (--no-fail-fast: never ended by that)")


def over_by_loadgen(journal: Path, limits_ns: Mapping[str, int]) -> Over:
    """Queries over each limit by the times at which LoadGen was called, from the issue of each.

    Raises OSError. LoadGen counts a first token from the scheduled time, which is a little earlier.
    """
    ttft_ns, tpot_ns = limits_ns["TTFT"], limits_ns["TPOT"]
    rows, calls = completed(read_journal(journal).rows), read_loadgen_calls(journal)
    first, done = (calls[calls["kind"] == kind] for kind in (FIRST_TOKEN, COMPLETE))
    if not len(first) or not len(rows):
        return Over(len(late_first_tokens(rows, ttft_ns)), int((tpot_of(rows) > tpot_ns).sum()))
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
