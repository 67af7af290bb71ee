"""A step against closed loops whose truth is known: rates, what counts, plateaus, the client's own limits."""

import itertools

import numpy as np
import pytest

from harness.peak.ladder.measurement import Look, Measurement, StepSettings, latency_of, mean_in_flight
from harness.peak.ladder.steps import Latency
from harness.record.journal import QUERY_ROW
from harness.record.outcome import FailureKind
from tests.harness.peak.ladder.loops import REPLICAS, ClosedLoop, ns
from tests.records import rows_with

MEAN_S = 0.1 + 200 * 0.02  # of an answer, in the loop's default


def test_the_truth_is_found():
    step = ClosedLoop().measure(64, 60, rise_s=4).step()
    rate = 64 / MEAN_S
    assert step.steady and not step.client_bound and step.notes == ()
    assert step.queries_per_s == pytest.approx(rate, rel=0.1)
    assert step.tokens_per_s == pytest.approx(rate * 201, rel=0.05)
    assert step.latency_s == pytest.approx(MEAN_S, rel=0.1)
    assert step.in_flight == 64
    assert (step.seconds, step.concurrency) == (60, 64)
    assert 4 + MEAN_S * 0.5 < step.filling_s < 4 + MEAN_S * 2
    assert step.ttft.p50_ns == step.ttft.p99_ns == pytest.approx(1e8, rel=1e-3)
    assert step.tpot.p50_ns == pytest.approx(2e7, rel=1e-3)
    assert len(step.tpot_samples_ns) == step.tpot.count <= len(step.ttft_samples_ns) == step.ttft.count
    assert len(step.osl_samples) == step.queries
    assert sum(one.queries for one in step.replicas) == step.queries
    assert sum(one.in_flight for one in step.replicas) == pytest.approx(64, rel=0.15)
    assert sum(one.queries_per_s for one in step.replicas) == pytest.approx(rate, rel=0.1)
    assert sum(one.ended_tokens_per_s for one in step.replicas) == pytest.approx(rate * 201, rel=0.1)


def test_the_mean_in_flight_is_of_requests_that_were_sent_within_the_window():
    """Over 40 ns: one ends after 10, one has no known end, one was not sent, 20 of one, one comes later."""
    found = rows_with(5, sent_ns=[10, 10, 0, 30, 60], last_byte_ns=[20, 0, 0, 90, 70])
    assert mean_in_flight(found, 10, 50) == (10 + 40 + 20) / 40


def test_a_step_counts_while_exactly_its_requests_are_in_flight():
    """All of a slow rise are awaited, and the ends of what a larger step has left."""
    loop = ClosedLoop()
    assert loop.measure(64, 60, rise_s=40).step().in_flight == 64
    assert loop.measure(8, 60).step().in_flight == 8


def test_no_request_counts_twice_and_none_of_another_concurrency():
    loop = ClosedLoop()
    kept = [loop.measure(level, 20, rise_s=4).kept() for level in (16, 32, 64, 32)]
    ids = np.concatenate([one.rows["query_id"] for one in kept])
    assert len(set(ids.tolist())) == len(ids)
    for before, one in itertools.pairwise(kept):
        begin = before.rows["last_byte_ns"].max()
        assert one.rows["issued_ns"][one.in_latencies].min() > begin
        assert not (one.in_latencies & ~one.in_window).any()
        assert 0 < one.in_latencies.sum() < one.in_window.sum() < len(one.rows)


@pytest.mark.parametrize(
    ("loop", "steady"),
    [
        ({}, True),
        ({"lengths": lambda random: 100}, True),  # all alike: they end in waves
        ({"tpot": lambda t: 0.02 * (1 + t / 150)}, False),  # slower and slower
        ({"tpot": lambda t: 0.02 * (1 + min(t, 60) / 60)}, True),  # slower at first
        ({"tpot": lambda t: 0.04 if t < 40 else 0.02}, True),
    ],
    ids=["even", "waves", "drift", "settles", "jump"],
)
def test_a_plateau_is_detected(loop, steady):
    measured = ClosedLoop(**loop).measure(48, 30, rise_s=4)
    step = measured.step()
    assert step.steady == steady
    assert bool(step.notes) != steady
    assert steady or 3 * 30 < step.filling_s < 4 * 30  # the window has moved on three times


def test_a_client_that_stood_still_has_no_load():
    measured = ClosedLoop().measure(48, 30, rise_s=4)
    measured._looks = measured._looks[-1:]
    assert measured.step().queries


def test_a_window_holds_one_mean_latency_at_least():
    step = ClosedLoop(lengths=lambda random: 500 + int(random.integers(100))).measure(32, 2).step()
    assert step.seconds == pytest.approx(11, rel=0.1)
    assert "--seconds 2" in step.notes[0]


def test_failures_are_counted_and_do_not_hold_the_step_up():
    step = ClosedLoop(fails=10).measure(32, 20).step()
    assert step.failures == {FailureKind.TIMEOUT.label: step.failed}
    assert step.failed > 5


@pytest.mark.parametrize(
    ("loop", "cpu", "bound"),
    [
        ({}, lambda t: (int(t * 1e8), int(t * 5e8)), False),
        ({"held": 0.97}, lambda t: (0, 0), False),
        ({"held": 0.94}, lambda t: (0, 0), True),
        ({}, lambda t: (int(t * 1e8), int(t * 1e9)), True),
        ({"late_s": 0.1}, lambda t: (0, 0), False),
        ({"late_s": 0.9}, lambda t: (0, 0), True),
    ],
    ids=["idle", "a little fewer", "in flight", "cpu", "a little late", "late"],
)
def test_the_client_as_the_bottleneck(loop, cpu, bound):
    step = ClosedLoop(**loop).measure(64, 10, cpu=cpu).step()
    assert step.client_bound == bound
    assert any("client" in note for note in step.notes) == bound


@pytest.mark.parametrize(("late_s", "bound"), [(0.003, False), (0.01, True)])
def test_short_answers_are_counted_by_their_times(late_s, bound):
    """Looks that fall between two of them see no request; of 0.1 s each waits 3 or 10 % at the client."""
    step = ClosedLoop(lengths=lambda random: 1, late_s=late_s, held=0.0).measure(1, 10).step()
    assert step.in_flight == pytest.approx(1 - late_s / 0.1, rel=0.001)
    assert step.client_bound is bound


def test_the_percentiles_are_loadgens():
    """Of n values in order that of index floor(share * n)."""
    assert latency_of(np.arange(1000, 0, -1)) == Latency(count=1000, p50_ns=501, p90_ns=901, p99_ns=991)


def test_a_step_without_times_is_not_done():
    """One request at a time, each as long as the window: the first that counts is waited for."""
    step = ClosedLoop(lengths=lambda random: 450).measure(1, 9).step()
    assert step.steady and step.tpot.count == step.ttft.count > 0
    assert "only" in step.notes[-1]


def test_servers_that_send_nothing_are_in_the_phase():
    """Of all servers that hung for 40 s nothing was said but "measuring: 25 of 60 s"."""
    step = Measurement(StepSettings(4, 60.0, REPLICAS, {}), ns(0), ns(0))
    phases = []
    for second in range(1, 62):
        step.look(Look(ns(second), min(second, 10), 4, (0, 0)), np.empty(0, QUERY_ROW))
        phases.append(step.phase(ns(second)))
    silent = [phase for phase in phases if "nothing has arrived" in phase]
    assert len(silent) == 61 - 38 and phases[-len(silent) :] == silent
    assert silent[0] == "filling: 0 of 4 have ended, 0 tokens/s, nothing has arrived for 30 s"
