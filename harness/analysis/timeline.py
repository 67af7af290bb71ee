"""A run over time, in at most 600 equal intervals that mostly hold several queries."""

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from harness.analysis import statistics
from harness.analysis.queries import Queries
from harness.arrays import Floats

_MOST_BINS, _FEWEST_BINS = 600, 40
_QUERIES_OF_BIN = 8
_WIDTHS = (1, 2, 5)
_PART = 1 << 16  # rows that are converted to float64 at once
_SHORTEST_S = 1e-6  # assumed for an answer that came in one event


class Bins(msgspec.Struct, frozen=True):
    """Equal intervals of ``width`` seconds from the first issue to the last event."""

    width: float
    count: int

    @property
    def middles(self) -> Floats:
        """Seconds."""
        return (np.arange(self.count) + 0.5) * self.width

    @property
    def ends(self) -> Floats:
        """Seconds."""
        return (np.arange(self.count) + 1) * self.width

    def of(self, moments: Floats) -> npt.NDArray[np.int32]:
        """The bin of each moment; none of them may be NaN."""
        return np.clip((moments / self.width).astype(np.int32), 0, self.count - 1)

    def counts(self, moments: Floats) -> npt.NDArray[np.int64]:
        """The number of moments in each bin; NaN counts nowhere."""
        return np.bincount(self.of(moments[~np.isnan(moments)]), minlength=self.count)


def bins_of(queries: Queries, until: float = 0.0, parts: int = 1) -> Bins:
    """A width of 1, 2 or 5 times a power of ten.

    ``until``: the end of the run where it is later than the last event; ``parts``: into how many parts the
    queries of a bin will be divided.
    """
    span = max(queries.span, until, 1e-3)
    most = min(max(len(queries) // (_QUERIES_OF_BIN * parts), _FEWEST_BINS), _MOST_BINS)
    exponent = math.floor(math.log10(span / most))
    widths = (factor * 10.0**power for power in (exponent, exponent + 1) for factor in _WIDTHS)
    width = next(width for width in widths if span / width <= most)
    return Bins(width, int(span / width) + 1)


def in_flight(queries: Queries, bins: Bins) -> Floats:
    """Queries issued and not ended at the end of each bin, without those whose end is not known.

    ``still_waiting`` adds the queries that never ended.
    """
    change = np.zeros(bins.count, dtype=np.int64)
    for begin in range(0, len(queries), _PART):
        issued, ended = queries.issued[begin : begin + _PART], queries.ended[begin : begin + _PART]
        known = ~np.isnan(ended)
        change += bins.counts(issued[known]) - bins.counts(ended[known])
    return np.cumsum(change).astype(float)


def still_waiting(known: Floats, bins: Bins, seen: Sequence[tuple[float, int]], unanswered: int) -> Floats:
    """Queries at the end of each bin that were never answered, of which no row is left.

    ``known``: those in flight of which there are rows. ``seen``: times, and the numbers in flight that the
    run counted itself. Whoever was never answered waited until the end, so the curve never falls.
    """
    times = np.array([time for time, _ in seen])
    extra = np.array([count for _, count in seen], float) - np.interp(times, bins.ends, known)
    extra = np.minimum.accumulate(np.clip(extra, 0, unanswered)[::-1])[::-1]
    if not len(times):
        return np.full(bins.count, float(unanswered))
    found: Floats = np.interp(bins.ends, [*times, bins.ends[-1]], [*extra, unanswered])
    return found


def tokens_per_second(queries: Queries, bins: Bins) -> Floats:
    """Output tokens, each answer's spread evenly between its first and its last.

    Otherwise events of many tokens would show as spikes. The tokens of an answer that was not streamed are
    spread from the sending of its request: in Offline all are issued at once, and most wait to be sent.
    """
    produced = np.zeros(bins.count)
    for begin in range(0, len(queries), _PART):
        part = slice(begin, begin + _PART)
        good = ~np.isnan(queries.latency[part])
        issued, sent, ttft, latency = (
            column[part][good].astype(float)
            for column in (queries.issued, queries.sent, queries.ttft, queries.latency)
        )
        before = np.where(np.isnan(ttft), np.nan_to_num(sent - issued), ttft)
        duration = np.maximum(latency - before, _SHORTEST_S)
        rate = queries.osl[part][good] / duration
        first = issued + latency - duration
        produced += _ramps(first, rate, bins) - _ramps(first + duration, rate, bins)
    return np.maximum(np.diff(produced, prepend=0.0) / bins.width, 0.0)  # rounding leaves small negative sums


def _ramps(starts: Floats, rates: Floats, bins: Bins) -> Floats:
    """At each bin's end, the sum of ramps that rise at their rate from their start."""
    index = bins.of(starts)
    slope = np.cumsum(np.bincount(index, rates, bins.count))
    offset = np.cumsum(np.bincount(index, rates * starts, bins.count))
    return bins.ends * slope - offset


def percentiles(values: Floats, queries: Queries, bins: Bins, shares: tuple[float, ...]) -> list[Floats]:
    """For each share, the percentile of the values of the queries issued in each bin; NaN for none.

    As LoadGen's: the sorted values' element floor(share * n).
    """
    issued = np.nan_to_num(queries.issued)  # those of a lost worker come first, without a time
    edges = np.searchsorted(issued, np.arange(bins.count + 1) * bins.width).tolist()
    edges[-1] = len(queries)
    parts = (values[begin:end] for begin, end in itertools.pairwise(edges))
    return list(np.array([[percentile(part, share) for share in shares] for part in parts]).T)


def percentile(values: Floats, share: float) -> float:
    """LoadGen's percentile of the values that are not NaN; NaN where all are."""
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan
    return statistics.percentile(known, share)
