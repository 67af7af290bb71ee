"""The step function of the rules, and two of them against each other."""

import math
from pathlib import Path

import numpy as np
import pytest

from harness.endpoints.view.measured_point import CurvePoint
from harness.endpoints.view.pareto import overlap, step_function

NAN = math.nan


def point(user, rate, **changes):
    tpot = {90: 1e9 / user} if user else {}
    return CurvePoint(name="r", folder=Path("r"), system_tps=rate, tpot_ns=tpot, **changes)


def curve(*pairs):
    return step_function([point(*pair) for pair in pairs])


def test_between_two_points_the_curve_holds_what_the_faster_one_reached():
    steps = curve((100, 10), (50, 40), (20, 90))
    users = np.array([5, 20, 21, 50, 51, 100, 101])
    np.testing.assert_array_equal(steps.at(users), [90, 90, 40, 40, 10, 10, NAN])


def test_a_dedicated_offline_run_is_no_step():
    steps = step_function([point(10, 5), point(20, 100, offline="dedicated"), point(None, 7)])
    np.testing.assert_allclose(steps.users, [10])


def test_of_two_points_of_one_speed_the_better_one_counts():
    np.testing.assert_array_equal(curve((10, 5), (10, 7)).rates, [7])


@pytest.mark.parametrize(
    ("left", "right", "span", "means", "above", "below"),
    [
        (((10, 8), (30, 4)), ((10, 8), (30, 4)), (10, 30), (4, 4), 0, 0),
        (((10, 8), (30, 4)), ((10, 8), (30, 5)), (10, 30), (4, 5), 1, 0),
        # 10 to 20 at 6 against 4, 20 to 30 at 3 against 4
        (((10, 8), (30, 4)), ((10, 9), (20, 6), (30, 3)), (10, 30), (4, 4.5), 0.5, 0.5),
        (((10, 8), (30, 4)), ((20, 6), (50, 1)), (20, 30), (4, 1), 0, 1),
        (((10, 8),), ((10, 4),), (10, 10), (8, 4), 0, 1),
    ],
)
def test_the_range_that_both_curves_have(left, right, span, means, above, below):
    found = overlap(curve(*left), curve(*right))
    assert (found.slowest, found.fastest) == pytest.approx(span)
    assert (found.mean_left, found.mean_right) == pytest.approx(means)
    assert (found.right_above, found.right_below) == pytest.approx((above, below))


@pytest.mark.parametrize("right", [(), ((40, 1), (50, 1))])
def test_curves_without_a_common_speed(right):
    assert overlap(curve((10, 8), (30, 4)), curve(*right)) is None
