"""The test for a plateau: tokens, completions and TPOT neither rise nor fall over a window of a step.

A straight line is fitted to each. Its rise over the window, as a part of the mean, may be 5 %, or what chance
alone explains: three standard errors of the fit. Of tokens, which come all the time, chance explains 15 % at
most; requests are too few for that.
"""

import math
from collections.abc import Iterator

import msgspec
import numpy as np

from harness.arrays import Floats, Integers

MOST_RISE = 0.05  # A line may always rise or fall by this part of the mean.
MOST_BY_CHANCE = 0.15  # Chance explains no larger rise of tokens/s.
_ERRORS = 3.0  # Chance explains a rise up to this multiple of its standard error.
_BINS = 12
_FEWEST = 20  # TPOT is not tested for a trend in fewer requests.


class Trend(msgspec.Struct, frozen=True):
    """``rise`` over the window and its standard ``error``, as parts of the mean."""

    rise: float
    error: float

    def flat(self, most_by_chance: float) -> bool:
        """Whether the fit shows no rise or fall beyond what is allowed."""
        return abs(self.rise) <= max(MOST_RISE, min(_ERRORS * self.error, most_by_chance))


def trend(x: Floats, y: Floats) -> Trend:
    """The straight line through at least three points; ``x`` is 0 to 1 over the window."""
    mean = float(y.mean())
    if not mean:
        return Trend(0.0, 0.0)
    across = x - x.mean()
    spread = float((across**2).sum())
    if not spread:
        return Trend(0.0, 0.0)
    slope = float((across * y).sum()) / spread
    left = y - mean - slope * across
    error = float(np.sqrt((left**2).sum() / (len(y) - 2) / spread))
    return Trend(slope / mean, error / mean)


def unsteady(
    begin_ns: int,
    end_ns: int,
    times_ns: Integers,
    tokens: Integers,
    ended_ns: Integers,
    tpot_ns: Integers,
) -> Iterator[str]:
    """The reasons why the window is not a plateau; none for a steady one.

    ``tokens``: the count of all tokens so far at ``times_ns``. ``ended_ns`` and ``tpot_ns``: when the
    requests of the window ended, and their TPOT, 0 for those of a single token.
    """
    edges = np.linspace(begin_ns, end_ns, _BINS + 1)
    middles = (np.arange(_BINS) + 0.5) / _BINS
    rates = np.diff(np.interp(edges, times_ns, tokens.astype(np.float64)))
    yield from _said("tokens per second", trend(middles, rates), MOST_BY_CHANCE)
    yield from _said("requests per second", _count_trend(middles, ended_ns, edges))
    timed = tpot_ns > 0
    if timed.sum() >= _FEWEST:
        moments = (ended_ns[timed] - begin_ns) / (end_ns - begin_ns)
        yield from _said("TPOT", trend(moments, tpot_ns[timed].astype(np.float64)))


def _count_trend(middles: Floats, ended_ns: Integers, edges: Floats) -> Trend:
    """Of requests that end; chance is at least that of independent ends."""
    counts = np.histogram(ended_ns, edges)[0].astype(np.float64)
    found = trend(middles, counts)
    if not counts.any():
        return found
    spread = float(((middles - middles.mean()) ** 2).sum())
    return Trend(found.rise, max(found.error, float(np.sqrt(counts.mean() / spread) / counts.mean())))


def _said(name: str, found: Trend, most_by_chance: float = math.inf) -> Iterator[str]:
    if not found.flat(most_by_chance):
        word = "rise" if found.rise > 0 else "fall"
        yield f"{name} {word} by {abs(found.rise):.1%} of the mean over the window"
