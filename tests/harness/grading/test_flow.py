"""The complete path: an accuracy run on the embedded engine, its log, the evaluator, a score."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.grading.samples import REFERENCE, RELEASE
from tests.runs import ROOT, run_mlperf


@pytest.mark.engine
@pytest.mark.parametrize("scenario", ["offline", "server"])
def test_an_accuracy_run_is_graded(scenario: str, tmp_path: Path):
    """The tiny model has random weights: its score is 0, and the exit code that of a missed target."""
    run = run_mlperf(
        tmp_path, "--backend", "embedded", "--accuracy", "--input-file", REFERENCE, "--max-new-tokens", 6,
        scenario=scenario, qps=20)  # fmt: skip
    assert run.code == 0, run.stderr
    (tmp_path / "release.jsonl").write_bytes(RELEASE.read_bytes())
    result = tmp_path / "accuracy.json"
    command = [sys.executable, ROOT / "eval_mlperf_accuracy.py", "--reference-data", REFERENCE]
    command += ["--mlperf-log", run.log_dir / "mlperf_log_accuracy.json", "--output-file", result]
    done = subprocess.run(
        list(map(str, [*command, "--lcb-data", tmp_path / "release.jsonl"])),
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
    )
    assert done.returncode == 5, done.stderr
    written = json.loads(result.read_text())
    lengths = [len(ids) for ids in run.accuracy_log.values()]
    assert written["summary"]["total_samples"] == len(lengths) == 96
    assert written["missing"] == []
    assert written["output_tokens"]["mean"] == pytest.approx(sum(lengths) / len(lengths))
    assert f"'exact_match': {written['summary']['final_score_percentage']:.3f}" in done.stdout
