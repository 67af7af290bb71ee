"""The steady state of a curve's points, from their requests as they were counted before."""

from collections.abc import Mapping

from msgspec.structs import replace

from harness.endpoints.numbers.count_cache import counted_samples
from harness.endpoints.steady.steady_block import steady_block
from harness.endpoints.steady.steady_point import SteadyState, steady_state
from harness.endpoints.view.curve_files import MeasuredCurve
from harness.endpoints.view.measured_point import CurvePoint, stated_block


def steady_states(curve: MeasuredCurve) -> Mapping[str, SteadyState]:
    """By the name of the point; without the points whose answers nobody has counted, which takes minutes."""
    rules, found = curve.rules, {}
    for one in curve.points:
        samples, size = counted_samples(one.folder), _super_pass(one)
        if one.offline != "dedicated" and one.concurrency and size and samples is not None and len(samples):
            found[one.name] = steady_state(samples, size, rules.least_issue_s(one.concurrency))
    return found


def with_states(curve: MeasuredCurve, states: Mapping[str, SteadyState]) -> MeasuredCurve:
    """The curve whose points have the steady state of their requests, instead of what their files state."""
    points = [
        replace(one, steady=stated_block(steady_block(states[one.name]))) if one.name in states else one
        for one in curve.points
    ]
    return replace(curve, points=points)


def _super_pass(point: CurvePoint) -> int | None:
    """The samples of the dataset."""
    if point.run is not None:
        return point.run.curve.samples
    return None if point.steady is None else point.steady.window.size
