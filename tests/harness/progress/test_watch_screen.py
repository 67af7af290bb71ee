"""report.py watch: what it shows of runs that last, are graded, or have ended."""

import logging
import os
import pty
import shutil
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from harness.analysis.early_stopping import most_over_limit
from harness.files import GRADING_PROGRESS, JOURNAL_DIR, PROGRESS, RUN_RECORD
from harness.progress import watch_screen
from harness.progress.lost_run import LostWatch, ValidityRules
from harness.progress.progress_files import ProgressFile, ProgressLog, read_grading, read_progress
from harness.progress.progress_line import plain_progress
from harness.progress.watch_screen import Ages, plain, read_state, screen, watch
from tests import records
from tests.harness.progress.test_progress_files import LIMITS, append, snapshot
from tests.kit import wait_until
from tests.records import ENDED

LASTING = replace(ENDED, verdict=None, ended=None)


RULES = ValidityRules(LIMITS, most_over_limit(900))


def written(folder, seen):
    """The line of progress.jsonl."""
    log = ProgressLog(folder, RULES, records.REPLICAS)
    log(seen)
    log.close()
    return log.last


@pytest.fixture
def lasting(tmp_path):
    """A run with a line of progress, and no end yet."""
    folder = tmp_path / "server/performance"
    (folder / JOURNAL_DIR).mkdir(parents=True)
    LASTING.write(folder / RUN_RECORD)
    append(folder, records.rows(900, slow=1))
    written(folder, snapshot(5.0, total=1000, remaining_s=65.0, tokens_per_s=1234.4))
    return folder


def shown(folder, later_s=0.0, width=200):
    return "\n".join(screen(read_state(folder, datetime.now(UTC) + timedelta(seconds=later_s)), width))


def test_the_screen_shows_a_run_that_lasts(lasting):
    text = shown(lasting)
    for part in (
        "802 of 1,000",
        ", 1m05s left",
        "98 in flight, 1,234 tokens/s",
        "TTFT     p50 ",
        records.REPLICAS[1],
    ):
        assert part in text
    narrow = shown(lasting, width=40).splitlines()
    assert all(len(line) < 40 for line in narrow)
    assert "".join("".join(narrow).split()) == "".join(shown(lasting).split())  # wrapped, not cut


def test_alarms_come_before_the_figures(lasting):
    standing = "dp_rank 1 of http://a:1 stands since 0:38"
    alarm = snapshot(5.5, lost="30 queries over the TTFT limit, at most 3 may be", standing=standing)
    alarm = replace(alarm, silent_s=40.0)
    written(lasting, alarm)  # at once, not after five seconds
    text = shown(lasting)
    assert text.index("LOST: 30 queries over the TTFT limit") < text.index(standing) < text.index("in flight")
    assert "no estimate: nothing has arrived for 40s" in text


def test_only_what_loses_a_run_is_called_lost(lasting):
    """LoadGen's TPOT can be a little less than this client's: the alarm counts what is over it surely."""
    rows = records.rows()
    rows["first_token_ns"] = rows["issued_ns"] + 10**8
    rows["osl"], rows["last_byte_ns"] = 101, rows["first_token_ns"] + 100 * LIMITS["TPOT"] + 10**7
    (lasting / JOURNAL_DIR / "queries-0.bin").unlink()
    append(lasting, rows)
    seen = replace(snapshot(5.0, failed=0), first_tokens=900)
    written(lasting, replace(seen, lost=LostWatch(lasting, RULES).look(seen)))
    text = shown(lasting)
    assert "900 over 45 ms, at most" in text
    assert "LOST" not in text


def test_a_silent_run_and_one_without_a_line_yet(lasting):
    assert "NO LINE FOR 1" in shown(lasting, later_s=90)  # 1m30s
    (lasting / PROGRESS).unlink()
    assert "no progress yet" in shown(lasting)
    assert shown(lasting).endswith("q leaves; the run continues")


def test_queries_that_wait_to_be_sent_are_not_in_flight(lasting):
    """An Offline run issues all its queries at once; 64 of them are at the servers here."""
    offline = replace(snapshot(10.0, total=1000, remaining_s=62.0), issued=900, sent=64)
    line = written(lasting, offline)
    assert "64 in flight, 34 waiting" in shown(lasting)
    assert "802/1000 done" in plain(line)
    assert ", 1m02s left, 64 in flight, 34 waiting" in plain(line)


def test_the_servers_with_the_last_queries_are_named(lasting):
    line = written(lasting, replace(snapshot(10.0), last_at="http://b:1"))
    assert "98 in flight, all at http://b:1" in shown(lasting)
    assert "98 in flight, all at http://b:1" in plain(line)


def test_a_pipe_gets_the_line_of_the_run_itself(lasting):
    """With the figures that progress.jsonl has: not the means of the run, nor what the servers make."""
    seen = snapshot(10.0, lost="2 queries failed (timeout)", failures={"timeout": 2}, imbalance=1.25)
    last = written(lasting, seen)
    assert plain(last) == plain_progress(replace(seen, ttft=last.ttft, tpot=last.tpot))
    assert "lost: 2 queries failed (timeout), 802/900 done, 98 in flight" in plain(last)


@pytest.fixture
def watched(monkeypatch):
    """A function that watches a folder in a thread, on a pipe or terminal that it closes at the end."""

    def start(folder, descriptor):
        stdin, stdout = os.fdopen(os.dup(descriptor)), os.fdopen(descriptor, "w")
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)

        def follow():
            with stdin, stdout:
                watch(folder, look_s=0.02)

        threading.Thread(target=follow, daemon=True).start()

    return start


def test_a_pipe_gets_lines_until_the_run_and_its_grading_end(lasting, watched):
    ours, theirs = os.pipe()
    watched(lasting.parents[1], theirs)
    with os.fdopen(ours) as lines:
        assert lines.readline() == f"{lasting}\n"  # the newest of those below the folder
        assert "802/1000 done" in lines.readline()
        with ProgressFile(lasting) as grading:
            grading.show(30, 120, "outputs")
            ENDED.write(lasting / RUN_RECORD)
            assert "30 of 120 outputs" in shown(lasting)
            assert f"Result: {ENDED.verdict.result}" in shown(lasting)
            assert "no step for" in shown(lasting, later_s=60)
            assert "outputs" not in shown(lasting, later_s=3600)  # its evaluator was killed
            assert "30/120 outputs" in lines.readline()
            records.score(lasting)
        (result,) = lines
    assert result.startswith(f"Result: {ENDED.verdict.result}, NOT OFFICIAL: ")
    assert result.endswith("exact_match 83.2000\n")


def test_a_pipe_gets_no_line_of_a_run_that_has_ended(lasting):
    """Where the grading ended between two looks, the run's last line came once more."""
    assert "802/1000 done" in watch_screen._plain_state(read_state(lasting, datetime.now(UTC)))
    ENDED.write(lasting / RUN_RECORD)
    assert watch_screen._plain_state(read_state(lasting, datetime.now(UTC))) == ""


def test_the_warnings_of_the_run_are_shown_and_a_pipe_gets_each_once(lasting, watched):
    texts = [f"replica out of use: http://node{number}:1" for number in range(7)]
    log = ProgressLog(lasting, RULES, records.REPLICAS)
    for text in texts[:6]:
        logging.getLogger("mlperf").warning("warning: %s", text)
    log(snapshot(65.0, total=1000))
    ours, theirs = os.pipe()
    wait_until(lambda: "6 warnings, all in the output of the run, unless it has " in shown(lasting))
    assert [text in shown(lasting) for text in texts] == [False, True, True, True, True, True, False]
    watched(lasting, theirs)
    with os.fdopen(ours) as lines:
        assert lines.readline() == f"{lasting}\n"
        assert [lines.readline() for _ in range(5)] == [f"  [1:05] {text}\n" for text in texts[1:6]]
        assert "802/1000 done" in lines.readline()
        logging.getLogger("mlperf").warning("warning: %s", texts[6])
        log(snapshot(66.0, completed=801))
        assert after_progress(lines) == f"  [1:06] {texts[6]}\n"
        log.close()
        (lasting / PROGRESS).rename(lasting / "of_the_run_before")
        log = ProgressLog(lasting, RULES, records.REPLICAS)
        logging.getLogger("mlperf").warning("warning: %s", texts[0])
        log(snapshot(5.0, completed=2))
        assert after_progress(lines) == f"  [0:05] {texts[0]}\n"
        log.close()
        ENDED.write(lasting / RUN_RECORD)
        assert after_progress(lines).startswith("Result: ")


def after_progress(lines):
    """The first line that is none of progress: which of two comes first depends on the moment of a look."""
    return next(line for line in lines if " done" not in line)


def test_a_pipe_gets_the_last_warning_of_a_run(lasting, capsys):
    """The line that has it comes with the verdict, such as where the run was ended because it was lost."""
    log = ProgressLog(lasting, RULES, records.REPLICAS)
    log(snapshot(65.0))
    logging.getLogger("mlperf").warning("lost: 30 queries over the TTFT limit; lower target_qps")
    log(snapshot(66.0))
    log.close()
    ENDED.write(lasting / RUN_RECORD)
    watch(lasting)
    _, warning, result = capsys.readouterr().out.splitlines()
    assert warning == "  [1:06] lost: 30 queries over the TTFT limit; lower target_qps"
    assert result.startswith("Result: ")


def test_a_pipe_gets_a_line_that_the_run_gives_none(lasting, watched, monkeypatch):
    """Of a run that was killed nothing else comes, for ever."""
    ours, theirs = os.pipe()
    late = SimpleNamespace(s=0.0)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + late.s, sleep=time.sleep)
    monkeypatch.setattr(watch_screen, "time", later)
    watched(lasting, theirs)
    with os.fdopen(ours) as lines:
        lines.readline()
        assert "802/1000 done" in lines.readline()
        for late.s, said in ((20.0, "15s"), (70.0, "1m00s"), (190.0, "3m00s")):
            assert lines.readline().startswith(f"NO LINE FOR {said}: the run was killed or suspended")
        ENDED.write(lasting / RUN_RECORD)
        assert lines.readline().startswith("Result: ")


def test_a_wall_clock_that_is_set_makes_no_silence(lasting):
    """A step by an hour was `NO LINE FOR 1h00m`, and the end of a watch of rows."""
    ages, hour = Ages(), timedelta(hours=1)
    with ProgressFile(lasting) as grading:
        grading.show(30, 120, "outputs")
        for step in (timedelta(), hour, -hour, hour):
            state = read_state(lasting, datetime.now(UTC) + step, ages)
            assert max(state.silent_s, state.no_step_s) < watch_screen._SILENT_S
            assert state.grading is not None


def test_a_run_without_a_record_ends_with_its_lines_or_its_folder(lasting, watched):
    """Rows, ladders and points of a curve write no run.json; complete rows leave no folder."""
    (lasting / RUN_RECORD).unlink()
    assert read_state(lasting, datetime.now(UTC)).ended == "Ended"
    not_the_last = replace(read_progress(lasting / PROGRESS), ended=False)
    (lasting / PROGRESS).write_bytes(msgspec.json.encode(not_the_last) + b"\n")
    assert read_state(lasting, datetime.now(UTC)).ended == ""
    assert "\nEnded, killed or suspended: no line for 20s" in shown(lasting, later_s=20)
    ours, theirs = os.pipe()
    watched(lasting, theirs)
    with os.fdopen(ours) as lines:
        assert lines.readline() == f"{lasting}\n"
        assert "802/1000 done" in lines.readline()
        shutil.rmtree(lasting)
        assert lines.readline() == "Ended: the folder is gone\n"


def test_the_file_of_grading_is_replaced_now_and_then(tmp_path, caplog):
    moments = iter([0.0, 1.0, 2.5, 2.6, 9.0])
    with ProgressFile(tmp_path, lambda: next(moments)) as file:
        seen = []
        for done, stage in ((1, "a"), (2, "a"), (3, "a"), (1, "b")):
            file.show(done, 9, stage)
            seen.append((read_grading(tmp_path).done, read_grading(tmp_path).stage))
        assert seen == [(1, "a"), (1, "a"), (3, "a"), (1, "b")]
        for content in (b"{}", b'{"stage": "\xff"}'):
            (tmp_path / GRADING_PROGRESS).write_bytes(content)
            assert read_grading(tmp_path) is None
        (tmp_path / f"{GRADING_PROGRESS}.partial").mkdir()
        for _ in range(2):  # the clock is asked once
            file.show(2, 9, "b")
    assert len(caplog.records) == 1
    assert not (tmp_path / GRADING_PROGRESS).exists()


@pytest.mark.parametrize("leave", [b"q", None])
def test_watch_on_a_terminal_ends_by_q_or_with_the_run(lasting, watched, leave):
    ours, theirs = pty.openpty()
    watched(lasting, theirs)
    seen = b""
    while b"in flight" not in seen:
        seen += os.read(ours, 4096)
    if leave:
        os.write(ours, leave)
    else:
        ENDED.write(lasting / RUN_RECORD)
    with suppress(OSError):  # the terminal's other end is closed
        while piece := os.read(ours, 4096):
            seen += piece
    os.close(ours)
    assert b"\x1b[?25h" in seen  # the cursor is back
    assert (b"Result: " in seen) is (leave is None)


def test_a_terminal_of_few_lines_keeps_the_first_ones_and_the_newest_warning(lasting, watched, monkeypatch):
    """Five warnings of some lines each made the bar and LOST scroll away."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "30")
    log = ProgressLog(lasting, RULES, records.REPLICAS)
    for number in range(5):
        logging.getLogger("mlperf").warning("replica out of use: http://node%d:1 %s", number, "why " * 100)
    log(snapshot(65.0, lost="30 queries over the TTFT limit"))
    log.close()
    ours, theirs = pty.openpty()
    watched(lasting, theirs)
    seen = b""
    while b"the run continues" not in seen:
        seen += os.read(ours, 4096)
    os.write(ours, b"q")
    with suppress(OSError):  # the terminal's other end is closed
        while os.read(ours, 4096):
            pass
    os.close(ours)
    lines = seen.decode().split(watch_screen._CLEAR)[1].splitlines()
    assert len(lines) == 30
    assert lines[0] == LASTING.plan.title and any(line.startswith("LOST: ") for line in lines)
    assert any("http://node4:1" in line for line in lines) and not any("node0" in line for line in lines)
    assert lines[-1].startswith("q leaves; the run continues")
