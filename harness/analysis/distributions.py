"""Distributions of values: percentile curves, histograms, and points for a scatter plot."""

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from harness.arrays import Floats

_CURVE_POINTS = 400
_MOST_POINTS = 4000
_MOST_SORTED = 100_000  # rows from which points are chosen, of up to millions
_HISTOGRAM_BINS = 60


class Curve(msgspec.Struct, frozen=True):
    """A percentile curve."""

    nines: Floats
    """-log10(1 - share): 1 is p90, 2 is p99, 3 is p99.9"""
    values: Floats


def percentile_curve(values: Floats) -> Curve | None:
    """The curve up to the largest value; None without two values. Percentiles are LoadGen's."""
    ordered = values[~np.isnan(values)]
    ordered.sort()
    if len(ordered) < 2:
        return None
    n = len(ordered)
    nines = np.linspace(0, math.log10(n), min(_CURVE_POINTS, n))
    ranks = ((1 - 10.0**-nines) * n).astype(np.int64)
    ranks[-1] = n - 1  # 63 of 65, by rounding
    return Curve(nines, ordered[ranks])


class Histogram(msgspec.Struct, frozen=True):
    """Counts between neighbouring ``edges``."""

    edges: Floats
    counts: npt.NDArray[np.int64]

    @property
    def middles(self) -> Floats:
        """Of the whole numbers in each bin."""
        found: Floats = (self.edges[:-1] + self.edges[1:] - 1) / 2
        return found


def histogram(values: npt.NDArray[np.integer]) -> Histogram | None:
    """At most 60 bins of one whole width; None without a value."""
    if not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    width = max(1, math.ceil((high - low + 1) / _HISTOGRAM_BINS))
    edges = np.arange(low, high + width + 1, width)
    counts, _ = np.histogram(values, edges)
    return Histogram(edges.astype(float), counts)


def sample_points(x: npt.NDArray[Any], y: Floats, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Rows in order of x for at most 4,000 points: ``chosen`` ones, up to half, and others evenly over x."""
    known = ~np.isnan(y)
    first = _evenly(np.flatnonzero(known & chosen), _MOST_POINTS // 2)
    rest = _evenly(np.flatnonzero(known & ~chosen), _MOST_SORTED)
    rest = _evenly(rest[np.argsort(x[rest], kind="stable")], _MOST_POINTS - len(first))
    rows = np.concatenate([first, rest])
    return rows[np.argsort(x[rows], kind="stable")]


def _evenly(rows: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
