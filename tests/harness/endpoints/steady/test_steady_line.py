"""The line of the console after each pass."""

from math import nan

import pytest
from msgspec.structs import replace

from harness.endpoints.steady.steady_line import steady_line
from harness.endpoints.steady.steady_point import steady_state
from harness.endpoints.steady.super_passes import super_passes
from tests.harness.endpoints.steady.made_up_runs import SHAPES, Shape, line, run_of

FLAT = Shape((20.0,) * 9, noise=0.0, scatter=0.0)


def after(count, shape):
    """The line after this many passes, for an official window of 1 200 s."""
    return steady_line(super_passes(run_of(shape, 1), shape.size)[:count], 1200)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, "TPOT p90 20.00 ms in pass 1; a window needs passes 2 to 8, about 22m45s more"),
        (3, "TPOT p90 20.00 ms in pass 3, +0.0 % from the pass before; a window needs passes 2 to 8"),
        (5, "steady since pass 2: 795 of 1,200 s, about 6m45s more"),
        (8, "steady since pass 2: 1,395 of 1,200 s, long enough"),
    ],
)
def test_a_plateau(count, expected):
    assert after(count, FLAT).startswith(expected)


def test_it_says_after_which_pass_a_window_is_complete():
    """The line after the first pass and the line when it is long enough agree."""
    enough = [count for count in range(1, 10) if "long enough" in after(count, FLAT)]
    assert enough[0] == 8
    assert "passes 2 to 8" in after(1, FLAT)


def test_at_the_third_pass_a_ramp_up_shows():
    shape = FLAT._replace(tpot_ms=(8.0, 12.0, 16.0, 19.0) + (20.0,) * 8)
    assert "+33.3 % from the pass before" in after(3, shape)
    assert after(7, shape).startswith("steady since pass 4")


def test_a_drift():
    shape = FLAT._replace(tpot_ms=line(20, 60, 10))
    assert after(10, shape) == "TPOT p50 drifts up by 35 % over passes 6 to 10"
    assert after(10, shape._replace(tpot_ms=line(60, 10, 10))).startswith("TPOT p50 drifts down by")


def test_a_plateau_that_ended():
    shape = FLAT._replace(tpot_ms=(20.0,) * 8 + (30.0,))
    assert after(9, shape).startswith(
        "no longer steady (passes 2 to 8 were, for 1,395 s, long enough): TPOT p50"
    )

    short = after(9, shape._replace(pass_s=30.0))
    assert short.startswith("no longer steady (passes 2 to 8 were, for 209 s): TPOT p50")


def test_a_short_plateau_that_rises_says_so():
    shape = FLAT._replace(tpot_ms=(19.0, 20.3, 20.8, 21.3, 21.8))
    assert after(5, shape).endswith("more; TPOT p90 rises by 7 % over it")


def test_scatter():
    shape = FLAT._replace(tpot_ms=(20.0, 30.0) * 5)
    assert after(10, shape) == "TPOT p50 varies by 19.4 % (8 % allowed) over passes 2 to 10"
    # Over these it falls, too, but by less.
    assert after(9, shape) == "TPOT p50 varies by 20.0 % (8 % allowed) over passes 2 to 9"


def test_a_p90_that_varies_while_the_p50_is_flat():
    passes = super_passes(run_of(FLAT, 1), FLAT.size)
    moved = [replace(one, tpot_p90=one.tpot_p90 * (1 + i % 2)) for i, one in enumerate(passes)]
    assert steady_line(moved, 1200).startswith("TPOT p90 varies by 33.3 %")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (5, "steady since pass 6: 795 of 1,200 s, about 6m45s more"),
        # The wait for the end of another window was in vain.
        (13, "no longer steady (passes 2 to 13 were, for 2,395 s, long enough): TPOT p50 drifts up by 42 %"),
    ],
)
def test_after_a_step_the_window_is_the_first_that_is_long_enough(before, expected):
    shape = FLAT._replace(tpot_ms=(20.0,) * before + (28.0,) * 4)
    assert after(before + 4, shape).startswith(expected)
    window = steady_state(run_of(shape, 1), shape.size, 1200).window
    assert window.plateau == ((5, 9) if before == 5 else (1, 13))


def test_long_answers_need_more_than_the_rules():
    assert "of 1,694 s" in after(5, SHAPES["long answers"])


def test_without_tpot():
    assert "nothing was streamed" in after(1, SHAPES["not streamed"])
    assert "nothing was streamed" in after(9, SHAPES["not streamed"])
    passes = super_passes(run_of(FLAT, 1), FLAT.size)
    passes[4] = replace(passes[4], tpot_p50=nan, tpot_p90=nan)
    assert "a pass has no TPOT" in steady_line(passes[:7], 1200)
