"""The policy of a search: what comes next by what was measured (benchmarks/peak/search.py has the truth)."""

import numpy as np
import pytest
from msgspec.structs import replace

from harness.peak.search import replay
from harness.peak.search.policy import Ended, History, NextProbe, NextStep, Policy, bracket, search, tally
from harness.peak.search.pool_model import pool_model
from harness.peak.search.schedule import Schedule
from tests.harness.peak.search import searches
from tests.harness.peak.search.searches import (
    LOADGEN,
    TPOT_S,
    TTFT_S,
    MadeServer,
    probe,
    settings,
    step,
)

LADDER = tuple(step(n, 15 + 0.6 * n) for n in (16, 64, 128, 256))


def decide(history: History, **changes):
    return Policy(settings(**changes)).decide(history)


def found(server, **changes):
    history, ended = search(server, settings(**changes), History())
    return history, ended, bracket(history.probes)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("server", "replicas"),
    [
        (MadeServer(), 1),
        (MadeServer(flatters=1.1), 1),
        (MadeServer(each_ms=0.3, flatters=0.9), 2),
        (MadeServer(each_ms=0.1, slots=80), 2),
    ],
)
def test_the_peak_is_found_with_few_runs(server, replicas):
    history, ended, rates = found(server, replicas=replicas, slots=server.slots)
    assert ended.outcome == "FOUND"
    valid, invalid = tally(history.probes)[rates.low]
    assert (valid >= 2, invalid) == (True, 0)
    assert server.probe(1.02 * rates.low).verdict == "INVALID"
    assert sum(one.cut_after_s is None for one in history.probes) <= 5


@pytest.mark.engine
def test_a_search_that_stopped_anywhere_goes_on_as_if_it_had_not():
    history, ended, _ = found(MadeServer(), slots=1000)
    measured = [*history.steps, *history.probes]
    for count, following in enumerate(measured):
        steps = history.steps[:count]
        action = decide(History(steps, history.probes[: count - len(steps)]), slots=1000)
        if isinstance(action, NextStep):
            assert following.concurrency == action.concurrency
        else:
            assert following.rate == action.rate
    assert decide(history, slots=1000) == ended


def test_steps_in_which_all_requests_wait_have_one_point():
    """One running request is the least that the model has, and both steps have it."""
    waiting = [replace(step(16, ms), ttft_samples_ns=(10**10,)) for ms in (20, 40)]
    model = pool_model(waiting)
    assert np.isfinite(model.tpot_table(64)).all()


def test_the_most_that_ran_while_requests_waited_are_the_slots():
    """Where prefills are long, requests wait for theirs in each step, also with slots left."""
    waiting = [replace(step(count, 20), ttft_samples_ns=(10**9,)) for count in (8, 32)]
    few, many = pool_model(waiting).running
    assert few < 0.93 * 8 and pool_model(waiting).slots == many
    assert pool_model(waiting, slots=few).slots == few


@pytest.mark.parametrize(("rate", "slots"), [(14, 1000), (10, 64)], ids=["slow", "full"])
def test_a_part_of_a_long_run_stands_for_all_of_it(rate, slots, monkeypatch):
    """One with too many slow answers, and one whose queries wait for a slot."""
    running, tpot_s = (1.0, 1000.0), (0.0156, 0.615)
    model = replay.PoolModel(running, tpot_s, slots, np.full(9, 0.02), np.ones(9), np.arange(20.0, 240.0))
    schedule = Schedule(LOADGEN | {"min_duration_ms": 300_000}, 640)
    complete = replay.replay(model, schedule, rate, TTFT_S, TPOT_S)
    monkeypatch.setattr(replay, "_MOST_REPLAYED", complete.run.queries // 5)
    part = replay.replay(model, schedule, rate, TTFT_S, TPOT_S)
    assert part.run == complete.run and not complete.passes
    assert complete.most_in_flight < complete.run.queries / 3  # most have ended when the last one comes
    for name in ("over_ttft", "over_tpot", "tpot_p99_s", "cut_s", "seconds", "most_in_flight"):
        assert getattr(part, name) == pytest.approx(getattr(complete, name), rel=0.15), name


@pytest.mark.parametrize("missing", ["ttft_samples_ns", "tpot_samples_ns"])
def test_a_ladder_without_times_of_tokens_gives_the_first_rate(missing):
    """Answers that are not streamed have none, those of one token have no TPOT: nothing can be replayed."""
    steps = tuple(replace(one, **{missing: ()}) for one in LADDER)
    most = max(one.queries_per_s for one in LADDER)
    action = decide(History(steps))
    assert action.rate == pytest.approx(most, rel=1e-5) and "the most that the ladder completed" in action.why
    assert decide(History(steps, (probe(most, tpot_p99_ns=None),))).rate == pytest.approx(
        1.25 * most, rel=1e-5
    )


def test_a_run_that_was_cut_corrects_the_prediction():
    """The ladder shows a server 1.6 times as fast as it is; its peak is 10."""
    server, policy, history = MadeServer(flatters=1.6), Policy(settings(slots=1000)), History()
    while isinstance(action := policy.decide(history), NextStep):
        history = History((*history.steps, server.ladder(action.concurrency)))
    first = server.probe(action.rate)
    assert first.cut_after_s is not None and action.rate > 18
    assert 10 < policy.decide(History(history.steps, (first,))).rate < 11


def test_the_rate_that_is_given_comes_first_and_a_near_one_needs_no_ladder():
    assert decide(History(), start_qps=20.0) == NextProbe(20.0, "the rate that was given")
    near, far = probe(20.0, tpot_p99_ns=78e6), probe(20.0, tpot_p99_ns=30e6)
    assert isinstance(decide(History((), (near,)), start_qps=20.0), NextProbe)
    nearer = probe(20.2, tpot_p99_ns=79e6)  # the two show where TPOT reaches its limit
    assert decide(History((), (near, nearer)), start_qps=20.0).rate == pytest.approx(20.402, rel=1e-5)
    assert isinstance(decide(History((), (far,)), start_qps=20.0), NextStep)
    assert isinstance(decide(History(), start_qps=None), NextStep)
    # One that was cut shows only the answers until then, and a ladder that was begun is climbed on.
    for changes in ({"cut_after_s": 9.0}, {"ttft_p99_ns": None}, {"tpot_p99_ns": None}):
        unknown = replace(near, verdict="INVALID", **changes)
        assert isinstance(decide(History((), (unknown,)), start_qps=20.0), NextStep)
    assert isinstance(decide(History((step(16, 24.6),), (near,)), start_qps=20.0), NextStep)


BOUND = tuple(probe(rate, "INVALID", client_bound=True) for rate in (30.0, 29.0))
NO_ROOM = ("2 of 600 queries failed: local_limit 2 (http://a: Too many open files)",)
FAILED = tuple(probe(40.0 - number, "INVALID") for number in range(16))
ENDS = {
    "the client, nothing passed": (
        (History(LADDER, BOUND), {}),
        ("STOPPED", "this client was a bottleneck of the INVALID runs at 30, 29: give it more CPU time"),
    ),
    "the client, which had no open files left": (
        (History(LADDER, (probe(20.0), *(replace(one, reasons=NO_ROOM) for one in BOUND))), {}),
        ("AT_LEAST", "this client was a bottleneck of the INVALID runs at 30, 29: allow it more open files"),
    ),
    "the client, something passed": (
        (History(LADDER, (probe(20.0), *BOUND)), {}),
        ("AT_LEAST", "this client was a bottleneck of the INVALID runs at 30, 29: give it more CPU time"),
    ),
    "no time for a run": (
        (History(LADDER), {"budget_s": 300.0}),
        ("BUDGET", "12 s of the budget are left, a run takes 109 s"),
    ),
    "no time for a run behind a step": (
        (History(), {"budget_s": 89.0, "step_s": 60.0}),
        ("BUDGET", "89 s of the budget are left, a step of the ladder takes 60 s and a run 30 s"),
    ),
    "no step within the limits": (
        (History((step(2, 90.0), step(1, 90.0))), {}),
        ("NOTHING_PASSES", "with 1 request in flight a limit is already missed"),
    ),
    "no step within the limits, by the client": (
        (History((replace(step(1, 90.0), client_bound=True),)), {}),
        ("STOPPED", "with 1 request in flight a limit is already missed, but this client was the bottleneck"),
    ),
    "too many runs": ((History(LADDER, FAILED), {}), ("STOPPED", "16 runs without a result")),
    "confirmed": (
        (History(LADDER, (probe(18.0), probe(18.0), probe(18.2, "INVALID"))), {}),
        ("FOUND", "VALID in 2 of 2 runs"),
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_it_ends(name):
    (history, changes), (outcome, why) = ENDS[name]
    ended = decide(history, **changes)
    assert ended.outcome == outcome
    assert ended.why.startswith(why) and ended.why.endswith(("--restart", why))


@pytest.mark.parametrize(
    ("history", "changes"),
    [
        (History(LADDER, BOUND[:1]), {}),  # another program may have been at work
        (History(LADDER, (replace(BOUND[0], verdict="VALID"), BOUND[1])), {}),
        (History(LADDER, FAILED[:15]), {}),
        (History((step(2, 90.0),)), {}),  # one in flight may be within the limits
        (History(), {"budget_s": 90.0, "step_s": 60.0}),
        (History(LADDER, (probe(18.0), probe(18.2, "INVALID"))), {}),
    ],
)
def test_it_does_not_end_before_that(history, changes):
    assert not isinstance(decide(history, **changes), Ended)


GOOD, HIGH = probe(18.0), probe(22.0, "INVALID")


@pytest.mark.parametrize(
    ("peak", "probes", "rate", "why"),
    [
        (20.0, (), 19.9, "the prediction"),
        (20.0, (GOOD,), 19.9, "above the highest rate that passed"),
        (20.0, (probe(19.8),), 19.998, "above the highest rate that passed"),
        (None, (GOOD,), 22.5, "nothing predicts the peak yet"),
        (20.0, (HIGH,), 19.9, "nothing passed yet"),
        (30.0, (HIGH,), 21.7822, "nothing passed yet"),
        (30.0, (probe(24.0, "INVALID"), HIGH), 21.5686, "nothing passed yet"),
        (None, (HIGH,), 21.7822, "nothing passed yet"),
        (21.0, (GOOD, HIGH), 20.895, "between the highest that passed and the lowest that did not"),
        (19.0, (GOOD, HIGH), 19.8997, "between the highest that passed and the lowest that did not"),
    ],
)
def test_the_next_rate(peak, probes, rate, why):
    """With a tolerance of 1 %: half of it below the prediction, all of it above what passed."""
    policy = Policy(settings())
    policy.expected_peak, policy.beyond_limits = lambda history: peak, lambda history, peak: None
    assert policy.decide(History(LADDER, probes)) == NextProbe(rate, why)


@pytest.mark.parametrize(("low", "rate"), [(18.0, 19.9), (19.6, 19.9), (19.8, 19.8)])
def test_only_a_rate_near_the_prediction_is_at_least_the_peak(low, rate):
    policy = Policy(settings())
    policy.expected_peak, policy.beyond_limits = lambda history: 20.0, lambda history, peak: "no limit"
    assert policy.decide(History(LADDER, (probe(low),))).rate == rate
    ended = policy.decide(History(LADDER, (probe(low), probe(low))))
    assert isinstance(ended, Ended) == (rate == low)
    assert rate != low or ended == Ended("AT_LEAST", "VALID in 2 of 2 runs; no limit")


def test_filling_the_servers_and_emptying_them_is_time_spent():
    filled = replace(step(16, 24.6), seconds=60.0, filling_s=12.0)
    runs = [probe(18.0, seconds=600.0, cost_s=650.0), probe(19.0, "INVALID", cut_after_s=30.0, cost_s=90.0)]
    assert History((filled, filled), tuple(runs)).spent_s == 2 * 72 + 650 + 90


def test_what_a_run_takes_beside_its_schedule():
    """As long as the longest before it, but for those that were cut; else twice a request's latency."""
    policy = Policy(settings())
    planned_s = policy.schedule.run(18.0).seconds
    steps = tuple(replace(step(n, 20.0), latency_s=latency_s) for n, latency_s in ((1, 9.0), (2, 7.0)))
    runs = [probe(18.0, cost_s=planned_s + more) for more in (30.0, 40.0, 35.0)]
    cut = probe(18.0, "INVALID", cut_after_s=5.0, cost_s=planned_s + 900.0)
    for history, more_s in (
        (History(), planned_s),
        (History((*steps, replace(steps[0], latency_s=None))), planned_s),
        (History(steps), 14.0),
        (History(steps, (cut,)), 14.0),
        (History(steps, (*runs, cut)), 40.0),
    ):
        assert policy.cost_s(history, 18.0) == pytest.approx(planned_s + more_s)


def test_the_last_run_that_fits_is_a_confirmation():
    history = History(LADDER, (probe(18.0, tpot_p99_ns=60e6),))
    action = decide(history, budget_s=history.spent_s + 1.5 * history.probes[0].cost_s)
    assert action == NextProbe(18.0, "confirmation")


def test_a_run_is_confirmed_where_a_step_of_the_ladder_leaves_no_time_for_another():
    far = probe(18.0, tpot_p99_ns=30e6)
    known = {"start_qps": 18.0, "step_s": 1000.0, "budget_s": far.cost_s * 2.5}
    assert decide(History((), (far,)), **known) == NextProbe(18.0, "confirmation")
    ended = decide(History((), (far, far, far)), **known | {"budget_s": far.cost_s * 3.5})
    assert ended.outcome == "BUDGET"


def test_a_first_run_is_affordable_in_twice_its_schedule():
    planned_s = probe(20.0).planned_s
    assert planned_s < 60
    assert isinstance(decide(History(), start_qps=20.0, budget_s=2.1 * planned_s), NextProbe)
    assert isinstance(decide(History(), start_qps=20.0, budget_s=1.9 * planned_s), Ended)


@pytest.mark.parametrize(
    ("cuts", "rate"),
    [
        ((44.8,), 44.8 / 1.02),
        ((44.8, 44.35), 44.35 / 1.04),
        ((44.8, 44.35, 43.0, 42.9), (40.0 * 42.9) ** 0.5),  # no lower than half way
    ],
)
def test_a_prediction_above_a_rate_that_failed_is_not_followed(cuts, rate):
    """The servers got slower: the complete runs still promise a peak near 48."""
    complete = (probe(40.0, tpot_p99_ns=78e6), probe(50.0, "INVALID", tpot_p99_ns=82e6))
    since = tuple(probe(one, "INVALID", cut_after_s=3.0) for one in cuts)
    action = decide(History((), (*complete, *since)), start_qps=40.0)
    assert action.rate == pytest.approx(rate, rel=1e-5)


def test_a_rate_that_failed_its_confirmation_is_given_up():
    runs = (probe(21.0, tpot_p99_ns=79e6), probe(21.3, "INVALID"), probe(21.0, "INVALID"))
    assert decide(History(LADDER, runs)).rate < 21.0


V, I = "VALID", "INVALID"  # noqa: E741


@pytest.mark.parametrize(
    ("runs", "low", "high"),
    [
        ([], None, None),
        ([(10, V)], 10, None),
        ([(10, I)], None, 10),
        ([(10, V), (12, I), (11, V)], 11, 12),
        ([(10, V), (10, I)], None, 10),
        ([(9, V), (10, V), (10, I)], 9, 10),
        ([(10, V), (10, I), (10, V)], 10, None),
        ([(10, I), (12, V)], 12, None),
    ],
)
def test_the_bracket(runs, low, high):
    rates = bracket([probe(rate, verdict) for rate, verdict in runs])
    assert (rates.low, rates.high) == (low, high)


CUT, ABOVE_LIMIT = {"cut_after_s": 0.1}, {"tpot_p99_ns": 84e6}
NEAR, AT_LIMIT = probe(20.0, tpot_p99_ns=75e6), probe(20.0, tpot_p99_ns=79.9e6)
# Runs up to the highest rate that passed, and changes of the one above it.
BRACKETS = {
    "the peak is expected above": ((probe(19.0, tpot_p99_ns=70e6), NEAR), CUT),
    "runs of one rate differ": ((probe(19.0), probe(19.0, "INVALID", **CUT), NEAR), CUT),
    "the peak is expected here": ((AT_LIMIT,), ABOVE_LIMIT),
    "a queue ended it": ((AT_LIMIT,), {**ABOVE_LIMIT, "over_ttft": 100, "over_tpot": 0}),
}


@pytest.mark.parametrize("tolerance", [0.01, 0.05])
@pytest.mark.parametrize("name", BRACKETS)
def test_a_bracket_of_two_tolerances_is_narrow_enough(name, tolerance):
    before, changes = BRACKETS[name]
    for part, is_narrow in ((1.8, True), (2.2, False)):
        above = probe(20.0 * (1 + part * tolerance), "INVALID", **changes)
        chosen = decide(History((), (*before, above)), start_qps=20.0, tolerance=tolerance)
        assert (chosen.rate == 20.0) is is_narrow, part


def test_a_rate_that_was_valid_twice_is_found():
    """Also where a run at it was INVALID, as long as more were VALID."""
    above, same = probe(20.3, "INVALID"), probe(20.0, "INVALID")
    assert decide(History((), (NEAR, above)), start_qps=20.0) == NextProbe(20.0, "confirmation")
    assert decide(History((), (NEAR, above, same)), start_qps=20.0).rate < 20.0
    assert decide(History((), (NEAR, above, NEAR)), start_qps=20.0).outcome == "FOUND"
    assert decide(History((), (NEAR, above, same, NEAR, NEAR)), start_qps=20.0).outcome == "FOUND"


CLIENT_LIMITED = MadeServer(base_ms=5.0, each_ms=0.01)


@pytest.mark.parametrize("slots", [None, 1000])
def test_a_client_at_its_limit_gives_a_lower_bound(slots):
    """Nothing is missed up to the requests that the client can hold."""
    history, ended, rates = found(CLIENT_LIMITED, most_in_flight=64, slots=slots)
    assert (ended.outcome, "this client can hold 64 requests" in ended.why) == ("AT_LEAST", True)
    assert max(one.concurrency for one in history.steps) == 64
    assert rates.low is not None and rates.high is None


def wide_limits(monkeypatch):
    """LoadGen's settings, and those of a MadeServer, with limits that are never missed."""
    monkeypatch.setattr(searches, "TTFT_S", 36_000.0)
    monkeypatch.setattr(searches, "TPOT_S", 36_000.0)
    return {**LOADGEN, "ttft_latency": 36_000 * 10**9, "tpot_latency": 36_000 * 10**9}


class BusyServer(MadeServer):
    """A server on a machine whose other programs make the client a bottleneck of steps, and of runs."""

    def __init__(self, bound_steps, *, bound_runs=False):
        super().__init__(each_ms=0.1, slots=80)
        self.bound_steps, self.bound_runs = bound_steps, bound_runs

    def ladder(self, concurrency):
        measured = super().ladder(concurrency)
        return replace(measured, client_bound=len(self.steps) <= self.bound_steps)

    def probe(self, rate):
        return replace(super().probe(rate), client_bound=self.bound_runs)


@pytest.mark.engine
@pytest.mark.parametrize("bound_steps", [1, 4])
def test_a_client_that_was_busy_in_the_ladder_alone_does_not_end_the_search(bound_steps):
    history, ended, rates = found(BusyServer(bound_steps), slots=80)
    assert ended.outcome == "FOUND"
    assert BusyServer(0).probe(1.03 * rates.low).verdict == "INVALID"
    assert len(history.probes) < 12


@pytest.mark.engine
def test_limits_that_always_pass_end_a_search_behind_such_a_ladder_too(monkeypatch):
    wide = wide_limits(monkeypatch)
    history, ended, rates = found(BusyServer(4), slots=80, loadgen=wide)
    assert (ended.outcome, rates.high) == ("AT_LEAST", None)
    assert "its schedule" in ended.why
    assert max(one.seconds / one.planned_s for one in history.probes) < 3


def test_full_servers_do_not_complete_less_than_half_of_a_rate_that_passed(monkeypatch):
    """A disturbed ladder said 2.293 queries/s of servers that had passed at 10.29: the search ended there."""
    history = History(LADDER, (probe(120.0), probe(120.0)))
    assert decide(history, loadgen=wide_limits(monkeypatch), slots=256).rate == pytest.approx(150, rel=0.01)


def test_a_client_that_is_the_bottleneck_of_ladder_and_runs_gives_a_lower_bound():
    history, ended, rates = found(BusyServer(4, bound_runs=True), slots=80)
    assert (ended.outcome, rates.high) == ("AT_LEAST", None)
    assert "20 requests in flight" in ended.why
    assert len(history.probes) == 2


@pytest.mark.engine
@pytest.mark.parametrize(
    ("server", "changes", "why"),
    [
        (MadeServer(each_ms=0.1, slots=80), {"slots": 80, "connections": 14_000}, "2 times the rate"),
        (MadeServer(), {"slots": 1000, "connections": 14_000}, "2 times the rate"),
        (MadeServer(each_ms=0.1, slots=80), {"slots": 80, "connections": 300}, "hold 300 requests"),
        (CLIENT_LIMITED, {"most_in_flight": 128, "connections": 128}, "hold 128 requests"),
    ],
)
def test_limits_that_always_pass_end_at_a_rate_that_servers_and_client_can_hold(
    monkeypatch, server, changes, why
):
    wide = wide_limits(monkeypatch)
    history, ended, rates = found(server, loadgen=wide, **changes)
    assert (ended.outcome, rates.high) == ("AT_LEAST", None)
    assert why in ended.why
    fastest = max(step.queries_per_s for step in history.steps)
    assert 0.7 * fastest < rates.low < 2.2 * fastest
    assert len(history.probes) <= 4


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"replicas": 8, "slots": 9600}, 512),
        ({"slots": 256, "most_in_flight": 10}, 10),
    ],
)
def test_the_first_step(changes, first):
    assert decide(History(), **changes) == NextStep(first)


def test_the_ladder_is_short_and_goes_down_where_nothing_is_kept():
    server, steps = MadeServer(base_ms=70.0, each_ms=1.5), []
    while isinstance(action := decide(History(tuple(steps)), slots=256), NextStep):
        steps.append(server.ladder(action.concurrency))
    assert server.steps[:2] == [16, 4]
    assert len(server.steps) <= 5
