"""LoadGen's Server schedule at every rate: the number of queries of a run, and when they arrive.

LoadGen draws the times between two queries from a fixed seed and divides them by target_qps, so that the
schedules of all rates are one, stretched. It fills up to complete datasets: with n rows a run has k x n
queries, the smallest k whose last query is not before min_duration.
"""

import math
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from harness.analysis.early_stopping import most_over_limit
from harness.config.expected_queries import Settings, expected_queries, loaded_samples, unit_arrivals

_DIGITS = 6  # Significant digits of a rate in a conf file.
LOWEST_RATE = 1e-3  # No search looks at lower rates.


class ScheduledRun(msgspec.Struct, frozen=True):
    """A run at one rate."""

    rate: float
    """`target_qps`"""
    datasets: int
    """the queries as a multiple of the dataset's rows; 0 where LoadGen does not fill up"""
    queries: int
    seconds: float
    """when the last query is issued"""
    most_over: int
    """queries that may be over a latency limit; -1 where the run has too few to be VALID at all"""


class Schedule:
    """The runs that ``settings`` (as read back from LoadGen) make over a dataset of ``samples`` rows."""

    def __init__(self, settings: Settings, samples: int) -> None:
        self._settings = settings
        self._samples = samples
        fills = bool(settings["sample_concatenate_permutation"]) and not settings["performance_issue_unique"]
        self._dataset = loaded_samples(settings, samples) if fills else 0
        self._unit = np.empty(0)

    def run(self, rate: float) -> ScheduledRun:
        """The run at a rate."""
        issue = expected_queries(
            {**self._settings, "server_target_qps": rate}, "Server", self._samples, accuracy=False
        )
        assert issue.seconds is not None
        datasets = issue.samples // self._dataset if self._dataset else 0
        percentile = float(self._settings["server_target_latency_percentile"])
        most_over = most_over_limit(issue.samples, percentile)
        return ScheduledRun(rate, datasets, issue.samples, issue.seconds, most_over)

    @property
    def fewest(self) -> ScheduledRun:
        """The run with the fewest queries, which is that of the lowest rates."""
        return self.run(LOWEST_RATE)

    def arrivals_s(self, rate: float, queries: int) -> npt.NDArray[np.float64]:
        """The time at which each query is issued, in seconds from the first."""
        if queries > len(self._unit):
            self._unit = unit_arrivals(int(self._settings["schedule_rng_seed"]), 2 * queries)
        times: npt.NDArray[np.float64] = self._unit[:queries] / rate
        return times


def rounded(rate: float) -> float:
    """A rate as it is written in a conf file."""
    return float(f"{rate:.{_DIGITS}g}")


def bisected(
    low: float, high: float, below: Callable[[float], bool], precision: float
) -> tuple[float, float]:
    """The last value for which ``below`` holds and the first for which it does not, ``precision`` apart.

    ``below`` holds at ``low`` and not at ``high``, neither of which is asked for.
    """
    while high / low - 1 > precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high
