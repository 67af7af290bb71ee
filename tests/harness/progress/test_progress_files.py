"""progress.jsonl: its figures, what happens to it on a full disk, and who reads it."""

import errno
import json
import logging
import os
import shutil
import threading

import msgspec
import numpy as np
import pytest

from harness.analysis import answer_lengths
from harness.analysis.early_stopping import most_over_limit
from harness.files import GRADING_PROGRESS, JOURNAL_DIR, PROGRESS
from harness.progress.lost_run import ValidityRules
from harness.progress.progress_files import (
    JournalTail,
    PrintedWarning,
    ProgressFile,
    ProgressLine,
    ProgressLog,
    read_progress,
)
from harness.progress.progress_line import ProgressSnapshot
from harness.record import journal
from harness.record.journal import QUERY_ROW
from harness.record.outcome import Failure, FailureKind
from sut.worker.journal_writer import JournalWriter
from tests import records
from tests.kit import wait_until

LIMITS = {"TTFT": 600_000_000, "TPOT": 45_000_000}


def snapshot(elapsed_s, **fields):
    return ProgressSnapshot(elapsed_s=elapsed_s, **{"issued": 900, "completed": 800, "failed": 2} | fields)


def append(folder, rows, worker=0):
    with (folder / JOURNAL_DIR / f"queries-{worker}.bin").open("ab") as file:
        file.write(rows.tobytes())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / JOURNAL_DIR).mkdir()
    return tmp_path


@pytest.fixture
def progress(folder):
    log = ProgressLog(folder, ValidityRules(LIMITS, most_over_limit(900)), records.REPLICAS)
    yield log
    log.close()  # what it still writes is not the next test's


def test_a_line_has_the_figures_of_the_journal(folder, progress):
    rows = records.rows(slow=2)
    append(folder, rows[:500])
    append(folder, rows[500:], worker=1)
    progress(snapshot(5.0, total=1000, tokens_per_s=12.34, failures={"timeout": 2}))
    progress.close()
    line = read_progress(folder / PROGRESS)
    assert (line.issued, line.in_flight, line.total, line.failures) == (900, 98, 1000, {"timeout": 2})
    assert (line.elapsed_s, line.tokens_per_s) == (5.0, 12.3)
    ttft = np.sort(rows["first_token_ns"] - rows["issued_ns"])
    assert line.ended_last_minute == 900
    assert line.ttft.p50_ms == pytest.approx(ttft[450] / 1e6)
    assert line.ttft.p99_ms == pytest.approx(ttft[891] / 1e6)
    tpot = (rows["last_byte_ns"] - rows["first_token_ns"]) / (rows["osl"] - 1)
    assert line.tpot.p50_ms == pytest.approx(np.median(tpot) / 1e6, rel=0.01)
    assert line.over_limit["TTFT"].queries == (ttft > LIMITS["TTFT"]).sum()
    assert line.over_limit["TPOT"].queries == 300
    assert line.over_limit["TPOT"].most == most_over_limit(900)
    assert line.slowest[0].url == records.REPLICAS[2]
    slow = np.median(tpot[rows["replica"] == 2])
    assert line.slowest[0].tpot_p50_ms == pytest.approx(slow / 1e6, rel=0.01)
    assert line.slowest[0].ratio == pytest.approx(1.3, rel=0.01)


def test_lines_come_each_five_seconds_and_forget_after_a_minute(folder, progress):
    append(folder, records.rows(100))
    for second in range(1, 71):
        progress(snapshot(float(second)))
    progress.close()
    lines = (folder / PROGRESS).read_text().splitlines()
    counts = [json.loads(line)["ended_last_minute"] for line in lines]
    assert counts == [100] * 12 + [0] * 3  # the last one is there again, as that
    assert [json.loads(line)["ended"] for line in lines] == [False] * 14 + [True]
    assert read_progress(folder / PROGRESS).over_limit["TTFT"].queries > 0  # since the run began


def test_the_last_line_has_the_end_of_the_run(folder, progress):
    """It was up to five seconds older: a monitor showed 434 of 484 queries of a run that had all."""
    for second, completed in ((5.0, 500), (8.0, 800), (9.5, 898)):
        progress(snapshot(second, completed=completed))
    append(folder, records.rows(100))
    progress.close()
    lines = [json.loads(line) for line in (folder / PROGRESS).read_text().splitlines()]
    assert [(line["elapsed_s"], line["completed"]) for line in lines] == [(5.0, 500), (9.5, 898)]
    assert (lines[-1]["in_flight"], lines[-1]["ended_last_minute"]) == (0, 100)
    assert [line["ended"] for line in lines] == [False, True]


def test_tokens_that_come_in_pieces_are_a_warning_at_once(folder, progress, caplog):
    rows = records.rows(100)
    rows["osl"], rows["first_event_tokens"] = 100, 22
    append(folder, rows[:19])
    progress(snapshot(5.0))
    assert not caplog.records  # so few may be chance
    append(folder, rows[19:])
    for second in (10.0, 15.0):
        progress(snapshot(second))
    (line,) = caplog.messages
    assert "100 of 100 answers came in pieces, the first one with 22 tokens" in line


def too_many_files(*_):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("may_fail", [True, False])
def test_a_first_failure_that_loses_no_run_is_told_with_its_cause(folder, caplog, monkeypatch, may_fail):
    """Of an accuracy run or a point there was its kind: ``9 FAILED (http_status 9)``, until the end."""
    log = ProgressLog(folder, ValidityRules(), records.REPLICAS, may_fail=may_fail)
    log(snapshot(5.0, failed=0))
    log(snapshot(10.0, failed=2, failures={"http_status": 2}))
    assert caplog.messages == []  # not on disk yet
    writer = JournalWriter(folder / JOURNAL_DIR, "0", 0)
    writer.add(1, 1, 1, (1, 2, 0, 0, 0), 1, 0, Failure(FailureKind.HTTP_STATUS, "HTTP 502: Bad Gateway"))
    writer.flush()
    with monkeypatch.context() as patch:
        patch.setattr(journal, "intact_lines", too_many_files)
        log(snapshot(15.0, failed=2, failures={"http_status": 2}))
    for second in (20.0, 25.0):
        log(snapshot(second, failed=3, failures={"http_status": 3}))
    log.close()
    told = (
        f"warning: 3 queries failed (http_status); the first, at {records.REPLICAS[1]}: HTTP 502: Bad "
        "Gateway; a gateway reaches no server behind it"
    )
    assert caplog.messages == [told] * may_fail


def test_the_lengths_of_answers_are_judged_while_the_run_lasts(folder, caplog, monkeypatch):
    """Sent are those at the servers, where their number has a limit, and those that have ended."""
    monkeypatch.setattr(answer_lengths, "_QUIET_NS", 0)
    rows = records.rows(1000)
    rows["sent_ns"] = 1
    replicas = len(records.REPLICAS)
    fewest = 2 * answer_lengths.FEWEST_LENGTHS * replicas
    watch = answer_lengths.LengthWatch(records.REPLICAS, lambda mean, answers: f"{answers} are short")
    log = ProgressLog(folder, ValidityRules(), records.REPLICAS, lengths=watch)
    seen = [0]
    for second, ended, sent in ((5.0, fewest - 60, 20), (10.0, fewest - 20, 20), (15.0, fewest, 20)):
        append(folder, rows[seen[-1] : ended])
        seen.append(ended)
        log(snapshot(second, issued=1000, completed=ended, failed=0, sent=sent))
        assert bool(caplog.messages) == (second > 10)
    log.close()
    assert caplog.messages == [f"warning: by the first {fewest} answers: {fewest} are short"]


def test_what_the_terminal_warns_of_is_in_the_next_line(folder, progress):
    """`report watch` of another host showed no warning but that a rank stands, or that the run is lost."""
    log = logging.getLogger("mlperf")
    progress(snapshot(5.0))
    log.info("the trial took 2 s")
    progress(snapshot(6.0))
    thread = threading.Thread(target=log.warning, args=("warning: no metrics of %s", "http://a:1\n"))
    thread.start()
    thread.join()
    for second in (7.0, 8.0):
        progress(snapshot(second))
    for number in range(5):
        log.warning("replica out of use: %d", number)
    progress(snapshot(9.0))
    progress.close()
    log.warning("of the next run")
    lines = [
        msgspec.json.decode(line, type=ProgressLine) for line in (folder / PROGRESS).read_bytes().splitlines()
    ]
    assert [(line.elapsed_s, line.warned) for line in lines] == [(5.0, 0), (7.0, 1), (9.0, 6), (9.0, 6)]
    assert lines[1].warnings == (PrintedWarning(7.0, r"no metrics of http://a:1\n"),)
    assert [one.text[-1] for one in lines[2].warnings] == list("01234")


def test_a_tail_takes_complete_rows_once(folder):
    tail, data = JournalTail(folder / JOURNAL_DIR), records.rows(10).tobytes()
    path = folder / JOURNAL_DIR / "queries-0.bin"
    path.write_bytes(data[: 3 * QUERY_ROW.itemsize + 7])
    assert len(tail.read()) == 3
    path.write_bytes(data)
    assert tail.read()["query_id"].tolist() == list(range(3, 10))
    assert len(tail.read()) == 0


def test_a_disk_that_is_full_costs_the_lines_alone(folder, progress, caplog):
    (folder / PROGRESS).symlink_to("/dev/full")
    for second in (5.0, 10.0, 15.0):
        progress(snapshot(second))
    progress.close()
    assert caplog.messages == [
        f"warning: no more lines of progress: {folder / PROGRESS}: No space left on device; "
        "free space there or choose another folder"
    ]


def test_a_file_that_cannot_be_opened_is_named_once(folder, progress, caplog):
    shutil.rmtree(folder)
    progress(snapshot(5.0))
    progress.close()
    (line,) = caplog.messages
    words = f"warning: no more lines of progress: {folder / PROGRESS}: No such file or directory; "
    assert line.startswith(words)
    ProgressFile(folder).show(1, 2, "decoding")
    assert caplog.messages[1].startswith(
        f"warning: no progress is written: {folder / GRADING_PROGRESS}.partial: No such file or directory; "
    )


def test_a_disk_that_stands_holds_up_no_line_that_is_shown(folder):
    os.mkfifo(folder / PROGRESS)  # open() waits for a reader
    shown = []
    progress = ProgressLog(
        folder, ValidityRules(LIMITS, most_over_limit(900)), records.REPLICAS, shown.append
    )
    assert progress.waits_ns == 0
    for second in (5.0, 10.0):
        progress(snapshot(second))
    wait_until(lambda: progress.waits_ns > 0)
    assert [line.elapsed_s for line in shown] == [5.0, 10.0]
    reader = os.open(folder / PROGRESS, os.O_RDWR)  # the disk is back
    progress.close()
    lines = os.read(reader, 1 << 16).splitlines()
    os.close(reader)
    assert ([json.loads(line)["elapsed_s"] for line in lines], progress.waits_ns) == ([5.0, 10.0, 10.0], 0)


def test_a_line_that_is_being_written_is_not_read(folder, progress):
    progress(snapshot(5.0))
    progress.close()
    with (folder / PROGRESS).open("ab") as file:
        file.write(b'{"time": "2026-')
    assert read_progress(folder / PROGRESS).elapsed_s == 5.0
    with (folder / PROGRESS).open("ab") as file:
        file.write(b'"}\n{"lost": "\xff"}\n')  # bytes that are no text, as a torn write or a disk leaves them
    assert read_progress(folder / PROGRESS).elapsed_s == 5.0
    (folder / PROGRESS).write_bytes(b"\x00broken\n{}\n")
    assert read_progress(folder / PROGRESS) is None
