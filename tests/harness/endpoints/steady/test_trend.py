"""Statistics of short series, by hand; test_official_detector.py compares them with the detector's."""

import math

import numpy as np
import pytest

from harness.endpoints.steady.trend import average_ranks, change_point, direction, drift, interval, variation


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3], "insufficient"),
        ([1, 2, 3, 4], "steady"),  # S = 6, z = 5 / sqrt(8.67) = 1.70, p = 0.09
        ([1, 2, 3, 4, 5], "up"),  # S = 10, z = 9 / sqrt(16.7) = 2.20, p = 0.03
        ([5, 4, 3, 2, 1], "down"),
        ([7, 7, 7, 7, 7], "steady"),  # no variance
        ([1, 3, 2, 3, 1, 2, 2], "steady"),
        # Close to the bound, with ties and autocorrelation; what the official detector finds.
        ([3, 6, 5, 5, 6, 6, 6, 7, 9, 7, 9, 9, 7], "up"),
        ([4, 5, 5, 5, 5, 5, 5, 5, 6, 8, 7], "steady"),
        ([5, 5, 4, 6, 2, 6, 2], "down"),
        ([7, 3, 4, 4, 3, 6, 1, 9, 2], "steady"),
        # Values that alternate have a small variance, and a score of 1 is no score.
        ([5, 3, 9, 2, 9, 0, 6], "steady"),
        ([3, 7, 1, 11, 2, 8, 2, 7, 1, 10, 2, 5], "steady"),
    ],
)
def test_a_trend(values, expected):
    assert direction(np.array(values, float)) == expected


def test_values_that_resemble_their_neighbours_are_no_trend():
    """A random walk, S = -71: Mann-Kendall alone finds p = 0.014 (z = 70 / 28.5)."""
    walk = [
        0.0,
        1.3,
        2.6,
        2.4,
        1.4,
        0.2,
        0.2,
        -0.9,
        -2.2,
        -1.8,
        -1.5,
        -0.8,
        -1.6,
        -1.4,
        -1.4,
        -2.7,
        -1.9,
        -1.4,
        1.1,
    ]
    assert direction(np.array(walk)) == "steady"
    assert sum(np.sign(np.subtract(walk[i + 1 :], value)).sum() for i, value in enumerate(walk)) == -71


def test_drift_is_the_rise_of_the_line_as_a_part_of_the_median():
    assert drift(np.array([10.0, 11.0, 12.0])) == pytest.approx(2 / 11)


def test_variation():
    assert variation(np.array([9.0, 11.0])) == pytest.approx(0.1)
    assert variation(np.zeros(4)) == variation(np.array([3.0])) == 0


def test_a_change_point():
    """Ten values and ten higher ones: K = 10 * 10."""
    values = np.array([*range(10), *range(50, 60)], float)
    found = change_point(values)
    assert found.first == 10
    assert found.probability == pytest.approx(2 * math.exp(-6 * 100**2 / (20**3 + 20**2)))
    assert found.significant
    assert not change_point(np.ones(20)).significant


def test_equal_values_share_their_rank():
    assert average_ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]


def test_the_interval_of_batch_means():
    """Student's t of three degrees of freedom is 3.182; the standard deviation is 1.291."""
    low, high = interval(np.array([1.0, 2.0, 3.0, 4.0]))
    assert (low, high) == pytest.approx((2.5 - 3.182 * 1.2910 / 2, 2.5 + 3.182 * 1.2910 / 2), rel=1e-4)
    assert interval(np.array([4.0])) == (4, 4)


def test_beyond_30_degrees_of_freedom_the_interval_is_that_of_the_normal_distribution():
    values = np.arange(32.0)
    low, high = interval(values)
    assert high - low == pytest.approx(2 * 1.96 * values.std(ddof=1) / math.sqrt(32))


@pytest.mark.parametrize("freedom", range(1, 31))
def test_the_interval_is_that_of_student_s_t(freedom):
    """95 % of its density, which at sqrt(freedom) tan(a) is proportional to cos(a) ** (freedom - 1)."""
    values = np.arange(freedom + 1.0)
    _, high = interval(values)
    t = (high - values.mean()) * math.sqrt(len(values)) / values.std(ddof=1)
    angles = np.linspace(0, math.atan(t / math.sqrt(freedom)), 10_001), np.linspace(0, math.pi / 2, 10_001)
    inside, everywhere = (np.trapezoid(np.cos(one) ** (freedom - 1), one) for one in angles)
    assert inside / everywhere == pytest.approx(0.95, abs=5e-5)
