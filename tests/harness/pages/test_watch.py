"""report.py watch and results: what they show of runs that last, have ended, or are damaged."""

import csv
import json
import os
import pty
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from harness.files import GRADING_PROGRESS, JOURNAL_DIR, PROGRESS, RUN_RECORD
from harness.grading.reports.progress import ProgressFile, read_grading
from harness.pages.cli import main
from harness.pages.results import COLUMNS
from harness.pages.watch import screen
from harness.report.live import ProgressLog
from tests.harness.pages import made
from tests.harness.report.test_live import LIMITS, append, snapshot
from tests.kit import PATIENCE_S
from tests.records import ENDED, with_plan
from tests.runs import ROOT

LASTING = replace(ENDED, verdict=None, ended=None)


@pytest.fixture
def lasting(tmp_path):
    """A run with a line of progress, and no end yet."""
    folder = tmp_path / "server/performance"
    (folder / JOURNAL_DIR).mkdir(parents=True)
    LASTING.write(folder / RUN_RECORD)
    append(folder, made.rows(900, slow=1))
    ProgressLog(folder, LIMITS, 900, made.REPLICAS)(snapshot(5.0, total=1000, remaining_s=65.0))
    return folder


def shown(folder, later_s=0.0, width=200):
    return "\n".join(screen(folder, datetime.now(UTC) + timedelta(seconds=later_s), width))


def test_the_screen_shows_a_run_that_lasts(lasting):
    text = shown(lasting)
    for part in ("802 of 1,000", "about 1m05s left", "in flight  98", "TTFT", "of at most", made.REPLICAS[1]):
        assert part in text
    assert "LOST" in text
    assert all(len(line) < 40 for line in shown(lasting, width=40).splitlines())


def test_a_silent_run_is_noticed(lasting):
    assert "NO LINE FOR 59s" in shown(lasting, later_s=60) or "NO LINE FOR 1m" in shown(lasting, later_s=60)


def test_a_run_without_a_line_yet(lasting):
    (lasting / PROGRESS).unlink()
    assert "no progress yet" in shown(lasting)


def test_watch_prints_lines_and_ends_with_the_run(lasting, capsys):
    """Into a pipe: the line that is there, then the verdict as soon as run.json has it."""
    watching = threading.Thread(target=main, args=(["watch", str(lasting.parents[1])],))
    watching.start()
    ENDED.write(lasting / RUN_RECORD)
    watching.join(PATIENCE_S)
    assert not watching.is_alive()
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"Result: {ENDED.verdict.result}")


def test_grading_is_shown_until_it_ends(lasting):
    ENDED.write(lasting / RUN_RECORD)
    command = [sys.executable, ROOT / "report.py", "watch", lasting.parents[1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        with ProgressFile(lasting) as grading:
            grading.show(30, 120, "outputs")
            assert "30 of 120 outputs" in shown(lasting)
            assert f"Result: {ENDED.verdict.result}" in shown(lasting)
            assert "no step for" in shown(lasting, later_s=60)
            assert "outputs" not in shown(lasting, later_s=3600)  # its evaluator was killed
            assert any("30/120 outputs" in line for line in watching.stdout)
            made.score(lasting)
        assert watching.stdout.read().rstrip().endswith("exact_match 83.200")


def test_the_file_of_grading_is_replaced_now_and_then(tmp_path, caplog):
    moments = iter([0.0, 1.0, 2.5, 2.6, 9.0])
    with ProgressFile(tmp_path, lambda: next(moments)) as file:
        seen = []
        for done, stage in ((1, "a"), (2, "a"), (3, "a"), (1, "b")):
            file.show(done, 9, stage)
            seen.append((read_grading(tmp_path).done, read_grading(tmp_path).stage))
        assert seen == [(1, "a"), (1, "a"), (3, "a"), (1, "b")]
        (tmp_path / GRADING_PROGRESS).write_text("{}")
        assert read_grading(tmp_path) is None
        (tmp_path / f"{GRADING_PROGRESS}.partial").mkdir()
        for _ in range(2):  # the clock is asked once
            file.show(2, 9, "b")
    assert len(caplog.records) == 1
    assert not (tmp_path / GRADING_PROGRESS).exists()


@pytest.mark.parametrize("leave", [b"q", None])
def test_watch_on_a_terminal_ends_by_q_or_with_the_run(lasting, leave):
    ours, theirs = pty.openpty()
    command = [sys.executable, ROOT / "report.py", "watch", lasting]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as watching:
        os.close(theirs)
        seen = b""
        while b"in flight" not in seen:
            seen += os.read(ours, 4096)
        if leave:
            os.write(ours, leave)
        else:
            ENDED.write(lasting / RUN_RECORD)
        try:
            while piece := os.read(ours, 4096):
                seen += piece
        except OSError:  # the terminal's other end is closed
            pass
        assert watching.wait(PATIENCE_S) == 0
    os.close(ours)
    assert seen.rstrip().endswith(b"\x1b[?25h") or b"\x1b[?25h" in seen  # the cursor is back
    assert (b"Result: " in seen) is (leave is None)


@pytest.mark.parametrize("words", [("watch", "."), ("watch", "none"), ("results", "."), ("results", "none")])
def test_a_folder_without_a_run_is_one_line(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(list(words)) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_results_lists_every_run(tmp_path, capsys):
    made.folder(tmp_path / "a", made.rows(20))
    made.folder(tmp_path / "b", made.rows(20), with_plan(LASTING, mode="accuracy"))
    metric = {"exact_match": {"value": 83.1234, "lowest": 84.0, "highest": None, "met": False}}
    made.score(tmp_path / "b", target={"mode": "official", "met": False, "metrics": metric})
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / RUN_RECORD).write_text('{"schema": 1')
    table = tmp_path / "table.csv"
    assert main(["results", str(tmp_path), "--csv", str(table)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    rows = {row["folder"][-1]: row for row in csv.DictReader(table.open())}
    assert tuple(rows["a"]) == COLUMNS
    assert rows["a"]["result"] == f"{ENDED.verdict.result}, NOT OFFICIAL"
    assert rows["b"]["figure"] == "exact_match 83.123 (NOT met)"
    assert rows["b"]["result"].startswith("not ended")
    assert rows["c"]["result"] == "damaged run.json"
    assert main(["results", str(tmp_path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
