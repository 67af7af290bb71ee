"""Status, verdict, window and its numbers, on runs whose numbers are known."""

import itertools

import numpy as np
import pytest

from harness.endpoints.planning.rules import load_endpoints_rules
from harness.endpoints.samples import SAMPLE
from harness.endpoints.steady.steady_point import is_official, steady_state, verdict_of
from harness.endpoints.steady.super_passes import percentile, super_passes
from tests.harness.endpoints.steady.made_up_runs import SHAPES, Shape, run_of

FLAT = Shape((20.0,) * 9, noise=0.0, scatter=0.0)


def judged(shape, seed=1, required_s=1200):
    return steady_state(run_of(shape, seed), shape.size, required_s)


def test_the_window_is_after_the_ramp_up_and_its_numbers_are_those_of_its_requests():
    samples = run_of(FLAT, 1)
    state = steady_state(samples, FLAT.size, 1200)
    rows, window = samples[FLAT.size :], state.window
    seconds = (rows["issued_ns"][-1] - rows["issued_ns"][0]) / 1e9
    assert (window.first, window.last, window.samples) == (1, 8, len(rows))
    assert state.requests == (FLAT.size, len(samples))
    assert window.issue_s == pytest.approx(seconds)
    assert window.system_tps == pytest.approx(rows["output_tokens"].sum() / seconds)
    assert window.tps_per_user == pytest.approx(1000 / 20)
    assert window.detector_system.value == pytest.approx(rows["suffix_tokens"].sum() / seconds)
    ttft = sorted(rows["first_ns"] - rows["issued_ns"])
    assert window.ttft.p90_ns == ttft[int(0.9 * (len(ttft) - 1))]


def test_the_drain_is_outside_the_window():
    samples = run_of(FLAT, 1)
    before = steady_state(samples, FLAT.size, 1200).window
    samples["first_ns"][-1] += 10**12
    samples["complete_ns"][-1] += 10**12
    after = steady_state(samples, FLAT.size, 1200).window
    assert (after.issue_s, after.system_tps) == (before.issue_s, before.system_tps)


@pytest.mark.parametrize(
    ("concurrency", "pass_s", "status"),
    [
        (32, 100.0, "windowable"),
        (33, 100.0, "insufficient_duration"),
        (33, 160.0, "windowable"),
        (32, 60.0, "insufficient_duration"),
    ],
)
def test_the_rules_ask_for_600_s_up_to_32_in_flight_and_1200_s_above(concurrency, pass_s, status):
    required_s = load_endpoints_rules().least_issue_s(concurrency)
    assert judged(FLAT._replace(pass_s=pass_s), required_s=required_s).status == status


@pytest.mark.parametrize(
    ("name", "status", "verdict", "official"),
    [
        ("plateau", "windowable", "STEADY STATE", True),
        ("drifts slowly up", "windowable", "drifting_up", False),
        ("drifts slowly down", "windowable", "drifting_down", False),
        ("steps up late", "windowable", "anomaly", True),
        ("few passes", "insufficient_passes", "not found", False),
        ("part of a pass", "partial_dataset", "not found", False),
        ("too short", "insufficient_duration", "not found", False),
        ("short for 1 200 s", "insufficient_duration", "STEADY STATE", False),
        ("long answers", "insufficient_duration", "not found", False),  # 1 795 s of 1 846
        ("not streamed", "insufficient_passes", "not found", False),
    ],
)
def test_status_and_verdict(name, status, verdict, official):
    state = judged(SHAPES[name])
    assert (state.status, state.verdict) == (status, verdict)
    assert is_official(state.status, state.verdict) is official


def test_four_passes_never_make_a_window_and_five_may():
    """The first one always counts as ramp-up."""
    assert judged(FLAT._replace(tpot_ms=(20.0,) * 4)).status == "insufficient_passes"
    five = judged(FLAT._replace(tpot_ms=(20.0,) * 5, pass_s=400.0))
    assert (five.status, five.window.first, five.window.last) == ("windowable", 1, 4)


@pytest.mark.parametrize(("before", "after", "first"), [(7, 5, 1), (6, 6, 7)])
def test_of_plateaus_that_are_all_too_short_the_longest_is_the_window(before, after, first):
    shape = FLAT._replace(tpot_ms=(20.0,) * before + (60.0,) + (20.0,) * after, pass_s=30.0)
    state = judged(shape)
    assert (len(state.plateaus), state.window.first, state.verdict) == (2, first, "not found")


def test_a_window_whose_requests_were_all_issued_at_once_has_no_rates():
    """The official script has 0 tokens/s there."""
    window = judged(SHAPES["precision"]._replace(pass_s=0.0)).window
    system = window.detector_system
    assert (window.issue_s, window.system_tps, system.value, system.low, system.high) == (0, 0, 0, 0, 0)
    assert window.least.term == "floor"


def test_a_gating_metric_that_drifts_is_no_verdict_of_ttft():
    state = judged(SHAPES["TTFT drifts"])
    assert (state.trend["ttft_p90"], state.verdict) == ("up", "STEADY STATE")


def test_a_plateau_on_another_level_is_no_anomaly_without_a_significant_step():
    """Pettitt's p of 4 passes after 12 others is 2 exp(-6 * 48^2 / (16^3 + 16^2)) = 0.083."""
    state = judged(FLAT._replace(tpot_ms=(20.0,) * 13 + (28.0,) * 4))
    assert len(state.plateaus) == 2 and state.level_shift is None and state.verdict != "anomaly"
    assert judged(FLAT._replace(tpot_ms=(20.0,) * 16 + (28.0,) * 5)).verdict == "anomaly"  # p = 0.04


def test_a_short_plateau_before_the_window_on_another_level_is_no_anomaly():
    """The official script compares with later plateaus alone."""
    state = judged(FLAT._replace(tpot_ms=(20.0, *(26.0,) * 5, *(20.0,) * 13), pass_s=110.0))
    assert (len(state.plateaus), state.window.first) == (2, 6)
    assert (state.verdict, state.level_shift) == ("STEADY STATE", None)


def test_no_level_differs_by_a_part_of_none():
    state = judged(FLAT._replace(tpot_ms=(0.0,) * 26 + (20.0,) * 8))
    assert (len(state.plateaus), state.level_shift) == (2, None)


def test_a_level_shift_weighs_more_than_the_trend_that_it_makes():
    assert verdict_of(True, True, {"tpot_p90": "up"}) == "anomaly"
    assert verdict_of(True, False, {"tpot_p50": "down", "tpot_p90": "up"}) == "drifting_up"
    assert verdict_of(False, True, {"tpot_p90": "up"}) == "not found"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("plateau", "steady over passes 2 to 9"),
        ("short for 1 200 s", "1,200 s needed"),
        ("too short", "600 s needed (floor)"),
        ("steps up late", "TPOT +29 % from pass 26 on"),
        ("steps up", "passes 1 to 8 count as ramp-up"),
        ("drifts slowly up", "TPOT p90 drifts up to the end"),
        ("few passes", "2 super-passes after 2 of ramp-up"),
        ("part of a pass", "fewer than 40 requests"),
        ("not streamed", "no TPOT"),
    ],
)
def test_the_reason_names_what_was_found(name, part):
    assert part in judged(SHAPES[name]).reason


def test_a_short_plateau_that_rises_says_so():
    state = judged(FLAT._replace(tpot_ms=(19.0, 20.3, 20.8, 21.3, 21.8), pass_s=400.0))
    assert state.verdict == "STEADY STATE"  # Four values show no significant trend.
    assert "TPOT p90 rises by 7 % over it" in state.reason


def test_only_what_drifts_is_said_to_drift():
    assert judged(SHAPES["plateau"]).reason == "steady over passes 2 to 9 (1,595 s)"
    state = judged(SHAPES["short for 1 200 s"])
    assert state.reason.endswith("; 1,200 s needed")
    assert judged(SHAPES["drifts slowly up"]).reason.count("drifts") == 2  # of both gates


def test_no_requests():
    state = steady_state(np.zeros(0, SAMPLE), 40, 1200)
    assert (state.status, state.verdict, state.window) == ("partial_dataset", "not found", None)


def test_super_passes_hold_every_request_once():
    samples = run_of(SHAPES["incomplete last pass"], 1)
    passes = super_passes(samples, 40)
    assert [each.issued for each in passes] == [40] * 8 + [13]
    assert sum(each.output_tokens for each in passes) == samples["output_tokens"].sum()
    assert all(a.last_issue_ns < b.first_issue_ns for a, b in itertools.pairwise(passes))


def test_percentiles_are_elements():
    values = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    assert [percentile(values, share) for share in (0, 0.5, 0.9, 0.99, 1)] == [1, 3, 4, 4, 5]


def test_a_request_that_failed_has_a_ttft_and_no_tpot():
    samples = run_of(SHAPES["failing"], 1)
    window = judged(SHAPES["failing"]).window
    rows = samples[window.first * 40 : (window.last + 1) * 40]
    assert window.tpot.count == (~rows["failed"]).sum() < window.ttft.count == len(rows)
