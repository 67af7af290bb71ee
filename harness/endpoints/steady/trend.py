"""Statistics of a short series, a value for each super-pass: trend, scatter, change point, intervals.

The tests and their constants are those of the official detector (mlcommons/endpoints,
metrics/steady_state_diagnostics.py), so that its verdict is ours.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from harness.arrays import Floats

Direction = Literal["up", "down", "steady", "insufficient"]

FEWEST = 4  # Fewer super-passes show no trend.
SIGNIFICANCE = 0.05
_Z95 = 1.96
_TINY = 1e-9  # stands for a median of 0

# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def variation(values: Floats) -> float:
    """Coefficient of variation; 0 of a single value, or of a mean of 0."""
    mean = float(values.mean())
    return float(values.std()) / abs(mean) if mean else 0.0


def drift(values: Floats) -> float:
    """Rise of the least-squares line from the first value to the last, as a part of the median.

    ``values``: at least two.
    """
    across = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(across @ values) / float(across @ across)
    return slope * (len(values) - 1) / level(values)


def level(values: Floats) -> float:
    """The median, never 0."""
    return float(np.median(values)) or _TINY


def direction(values: Floats) -> Direction:
    """Mann-Kendall test for a trend, with the variance that Hamed and Rao correct for autocorrelation."""
    if len(values) < FEWEST:
        return "insufficient"
    score = sum(int(np.sign(values[i + 1 :] - values[i]).sum()) for i in range(len(values) - 1))
    variance = _score_variance(values) * _hamed_rao(values)
    if variance > 0:
        z = (abs(score) - 1) / math.sqrt(variance)
        if math.erfc(z / math.sqrt(2)) >= SIGNIFICANCE:
            return "steady"
    return "up" if score > 0 else "down" if score < 0 else "steady"


def _score_variance(values: Floats) -> float:
    """Variance of the score of independent values, with ties."""
    n = len(values)
    ties = np.unique(values, return_counts=True)[1].astype(float)
    tied = float((ties * (ties - 1) * (2 * ties + 5)).sum())
    return (n * (n - 1) * (2 * n + 5) - tied) / 18


def _hamed_rao(values: Floats) -> float:
    """The factor of the variance, from the significant autocorrelations of the ranks; 1 if not positive."""
    n = len(values)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") - (n - 1) / 2
    at_lag = np.correlate(ranks, ranks, "full")[n:] / float(ranks @ ranks)
    left = n - np.arange(1.0, n)
    significant = np.abs(at_lag) > _Z95 / math.sqrt(n)
    weighted = float((left * (left - 1) * (left - 2) * at_lag)[significant].sum())
    factor = 1 + 2 / (n * (n - 1) * (n - 2)) * weighted
    return factor if factor > 0 else 1.0


class ChangePoint(NamedTuple):
    """The most likely step."""

    first: int  # index of the first value after it
    probability: float  # of a step like this in a series without one

    @property
    def significant(self) -> bool:
        """Whether there is a step."""
        return self.probability < SIGNIFICANCE


def change_point(values: Floats) -> ChangePoint:
    """Pettitt's test, of at least two values."""
    n = len(values)
    before = np.arange(1, n)
    statistic = np.abs(2 * np.cumsum(average_ranks(values))[:-1] - before * (n + 1))
    at = int(statistic.argmax())
    k = float(statistic[at])
    return ChangePoint(at + 1, min(1.0, 2 * math.exp(-6 * k * k / (n**3 + n**2))))


def average_ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share their mean rank."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[group], float)


def interval(means: Floats) -> tuple[float, float]:
    """95 % interval of the mean of batch means; the value itself of a single one."""
    k, middle = len(means), float(means.mean())
    if k < 2:
        return middle, middle
    t = _T95[k - 2] if k - 2 < len(_T95) else _Z95
    half = t * float(means.std(ddof=1)) / math.sqrt(k)
    return middle - half, middle + half
