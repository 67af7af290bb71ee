"""What a batch prints on a terminal."""

import sys
from types import SimpleNamespace

from harness.batch.batch_console import BatchConsole
from tests.harness.progress.test_progress_line import Terminal


def test_the_result_begins_on_a_line_of_its_own(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", screen)
    console = BatchConsole(["run_batch.py"], positions=20)
    console.written(1, 1)
    console.finish(
        SimpleNamespace(was_complete=False, plan=SimpleNamespace(client=SimpleNamespace(dry_run=True)))
    )
    *_, bar, result, end = screen.getvalue().split("\n")
    assert "1/1 lines written" in bar
    assert result.startswith("dry run")
    assert end == ""
