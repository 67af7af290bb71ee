"""The line of progress, on a terminal and in a log file."""

import io
import itertools
import re
import sys

import pytest
from msgspec.structs import replace

from harness.progress.progress_line import (
    Latencies,
    ProgressBar,
    ProgressPrinter,
    ProgressSnapshot,
    plain_progress,
    progress_bar,
)

SNAPSHOT = ProgressSnapshot(
    elapsed_s=75.4,
    issued=1200,
    completed=1000,
    failed=3,
    total=6396,
    tokens_per_s=51234.4,
    ttft_ns=85_340_000,
    tpot_ns=12_345_678,
    remaining_s=3725,
)
LINE = (
    "[1m15s] 1003/6396 done, 3 FAILED, 1h02m left, 197 in flight, 51234 tok/s, "
    "mean TTFT 85.34 ms, mean TPOT 12.35 ms"
)


class Terminal(io.StringIO):
    """A stream that is one."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (None, "197 in flight"),
        (64, "64 in flight, 133 waiting"),
        (197, "197 in flight"),
        (198, "197 in flight"),
    ],
)
def test_queries_that_wait_for_a_request_to_end_are_not_in_flight(sent, shown):
    line = plain_progress(replace(SNAPSHOT, sent=sent))
    assert line == LINE.replace("197 in flight", shown)


def test_a_slow_replica_is_named_on_the_line():
    slow, last = "STRAGGLER http://b:1 (TPOT 1.93 x)", "http://b:1"
    line = plain_progress(replace(SNAPSHOT, straggling=slow, last_at=last))
    assert line == LINE.replace("197 in flight", f"{slow}, 197 in flight, all at {last}")


def test_nothing_known_yet():
    assert plain_progress(ProgressSnapshot(0, 0, 0, 0)) == "[0s] 0/0 done, 0 in flight"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (200, LINE),
        (len(LINE) + 1, LINE),
        (len(LINE), LINE.removesuffix(", mean TPOT 12.35 ms")),
        (40, "[1m15s] 1003/6396 done, 3 FAILED"),
        (10, "[1m15s] 1"),
        (1, "["),
    ],
)
def test_the_line_of_a_terminal_fits_and_overwrites_the_one_before(width, text, monkeypatch):
    """One column stays free."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    show = ProgressPrinter()
    show(SNAPSHOT)
    show.end()
    show.end()
    assert screen.getvalue() == f"\r{text.ljust(max(width - 1, 1))}\n"


LOST = replace(SNAPSHOT, failed=0, lost="30 queries over the TTFT limit, at most 1 may be")
RANK = "dp_rank 1 of http://node1:30000 stands since 0:38"


@pytest.mark.parametrize("columns", [120, 70, 40])
def test_a_lost_run_is_seen_on_a_terminal_of_any_width(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    ProgressPrinter()(LOST)
    before, bold, rest = screen.getvalue().partition("\x1b[1m\x1b[31m")
    alarm, plain, after = rest.partition("\x1b[0m")
    assert (before, bool(bold), bool(plain)) == ("\r[1m15s] ", True, True)
    assert alarm == f"lost: {LOST.lost}"[: columns - 1 - len("[1m15s] ")]
    assert len(before) - 1 + len(alarm) + len(after) == columns - 1


def test_an_alarm_without_colour_is_bold(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    ProgressPrinter()(LOST)
    assert "\x1b[1mlost: " in screen.getvalue() and "\x1b[31m" not in screen.getvalue()


def test_a_dumb_terminal_has_lines(monkeypatch):
    """It shows a carriage return and the code of a colour as characters."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    ProgressPrinter()(LOST)
    assert screen.getvalue() == f"{plain_progress(LOST)}\n"


def test_alarms_stand_before_the_figures():
    line = plain_progress(replace(LOST, standing=RANK))
    assert line.startswith(f"[1m15s] lost: {LOST.lost}, {RANK}, 1000/6396 done, 1h02m left")
    failed = plain_progress(replace(SNAPSHOT, failures={"truncated": 3}, lost="3 queries failed (truncated)"))
    assert failed.startswith("[1m15s] lost: 3 queries failed (truncated), 1003/6396 done, 1h02m left")


def test_no_time_left_is_estimated_while_nothing_arrives():
    assert "no estimate: nothing has arrived for 40s" in plain_progress(replace(SNAPSHOT, silent_s=40.0))
    assert "no estimate" not in plain_progress(replace(SNAPSHOT, silent_s=20.0))


def test_percentiles_of_the_last_minute_take_the_place_of_means():
    line = plain_progress(replace(SNAPSHOT, ttft=Latencies(85.3, 990.0), tpot=Latencies(12.3, 20.0)))
    assert line.endswith("TTFT p50 85.30 p99 990.0 ms, TPOT p50 12.30 p99 20.00 ms")


def test_an_alarm_has_its_line_in_a_log_file_at_once(capsys):
    show = ProgressPrinter()
    for second in range(1, 9):
        lost = f"{second} queries over the TTFT limit, none may be" if second >= 3 else ""
        show(replace(SNAPSHOT, elapsed_s=second, lost=lost, standing=RANK if second >= 6 else ""))
    moments = [line[1 : line.index("]")] for line in capsys.readouterr().out.splitlines()]
    assert moments == ["3s", "6s"]


def test_a_log_file_gets_a_line_each_ten_seconds_at_first_and_then_each_minute(capsys):
    show = ProgressPrinter()
    for second in range(0, 200, 5):
        show(replace(SNAPSHOT, elapsed_s=second))
    moments = [line[1 : line.index("]")] for line in capsys.readouterr().out.splitlines()]
    assert moments == ["10s", "20s", "30s", "40s", "50s", "1m00s", "2m00s", "3m00s"]


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_bar_says_the_time_left(stream):
    clock = iter(range(0, 10_000, 61)).__next__
    with ProgressBar(stream, clock) as bar:
        for done in range(1, 5):
            bar.show(done, 4, "solutions")
    assert "2/4 solutions, 1m01s left" in stream.getvalue()
    last = stream.getvalue().replace("\r", "\n").splitlines()[-1]
    assert last.rstrip().endswith("4/4 solutions") and stream.getvalue().endswith("\n")


@pytest.mark.parametrize(
    ("stream", "step_s", "shown"),
    [(Terminal(), 0.125, "1 3 5 7 9 10"), (io.StringIO(), 25.0, "3 6 9")],
)
def test_a_bar_is_drawn_as_often_as_is_read(stream, step_s, shown):
    clock = itertools.count(0.0, step_s).__next__
    with ProgressBar(stream, clock) as bar:
        for done in range(1, 11):
            bar.show(done, 10, "solutions")
    assert re.findall(r"(\d+)/10 ", stream.getvalue()) == shown.split()


@pytest.mark.parametrize(
    ("done", "total", "bar"),
    [(0, 4, "[........]"), (1, 4, "[##......]"), (5, 4, "[########]"), (0, 0, "[........]")],
)
def test_a_bar_is_as_full_as_what_is_done(done, total, bar):
    assert progress_bar(done, total, 8) == bar


def test_a_bar_says_no_time_left_before_the_first_end():
    """A program of an answer may take minutes."""
    stream, clock = io.StringIO(), iter(range(0, 10_000, 61)).__next__
    with ProgressBar(stream, clock) as bar:
        for _ in range(3):
            bar.show(0, 4, "solutions")
    assert stream.getvalue() == "0/4 solutions\n" * 3
