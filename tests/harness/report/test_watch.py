"""report.py watch and results: what they show of runs that last, have ended, or are damaged."""

import csv
import json
import os
import pty
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from harness.files import GRADING_PROGRESS, JOURNAL_DIR, PROGRESS, RUN_RECORD
from harness.grading.reports.grading_progress import ProgressFile, read_grading
from harness.report.cli import main
from harness.report.progress_log import ProgressLog
from harness.report.runs_table import COLUMNS
from harness.report.watch import screen
from tests.harness.report import made
from tests.harness.report.test_progress_log import LIMITS, append, snapshot
from tests.records import ENDED, with_plan

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


def test_a_silent_run_and_one_without_a_line_yet(lasting):
    assert "NO LINE FOR 1" in shown(lasting, later_s=90)  # 1m30s
    (lasting / PROGRESS).unlink()
    assert "no progress yet" in shown(lasting)


@pytest.fixture
def watch(monkeypatch):
    """A function that watches a folder in a thread, on a pipe or terminal that it closes at the end."""
    monkeypatch.setattr("harness.report.watch._LOOK_S", 0.02)

    def start(folder, descriptor):
        stdin, stdout = os.fdopen(os.dup(descriptor)), os.fdopen(descriptor, "w")
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stdout", stdout)

        def follow():
            with stdin, stdout:
                main(["watch", str(folder)])

        threading.Thread(target=follow, daemon=True).start()

    return start


def test_a_pipe_gets_lines_until_the_run_and_its_grading_end(lasting, watch):
    ours, theirs = os.pipe()
    watch(lasting.parents[1], theirs)
    with os.fdopen(ours) as lines:
        assert "802/1000 done" in lines.readline()
        with ProgressFile(lasting) as grading:
            grading.show(30, 120, "outputs")
            ENDED.write(lasting / RUN_RECORD)
            assert "30 of 120 outputs" in shown(lasting)
            assert f"Result: {ENDED.verdict.result}" in shown(lasting)
            assert "no step for" in shown(lasting, later_s=60)
            assert "outputs" not in shown(lasting, later_s=3600)  # its evaluator was killed
            assert "30/120 outputs" in lines.readline()
            made.score(lasting)
        (result,) = lines
    assert result.startswith(f"Result: {ENDED.verdict.result}")
    assert result.endswith("exact_match 83.200\n")


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
def test_watch_on_a_terminal_ends_by_q_or_with_the_run(lasting, watch, leave):
    ours, theirs = pty.openpty()
    watch(lasting, theirs)
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


@pytest.mark.parametrize("folder", [".", "none"])
@pytest.mark.parametrize("command", ["html", "watch", "results"])
def test_a_folder_without_a_run_is_one_line(command, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, folder]) == 2
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
