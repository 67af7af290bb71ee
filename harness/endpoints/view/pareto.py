"""The curve as the rules draw it (section 5.2): a step function, without interpolation.

Each point is a step. Towards the next point, which has more requests in flight and is slower for a user, the
curve holds the throughput of the last one: a user's speed u is served at the rate of the point that is the
slowest of those at least as fast as u.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from harness.arrays import Floats
from harness.endpoints.view.measured_point import CurvePoint


class StepFunction(msgspec.Struct, frozen=True):
    """Tokens/s of the system over tokens/s of a user."""

    users: Floats
    """ascending, each once"""
    rates: Floats

    def at(self, users: Floats) -> Floats:
        """The curve at speeds of a user; NaN beyond its fastest point."""
        place = np.searchsorted(self.users, users)
        return np.append(self.rates, np.nan)[place]


def step_function(points: Iterable[CurvePoint]) -> StepFunction:
    """Of the points that have both numbers; of equally fast ones the one with the highest throughput."""
    best: dict[float, float] = {}
    for one in points:
        if one.system_tps is not None and one.tps_per_user is not None:
            best[one.tps_per_user] = max(best.get(one.tps_per_user, 0.0), one.system_tps)
    users = sorted(best)
    return StepFunction(np.array(users, dtype=float), np.array([best[user] for user in users], dtype=float))


class Overlap(msgspec.Struct, frozen=True):
    """Two curves over the users' speeds that both were measured at."""

    slowest: float
    fastest: float
    mean_left: float
    """the area under the left curve by its width"""
    mean_right: float
    right_above: float
    """the part of the range in which the right curve is higher"""
    right_below: float


def overlap(left: StepFunction, right: StepFunction) -> Overlap | None:
    """None where the curves have no speed of a user in common."""
    if not len(left.users) or not len(right.users):
        return None
    slowest = max(left.users[0], right.users[0])
    fastest = min(left.users[-1], right.users[-1])
    if slowest > fastest:
        return None
    ends = np.unique([slowest, *left.users, *right.users, fastest])
    ends = ends[(ends >= slowest) & (ends <= fastest)]
    widths = np.diff(ends) if len(ends) > 1 else np.ones(1)
    spans = ends[1:] if len(ends) > 1 else ends  # a step holds from below up to its own speed
    one, other = left.at(spans), right.at(spans)
    share = widths / widths.sum()
    return Overlap(
        slowest=float(slowest),
        fastest=float(fastest),
        mean_left=float((one * share).sum()),
        mean_right=float((other * share).sum()),
        right_above=float(share[other > one].sum()),
        right_below=float(share[other < one].sum()),
    )
