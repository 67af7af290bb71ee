"""Faults of the server and the machine, one run for each cell of the matrix."""

import functools
import json
import subprocess

import pytest

from tests.faults.going import Going, alive, going
from tests.faults.matrix import (
    INTERRUPTED,
    MACHINE_FAULTS,
    NOTHING,
    PROCESS_FAULTS,
    SERVER_FAULTS,
    Outcome,
    RunFault,
    Setting,
)
from tests.faults.scenes import SCENES
from tests.kit import wait_until
from tests.runs import FinishedRun


def cells():
    return [
        pytest.param(
            row, setting, id=f"{row.key}-{setting}", marks=() if setting is row.quick else pytest.mark.engine
        )
        for row in (*SERVER_FAULTS, *PROCESS_FAULTS, *MACHINE_FAULTS)
        for setting in row.settings
    ]


@functools.cache
def may_mount() -> bool:
    script = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=4k none /mnt"]
    return subprocess.run(script, capture_output=True).returncode == 0


@pytest.mark.parametrize(("row", "setting"), cells())
def test_cell(row: RunFault, setting: Setting, tmp_path):
    scene = SCENES[row.key]
    if "mount" in scene.shell and not may_mount():
        pytest.skip("this machine lets nobody mount a small file system (unshare -rm)")
    with going(tmp_path, setting, scene) as run:
        scene.inflict(run)
        ended = run.end()
        check(run, ended, row.outcome)
    if scene.keeps_earlier:
        assert kept_earlier(run)


def check(run: Going, ended: FinishedRun, expected: Outcome) -> None:
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said
    assert ended.code == expected.code, said
    record = ended.log_dir / "run.json"
    verdict = json.loads(record.read_text())["verdict"] if record.exists() else None
    reasons = verdict["reasons"] if verdict else []
    if expected.verdict == NOTHING or verdict is None:
        assert verdict is None
        assert expected.words in said
    else:
        assert verdict["result"] == expected.verdict, reasons
        assert any(expected.words in reason for reason in reasons) or expected.words in said, reasons
    if expected.failures:
        assert ended.failures.keys() & expected.failures
        assert len(ended.requests) == sum(ended.failures.values()) + ended.record["statistics"]["completed"]
    if expected.verdict == INTERRUPTED:
        check_flushed(ended)
    assert not (ended.log_dir / ".reserve").exists() or verdict is None
    wait_until(lambda: not alive(run.seen))


def check_flushed(ended: FinishedRun) -> None:
    """All that was known when the signal came is in the files."""
    assert ended.record["statistics"]["completed"] > 5
    assert len(ended.requests) == ended.record["statistics"]["queries"]
    assert (ended.log_dir / "mlperf_log_detail.txt").read_text().endswith("}\n")


def kept_earlier(run: Going) -> bool:
    return any(path.read_text() == "an earlier result" for path in run.log_dir.parent.rglob("earlier.txt"))
