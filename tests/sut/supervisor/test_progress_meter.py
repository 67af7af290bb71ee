"""The progress line's total, time left, rate and failures, from counters and a clock that the test moves."""

import itertools
from functools import partial

import numpy as np
import pytest

from benchmarks.peak.server_model import Server, open_loop
from benchmarks.peak.workload import lengths
from harness.progress.progress_line import plain_progress
from harness.record.outcome import FailureKind
from sut.ipc.counters import FIRST_FAILURE, Counter, CounterBoard
from sut.supervisor.progress_meter import ProgressMeter, RunLength

SERVER = RunLength(640, scheduled_s=64.0)
OFFLINE = RunLength(128)
METER = partial(ProgressMeter, at_once=16)
SINGLE_STREAM = RunLength(64, least_s=60.0)


def counts(**values):
    totals = np.zeros(len(Counter), dtype=np.int64)
    for name, value in values.items():
        totals[Counter[name.upper()]] = value
    return totals


def line(length, elapsed, failures=None, **values):
    clock = itertools.chain((100.0,), itertools.repeat(100.0 + elapsed)).__next__
    return plain_progress(METER(length, lambda: failures or {}, clock)(counts(**values)))


@pytest.mark.parametrize(
    ("length", "elapsed", "values", "expected"),
    [
        # the schedule's rest and the answers to what is in flight, never less than that
        (SERVER, 10, {"issued": 110, "completed": 100}, ["100/640 done", "55s left"]),
        (SERVER, 60, {"issued": 600, "completed": 590}, ["590/640 done", "5s left"]),
        (SERVER, 70, {"issued": 640, "completed": 350}, ["350/640 done", "58s left"]),
        (SERVER, 10, {"issued": 100}, ["0/640 done", "54s left"]),
        (SERVER, 10, {"issued": 100, "completed": 5}, ["5/640 done", "54s left"]),
        (SERVER, 70, {"issued": 640, "completed": 16}, ["16/640 done", "45m30s left"]),
        # a rate that the servers cannot hold: 1m34s was said, the schedule's rest and the queue of now
        (SERVER, 30, {"issued": 300, "completed": 100}, ["100/640 done", "2m42s left"]),
        (OFFLINE, 10, {"issued": 128, "completed": 16}, ["16/128 done", "1m10s left"]),
        (OFFLINE, 10, {"issued": 128, "completed": 40, "failed": 24}, ["64/128 done", "10s left"]),
        # answers of an earlier attempt took no time
        (OFFLINE, 10, {"issued": 128, "completed": 96, "resumed": 64}, ["96/128 done", "10s left"]),
        (SINGLE_STREAM, 10, {"issued": 51, "completed": 50}, ["50/64 done", "50s left"]),
        (SINGLE_STREAM, 50, {"issued": 11, "completed": 10}, ["10/64 done", "4m30s left"]),
        (SINGLE_STREAM, 70, {"issued": 90, "completed": 89}, ["89/90 done", "0s left"]),
    ],
)
def test_total_and_time_left(length, elapsed, values, expected):
    shown = line(length, elapsed, **values)
    assert all(f" {part}" in shown for part in expected)


def test_the_total_is_no_less_than_what_is_issued():
    """A monitor that reads progress.jsonl had 162 of 70 queries, of a run whose line had 162 of 163."""
    seen = METER(SINGLE_STREAM)(counts(issued=163, completed=162))
    assert (seen.issued, seen.total) == (163, 163)


@pytest.mark.parametrize(("length", "elapsed", "issued"), [(OFFLINE, 10, 128), (SERVER, 70, 640)])
def test_no_time_is_known_before_the_first_answer(length, elapsed, issued):
    """Of a Server run whose schedule was over "0s left" was said, with all of its queries in flight."""
    assert "left" not in line(length, elapsed, issued=issued, receptions=1)


@pytest.mark.parametrize(
    ("elapsed", "completed", "expected"),
    [
        (5.1, 21, None),  # an official run, 2048 at once: 1h18m was said of a run of 10 min 30 s
        (10.2, 138, None),
        (51.0, 1349, 674.4),
    ],
)
def test_the_first_of_many_answers_at_once_show_no_rate(elapsed, completed, expected):
    clock = itertools.chain((100.0,), itertools.repeat(100.0 + elapsed)).__next__
    meter = METER(RunLength(19188), at_once=1024, clock=clock, in_flight=lambda: np.array([1024, 1024]))
    found = meter(counts(issued=19188, completed=completed)).remaining_s
    assert found == (None if expected is None else pytest.approx(expected, abs=0.1))


@pytest.mark.parametrize(("length", "elapsed"), [(RunLength(70, scheduled_s=6.4), 7.2), (OFFLINE, 7.2)])
@pytest.mark.parametrize(("answered", "is_known"), [(1, False), (15, False), (16, True)])
def test_a_rate_is_known_once_as_many_are_answered_as_run_at_once(length, elapsed, answered, is_known):
    """Of a run of 64 queries in 6 s, of which 16 run at once for 10 s, 8m28s was said of 42 s."""
    shown = line(length, elapsed, issued=length.queries, completed=answered)
    assert ("left" in shown) == is_known


@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
def test_the_last_long_answers_count(part):
    """Of 6,396 answers, 512 at once, the longest of 7.9 times the mean: 19, 27 and 50 % less was said."""
    server = Server(step_s=0.0174, stream_s=0.0526 / 512, slots=512)
    answers = open_loop(server, [0.0] * 6396, lengths(6396).tolist())
    end_s, now_s = answers.done.max(), part * answers.done.max()
    ended = answers.tokens[answers.done <= now_s]
    meter = ProgressMeter(
        RunLength(6396),
        clock=itertools.chain((0.0,), itertools.repeat(now_s)).__next__,
        in_flight=lambda: np.array([6396 - len(ended)]),
        at_once=512,
    )
    tokens = {"output_tokens": ended.sum(), "longest_answer": ended.max()}
    left_s = meter(counts(issued=6396, completed=len(ended), **tokens)).remaining_s
    assert left_s == pytest.approx(end_s - now_s, rel=0.15)


def test_the_last_answers_show_no_rate():
    """Of that run "0s left" was said for half a minute, at its 11 longest answers."""
    loads = iter(np.array([[1024, 1024], [707, 707], [6, 5]]))
    clock = itertools.chain((0.0,), (610.0, 625.0, 654.0)).__next__
    meter = METER(RunLength(19188), at_once=1024, clock=clock, in_flight=lambda: next(loads))
    left = [meter(counts(issued=19188, completed=19188 - rest)).remaining_s for rest in (2200, 1414, 11)]
    assert left == [pytest.approx(79, abs=1), pytest.approx(50, abs=1), None]


@pytest.mark.parametrize(("at_once", "left"), [(256, 2400.0), (16384, None)])
def test_answers_come_as_before_while_queries_wait_at_the_servers(at_once, left):
    """Of an hour that servers took for their queues, no time was said in its second half."""
    loads = iter(np.array([[33000], [12000]]))
    clock = itertools.chain((0.0,), (600.0, 4800.0)).__next__
    meter = METER(
        RunLength(36000, scheduled_s=600.0), at_once=at_once, clock=clock, in_flight=lambda: next(loads)
    )
    meter(counts(issued=36000, completed=3000))
    assert meter(counts(issued=36000, completed=24000)).remaining_s == left


@pytest.mark.parametrize(("limited", "shown"), [(True, "6 in flight, 22 waiting"), (False, "28 in flight")])
def test_requests_at_the_servers_are_counted_where_they_have_a_limit(limited, shown):
    meter = METER(OFFLINE, in_flight=lambda: np.array([4, 2]), limited=limited)
    assert f", {shown}," in plain_progress(meter(counts(issued=128, completed=99, failed=1)))


def rates(*snapshots):
    """Tokens per second, shown of snapshots one second apart."""
    meter = METER(OFFLINE, clock=itertools.count(100.0).__next__)
    return [meter(counts(issued=128, **values)).tokens_per_s for values in snapshots]


def test_means_are_those_of_the_run():
    sums = {"first_tokens": 4, "ttft_sum_ns": 8 * 10**8, "tpot_count": 2, "tpot_sum_ns": 5 * 10**7}
    assert line(OFFLINE, 10, issued=128, **sums).endswith("mean TTFT 200.0 ms, mean TPOT 25.00 ms")
    assert METER(OFFLINE)(counts(issued=128, **sums)).first_tokens == 4  # by which a run is lost


def test_the_imbalance_is_that_of_the_last_minute():
    """A look a second."""
    loads = [[2, 0]] * 60 + [[1, 1]] * 60
    meter = METER(OFFLINE, in_flight=iter(np.array(loads)).__next__)
    found = [meter(counts(issued=128)).imbalance for _ in loads]
    assert found[59] == 2.0 and found[118] > 1.0 and found[119] == 1.0


def test_the_rate_is_that_of_the_last_seconds():
    assert set(rates(*({"partial_tokens": second * 50} for second in range(1, 31)))) == {50}
    found = rates(*({"output_tokens": min(second, 10) * 100} for second in range(1, 31)))
    assert [found[second - 1] for second in (10, 20, 30)] == [100, 0, 0]
    assert rates({"partial_tokens": 500}, {"failed": 1}) == [500, 0], "never negative"


def test_a_silence_ends_with_a_reception_or_an_answer_and_not_with_a_failure():
    """A deadline was over: of stopped servers it was said that they work again."""
    meter = METER(OFFLINE, clock=itertools.count(100.0).__next__)
    nothing = {"issued": 8, "receptions": 2, "completed": 2, "failed": 1}
    steps = [
        {"issued": 8},
        {"issued": 8, "receptions": 1, "completed": 1},  # an answer that is not streamed
        {"issued": 8, "receptions": 2, "completed": 2},
        nothing,
        nothing,
        nothing,
        {"issued": 3, "receptions": 2, "completed": 2, "failed": 1},  # all have ended
    ]
    assert [meter(counts(**step)).silent_s for step in steps] == [1, 0, 0, 1, 2, 3, 0]


def test_failures_show_their_kinds():
    failures = {FailureKind.CONNECT: 1, FailureKind.TIMEOUT: 5, FailureKind.ABORTED: 2, FailureKind.SEND: 1}
    shown = line(OFFLINE, 10, failures, issued=128, failed=9)
    assert "9 FAILED (timeout 5, aborted 2, connect 1)" in shown


def test_the_board_counts_failures_by_kind():
    board = CounterBoard(2)
    board.row(0)[FIRST_FAILURE + FailureKind.WORKER_LOST] = 3
    board.row(1)[FIRST_FAILURE + max(FailureKind)] = 1
    board.row(1)[FIRST_FAILURE + FailureKind.WORKER_LOST] += 1
    board.row(1)[Counter.FAILED] = 2
    assert board.failures() == {FailureKind.WORKER_LOST: 4, max(FailureKind): 1}
    assert board.totals().shape == (len(Counter),)
    assert board.totals()[Counter.FAILED] == 2
    board.row(0)[Counter.LONGEST_ANSWER], board.row(1)[Counter.LONGEST_ANSWER] = 7, 9
    assert board.totals()[Counter.LONGEST_ANSWER] == 9


def test_the_replicas_with_the_last_queries_are_named():
    """Once others have none, and no query waits to be sent."""
    loads = np.array([8, 8])
    meter = METER(RunLength(64), in_flight=lambda: loads, urls=("http://a:1", "http://b:1"), limited=True)
    assert meter(counts(issued=64, completed=16)).last_at == ""
    for left, ended, named in (([0, 8], 40, ""), ([2, 4], 58, ""), ([0, 8], 56, "http://b:1")):
        loads = np.array(left)
        assert meter(counts(issued=64, completed=ended)).last_at == named
