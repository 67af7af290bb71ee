"""How late LoadGen's issue callback runs against LoadGen's schedule.

LoadGen counts its TTFT from the scheduled time, we count ours from the callback, both to the same call of
LoadGen: the means differ by the lag. What that call takes until LoadGen stamps it, some µs, is in it too.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from harness.journal import FIRST_TOKEN
from harness.report.client_share import LARGEST_PART
from harness.report.latency import Rows
from harness.report.progress import milliseconds

_FIGURE = "Mean First Token latency (ns)"


def mean_schedule_lag(
    rows: Rows, reports: npt.NDArray[np.void], figures: Mapping[str, float]
) -> float | None:
    """In ns. None where LoadGen gives no mean TTFT, or not of the same queries: one failed, or is missing."""
    firsts = reports[reports["kind"] == FIRST_TOKEN]
    same = len(firsts) == len(rows) > 0 and not rows["failure"].any()
    if not same or _FIGURE not in figures:
        return None
    start = rows["issued_ns"].min()  # sums of plain clock values outgrow 64 bits
    ours = (firsts["reported_ns"] - start).mean() - (rows["issued_ns"] - start).mean()
    return float(figures[_FIGURE] - ours)


def lag_doubts(lag_ns: float | None, ttft_limit_ns: int | None) -> tuple[str, ...]:
    """What to say when queries left too late on average for the TTFT that the rules allow."""
    if lag_ns is None or ttft_limit_ns is None or lag_ns <= LARGEST_PART * ttft_limit_ns:
        return ()
    return (
        f"LoadGen issued its queries {milliseconds(lag_ns)} ms behind its schedule on average, more than "
        f"{milliseconds(LARGEST_PART * ttft_limit_ns)} ms ({LARGEST_PART:.0%} of the TTFT limit): its "
        "process needs a core of its own",
    )
