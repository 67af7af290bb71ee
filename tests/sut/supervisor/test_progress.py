"""The progress line's total, time left, rate and failures, from counters and a clock that the test moves."""

import numpy as np
import pytest

from harness.config.expected_queries import Issue
from harness.record.outcome import FailureKind
from sut.ipc.counters import FIRST_FAILURE, Counter, CounterBoard
from sut.supervisor.progress import ProgressPrinter

SERVER = Issue(640, 64, exact=True, seconds=64.0, scheduled=True)
OFFLINE = Issue(128, 64, exact=True, seconds=12.8)
SINGLE_STREAM = Issue(64, 64, exact=False, seconds=6.4, least_s=60.0)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def counts(**values):
    totals = np.zeros(len(Counter), dtype=np.int64)
    for name, value in values.items():
        totals[Counter[name.upper()]] = value
    return totals


def line(capsys, issue, elapsed, failures=None, **values):
    clock = Clock()
    printer = ProgressPrinter(issue, lambda: failures or {}, clock)
    clock.now += elapsed
    printer(counts(**values))
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("issue", "elapsed", "values", "expected"),
    [
        # the schedule's rest and the answers to what is in flight, never less than that
        (SERVER, 10, {"issued": 110, "completed": 100}, ["100/640 done", "55s left"]),
        (SERVER, 60, {"issued": 600, "completed": 590}, ["590/640 done", "5s left"]),
        (SERVER, 70, {"issued": 640, "completed": 350}, ["350/640 done", "58s left"]),
        (SERVER, 10, {"issued": 100}, ["0/640 done", "54s left"]),
        (SERVER, 10, {"issued": 100, "completed": 5}, ["5/640 done", "54s left"]),
        (SERVER, 70, {"issued": 640, "completed": 7}, ["7/640 done", "1h45m left"]),
        (OFFLINE, 10, {"issued": 128, "completed": 16}, ["16/128 done", "1m10s left"]),
        (OFFLINE, 10, {"issued": 128, "completed": 40, "failed": 24}, ["64/128 done", "10s left"]),
        # answers of an earlier attempt took no time
        (OFFLINE, 10, {"issued": 128, "completed": 96, "resumed": 64}, ["96/128 done", "10s left"]),
        (SINGLE_STREAM, 10, {"issued": 51, "completed": 50}, ["50/64 done", "50s left"]),
        (SINGLE_STREAM, 50, {"issued": 11, "completed": 10}, ["10/64 done", "4m30s left"]),
        (SINGLE_STREAM, 70, {"issued": 90, "completed": 89}, ["89/90 done", "0s left"]),
    ],
)
def test_total_and_time_left(capsys, issue, elapsed, values, expected):
    shown = line(capsys, issue, elapsed, **values)
    for part in expected:
        assert f" {part}" in shown


def test_offline_knows_no_time_before_the_first_answer(capsys):
    assert "left" not in line(capsys, OFFLINE, 10, issued=128)


def test_tokens_count_as_they_come(capsys):
    clock = Clock()
    printer = ProgressPrinter(OFFLINE, clock=clock)
    for _ in range(30):
        clock.now += 1
        printer(counts(issued=128, partial_tokens=int(clock.now - 100) * 50))
    rates = [row for row in capsys.readouterr().out.splitlines() if "tok/s" in row]
    assert len(rates) == 3
    assert all("50 tok/s" in row for row in rates)


def test_the_rate_is_that_of_the_last_seconds(capsys):
    clock = Clock()
    printer = ProgressPrinter(OFFLINE, clock=clock)
    for second in range(1, 31):
        clock.now += 1
        printer(counts(issued=128, output_tokens=min(second, 10) * 100))
    rates = [row.split(" tok/s")[0].split()[-1] for row in capsys.readouterr().out.splitlines()]
    assert rates == ["100", "0", "0"]


def test_tokens_of_a_failed_answer_make_no_negative_rate(capsys):
    clock = Clock()
    printer = ProgressPrinter(OFFLINE, clock=clock)
    clock.now += 9
    printer(counts(issued=128, partial_tokens=500))
    clock.now += 15
    printer(counts(issued=128, failed=1))
    assert ", 0 tok/s" in capsys.readouterr().out


def test_failures_show_their_kinds(capsys):
    failures = {FailureKind.CONNECT: 1, FailureKind.TIMEOUT: 5, FailureKind.ABORTED: 2, FailureKind.SEND: 1}
    shown = line(capsys, OFFLINE, 10, failures, issued=128, failed=9)
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
