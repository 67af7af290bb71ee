"""LoadGen's Server schedule at every rate: the number of queries of a run, and when they arrive.

LoadGen draws the times between two queries from a fixed seed and divides them by target_qps, so that the
schedules of all rates are one, stretched. It fills up to complete datasets: with n rows a run has k x n
queries, the smallest k whose last query is not before min_duration. The shortest run of each k is at the
highest rate that still has k.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.analysis.early_stopping import most_over_limit
from harness.config.expected_queries import Settings, expected_queries, unit_arrivals

_DIGITS = 6  # of a rate in a conf file
_FIRST_DRAWN = 1 << 15
_LOWEST_RATE = 1e-3


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A run at ``rate``: ``queries`` = ``datasets`` x the dataset's rows, the last one issued at ``seconds``.

    ``datasets`` is 0 where LoadGen does not fill up. ``most_over`` queries may be over a latency limit; -1
    where the run has too few queries to be VALID at all.
    """

    rate: float
    datasets: int
    queries: int
    seconds: float
    most_over: int


class Schedule:
    """The runs that ``settings`` (as read back from LoadGen) make over a dataset of ``samples`` rows."""

    def __init__(self, settings: Settings, samples: int) -> None:
        self._settings = settings
        self._samples = samples
        self._duration_s = settings["min_duration_ms"] / 1000
        fills = bool(settings["sample_concatenate_permutation"]) and not settings["performance_issue_unique"]
        loaded = min(int(settings["performance_sample_count_override"]) or samples, samples)
        self.dataset = loaded if fills else 0
        """rows that a run is filled up to multiples of; 0 where it is not"""
        self._fewest = max(1, -(-int(settings["min_query_count"]) // loaded))
        self._unit = np.empty(0)

    def run(self, rate: float) -> ScheduledRun:
        """The run at a rate."""
        issue = expected_queries(
            {**self._settings, "server_target_qps": rate}, "Server", self._samples, accuracy=False
        )
        assert issue.seconds is not None
        datasets = issue.samples // self.dataset if self.dataset else 0
        return ScheduledRun(rate, datasets, issue.samples, issue.seconds, most_over_limit(issue.samples))

    @property
    def fewest(self) -> ScheduledRun:
        """The run with the fewest queries, which is that of the lowest rates."""
        return self.run(_LOWEST_RATE)

    def arrivals_s(self, rate: float, queries: int) -> npt.NDArray[np.float64]:
        """The time at which each query is issued, in seconds from the first."""
        self._draw(queries)
        times: npt.NDArray[np.float64] = self._unit[:queries] / rate
        return times

    def best_rate(self, datasets: int) -> float:
        """The highest rate whose run has no more than ``datasets`` datasets; its run is the shortest.

        Raises ValueError where there is none: LoadGen does not fill up, or min_query_count asks for more.
        """
        if not self.dataset or not self._duration_s or datasets < self._fewest:
            raise ValueError(f"no rate is the highest with {datasets} datasets")
        queries = datasets * self.dataset
        self._draw(queries)
        rate = float(self._unit[queries - 1]) / self._duration_s
        last_digit = 10.0 ** (math.floor(math.log10(rate)) + 1 - _DIGITS)
        steps = math.floor(rate / last_digit)
        while self.run(rounded(steps * last_digit)).datasets > datasets:  # LoadGen rounds down to ns
            steps -= 1
        return rounded(steps * last_digit)

    def snapped(self, rate: float, within: float) -> float:
        """The best rate of a number of datasets where one is near, ``within`` a share; else ``rate``."""
        rate = rounded(rate)
        if not self.dataset or not self._duration_s:
            return rate
        datasets = self.run(rate).datasets
        near = [self.best_rate(k) for k in (datasets - 1, datasets) if k >= self._fewest]
        close = [best for best in near if abs(best / rate - 1) <= within]
        return min(close, key=lambda best: abs(best - rate)) if close else rate

    def _draw(self, queries: int) -> None:
        if queries > len(self._unit):
            count = max(_FIRST_DRAWN, 2 * queries)
            self._unit = unit_arrivals(int(self._settings["schedule_rng_seed"]), count)


def rounded(rate: float) -> float:
    """A rate as it is written in a conf file."""
    return float(f"{rate:.{_DIGITS}g}")
