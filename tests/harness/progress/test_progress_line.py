"""The line of progress, on a terminal and in a log file."""

import io
import sys
from dataclasses import replace

import pytest

from harness.progress.progress_line import ProgressBar, ProgressPrinter, ProgressSnapshot, plain_progress

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
    "[1m15s] 1003/6396 done, 3 FAILED, 1h02m left, 197 in flight, 51234 tok/s, TTFT 85.34 ms, TPOT 12.35 ms"
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


def test_nothing_known_yet():
    assert plain_progress(ProgressSnapshot(0, 0, 0, 0)) == "[0s] 0/0 done, 0 in flight"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (200, LINE),
        (len(LINE) + 1, LINE),
        (len(LINE), LINE.removesuffix(", TPOT 12.35 ms")),
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
    assert "2/4 solutions, about 1 min 01 s left" in stream.getvalue()
    last = stream.getvalue().replace("\r", "\n").splitlines()[-1]
    assert last.rstrip().endswith("4/4 solutions") and stream.getvalue().endswith("\n")
