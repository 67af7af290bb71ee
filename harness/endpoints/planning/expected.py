"""How long a curve will take, from what its rules ask for and from rates that a ladder has measured."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

from harness.endpoints.curve import Curve, Point


class Expected(NamedTuple):
    """The expected time of a point. Warm-up, drain and scoring are not in it."""

    seconds: float
    """of its performance run and its accuracy run"""
    at_least: bool
    """whether it can take much longer: nothing is known of the servers, or not of the accuracy dataset"""


def expected_times(curve: Curve, rates: Mapping[int, float]) -> dict[str, Expected]:
    """The expected time of each point by its name.

    ``rates`` are requests/s by requests in flight. Without any a point takes at least the time that the
    rules ask for.
    """
    return {point.name: _expected(curve, point, rates) for point in curve.points}


def total(times: Mapping[str, Expected]) -> Expected:
    """All points, one after the other."""
    return Expected(sum(one.seconds for one in times.values()), any(one.at_least for one in times.values()))


def _expected(curve: Curve, point: Point, rates: Mapping[int, float]) -> Expected:
    rate = rate_at(point.concurrency, rates)
    if rate is None:
        return Expected(point.issue_s, at_least=True)
    pass_s = curve.samples / rate
    issue_s = pass_s * max(point.passes, math.ceil(point.issue_s / pass_s))
    # Its answers are longer than those of the performance dataset where it asks for more reasoning.
    accuracy_s = curve.accuracy_samples / rate if point.accuracy else 0.0
    return Expected(issue_s + accuracy_s, at_least=point.accuracy)


def rate_at(concurrency: int, rates: Mapping[int, float]) -> float | None:
    """Requests/s at a number in flight, between the measured ones as a straight line of both logarithms.

    Below the measured ones a request takes as long as at the lowest, above them the servers are full.
    None where nothing was measured.
    """
    known = sorted(number for number, rate in rates.items() if rate > 0)
    if not known:
        return None
    at = bisect_left(known, concurrency)
    if at == 0:
        return rates[known[0]] * concurrency / known[0]
    if at == len(known):
        return rates[known[-1]]
    low, high = known[at - 1], known[at]
    part = math.log(concurrency / low) / math.log(high / low)
    return math.exp((1 - part) * math.log(rates[low]) + part * math.log(rates[high]))
