"""The model of a server with a known peak: against figures by hand, LoadGen's own runs, and the searches."""

import itertools
import zlib

import numpy as np
import pytest

from benchmarks.peak.searches import loadgen, ours
from benchmarks.peak.server_model import Limits, Server, closed_loop, open_loop
from benchmarks.peak.settings import SMALL
from benchmarks.peak.truth import FINE, passes, true_peak
from benchmarks.peak.workload import Workload, lengths, sample_order
from harness.config.expected_queries import expected_queries

PLAIN = Server(step_s=1.0, stream_s=1.0)  # a token of each of N requests takes 1 + N seconds


@pytest.mark.parametrize(
    ("server", "arrivals", "tokens", "first", "done"),
    [
        (PLAIN, [0], [3], [0], [4]),
        (PLAIN, [0, 0], [3, 3], [0, 0], [6, 6]),
        (PLAIN, [0, 2], [3, 3], [0, 2], [5, 8 - 1]),  # one token alone, then each 3 s, then alone again
        (Server(1.0, 1.0, slots=1), [0, 0], [3, 2], [0, 4], [4, 6]),
        (Server(1.0, 1.0, prefill_s=0.5), [0], [3], [0.5], [4.5]),
        # stands still for half a second
        (Server(1.0, 1.0, prefill_s=0.5), [0, 2.5], [3, 1], [0.5, 3.0], [5.0, 3.0]),
        (Server(1.0, 1.0, replicas=2), [0, 0], [3, 3], [0, 0], [4, 4]),
        (Server(1.0, 1.0, replicas=2, slow=2.0), [0, 0], [3, 3], [0, 0], [4, 8]),
        (Server(1.0, 0.0, square_s=1.0), [0, 0], [3, 3], [0, 0], [10, 10]),
    ],
)
def test_times_by_hand(server, arrivals, tokens, first, done):
    answers = open_loop(server, arrivals, tokens)
    assert answers.first.tolist() == pytest.approx(first)
    assert answers.done.tolist() == pytest.approx(done)


def test_a_closed_loop_has_the_time_per_token_of_its_concurrency():
    answers = closed_loop(Server(0.02, 1e-3, replicas=2), 20, itertools.repeat(50), 60.0)
    assert np.nanmax(np.abs(answers.tpot - 0.030)) < 1e-9
    assert answers.produced.sum() == pytest.approx(20 * 60 / 0.030, rel=0.03)


def test_a_server_that_warms_up_and_has_noise():
    cold, warm = (
        open_loop(Server(1.0, 1.0, drift=0.1, drift_s=1.0), [0], [3], age_s=age) for age in (0, 1e6)
    )
    assert warm.done[0] == pytest.approx(4.4)
    assert cold.done[0] < warm.done[0]
    noisy = [open_loop(Server(1.0, 1.0, noise=0.1), [0], [200], seed=seed).done[0] for seed in (1, 1, 2)]
    assert noisy[0] == noisy[1] != noisy[2]


def test_a_simulation_ends_when_more_are_late_than_may_be():
    answers = open_loop(Server(1.0, 1.0, slots=1), [0, 0, 0, 0], [3] * 4, limits=Limits(1.0, 10.0, 1))
    assert (answers.ended_s, np.isnan(answers.first).sum()) == (8.0, 1)


@pytest.mark.parametrize(
    ("rows", "head", "crc"),
    [
        (6396, [1987, 4649, 1981, 3519, 4678, 1366, 3158, 765, 21, 3132], 1317259988),
        (500, [285, 143, 209, 308, 371, 399, 366, 7, 312, 299], 1535273851),
    ],
)
def test_the_order_of_samples_is_that_of_loadgen(rows, head, crc):
    """Recorded from LoadGen 6.0.17 with the seeds of v6.1 and min_query_count 100."""
    order = sample_order(rows)
    assert order[:10].tolist() == head
    assert zlib.crc32(order.astype("<i8").tobytes()) == crc


@pytest.mark.parametrize("rate", [0.5, 9.9, 10.7, 84.7, 84.8, 640.0])
def test_runs_are_those_that_the_plan_shows(rate):
    workload = Workload(lengths(6396))
    run = workload.run(rate)
    issue = expected_queries(
        {**workload.loadgen_settings(), "server_target_qps": rate}, "Server", 6396, accuracy=False
    )
    assert run.queries == issue.samples
    assert run.issued_s == pytest.approx(issue.seconds, rel=1e-6)


def test_lengths_are_like_those_of_the_benchmark():
    tokens = lengths(6396)
    assert tokens.mean() == pytest.approx(1300, rel=0.01)
    assert tokens.max() <= 10_240
    assert np.median(tokens) < 0.75 * tokens.mean()


@pytest.mark.engine
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(one, marks=() if one.name in ("cliff", "drift") else pytest.mark.engine, id=one.name)
        for one in SMALL
        if one.kind != "noisy"
    ],
)
def test_the_search_finds_the_true_peak(setting):
    """Which is the last rate that passes."""
    found, _ = ours(setting)
    server, workload = setting.server, setting.workload()
    age_s = found.seconds if server.drift else 0.0
    peak = true_peak(server, workload, age_s)
    assert passes(server, workload, peak, age_s)
    assert not any(passes(server, workload, peak * (1 + FINE) ** n, age_s) for n in range(2, 9))
    assert abs(found.rate / peak - 1) <= 0.02
    assert found.in_full <= (10.0 if server.drift else 6.0)


def test_loadgens_search_ends_within_a_tenth_of_a_query():
    setting = SMALL[1]
    found = loadgen(setting, 20.0)
    workload = setting.workload()
    assert workload.outcome(setting.server, found.rate, cut=False).p99_within_limits
    assert not workload.outcome(setting.server, found.rate + 0.2, cut=False).p99_within_limits
    assert found.full == 3 + 9  # 20, 40, 80, then halves of 40 until a tenth is left
    assert loadgen(setting, 80.0).rate == 0.0
