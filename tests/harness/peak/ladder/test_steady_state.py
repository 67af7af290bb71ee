"""The test of a plateau on series whose rise is known."""

import re

import numpy as np
import pytest

from harness.peak.ladder.steady_state import Trend, trend, unsteady

X = (np.arange(12) + 0.5) / 12


@pytest.mark.parametrize("rise", [0.0, 0.04, -0.3])
def test_a_line_is_found_exactly(rise):
    found = trend(X, 100 * (1 + rise * (X - 0.5)))
    assert found.rise == pytest.approx(rise, abs=1e-9)
    assert found.error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("x", "y"), [(np.ones(30), X[:1].repeat(30)), (X, np.zeros(12))])
def test_what_has_no_line_neither_rises_nor_falls(x, y):
    """Requests that all ended in one read; a window without tokens."""
    assert trend(x, y) == Trend(0.0, 0.0)


def test_the_error_is_that_of_least_squares():
    """Against scipy's textbook case: numpy's covariance of a polynomial fit."""
    y = 100 + np.random.default_rng(3).normal(0, 5, len(X))
    coefficients, covariance = np.polyfit(X, y, 1, cov=True)
    found = trend(X, y)
    assert found.rise == pytest.approx(coefficients[0] / y.mean())
    assert found.error == pytest.approx(np.sqrt(covariance[0, 0]) / y.mean())


def window(tokens=0.0, requests=0.0, tpot=0.0, noise=0.0, count=600, seconds=60, even=False):
    """Reasons against a window whose rates rise by these parts; ``even``: requests end without chance."""
    random = np.random.default_rng(5)
    times = np.linspace(0, seconds * 1e9, 4 * seconds + 1).astype(np.int64)
    x = times / times[-1]
    rates = 1000 * (1 + tokens * (x - 0.5)) * (1 + noise * random.standard_normal(len(x)))
    share = (np.arange(count) + 0.5) / count if even else np.sort(random.random(count))
    ended = share - requests / 2 * share * (share - 1)
    times_of = (ended * seconds * 1e9).astype(np.int64)
    tpots = (2e7 * (1 + tpot * (ended - 0.5)) * random.normal(1, 0.02, count)).astype(np.int64)
    begin, counted = 10**15, np.cumsum(rates).astype(np.int64)
    return list(unsteady(begin, begin + seconds * 10**9, begin + times, counted, begin + times_of, tpots))


@pytest.mark.parametrize(
    ("rises", "about"),
    [
        ({}, []),
        ({"tokens": 0.04}, []),
        ({"tokens": 0.07}, ["tokens"]),
        ({"tokens": -0.07}, ["tokens"]),
        ({"tpot": 0.1}, ["TPOT"]),
        ({"tpot": 0.04}, []),
        ({"tpot": 0.1, "count": 12}, []),  # too few to say so
        ({"requests": 0.1}, []),  # 600 independent ends show no 10 %
        ({"requests": 0.3, "even": True}, []),  # as if they were independent
        ({"requests": 0.9}, ["requests"]),
        ({"noise": 0.3}, []),
        ({"noise": 1.0, "tokens": 0.6}, ["tokens"]),  # chance excuses 15 %, not all
    ],
)
def test_plateaus(rises, about):
    found = window(**rises)
    assert [reason.split()[0] for reason in found] == about


def test_a_fall_of_more_than_all_is_a_part_of_the_mean():
    """Servers that stop in the middle: a rate cannot fall by 302 %, its line can."""
    none, times = np.empty(0, np.int64), np.array([0, 6, 12]) * 10**9
    (said,) = unsteady(0, 12 * 10**9, times, np.array([0, 600, 600]), none, none)
    assert re.fullmatch(r"tokens per second fall by 3\d\d\.\d% of the mean over the window", said)


def test_a_window_without_tokens_is_flat():
    nothing = np.zeros(2, dtype=np.int64)
    empty = np.empty(0, dtype=np.int64)
    assert list(unsteady(0, 10**9, np.array([0, 10**9]), nothing, empty, empty)) == []
