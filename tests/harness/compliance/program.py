"""Runs run_compliance.py as a user does, with datasets of the official size and shape."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import run_compliance as program
from harness.dataset import tokenizer
from tests.runs import ROOT, main_here

TEST07_ROWS, TEST09_ROWS = 990, 6396
LOW07 = "*.*.test07_accuracy_threshold = 0.0\n"
LOW09 = "*.*.test09_min_output_tokens = 2.5\n*.*.test09_max_output_tokens = 3.5\n"


@dataclass(frozen=True)
class Finished:
    code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> str:
        """The one line of the error."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("run_compliance.py: error: ")]
        assert len(lines) == 1, self.stderr
        assert "Traceback" not in self.stderr
        return lines[0]


def run_compliance(folder: Path, *words: object, timeout: float = 600) -> Finished:
    process = start(folder, *words)
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return Finished(process.returncode, stdout, stderr)


def run_here(capture: pytest.CaptureFixture[str], *words: object) -> Finished:
    """In this process, where the start of the program and its log lines are not the question."""
    return Finished(*main_here(capture, program.main, [*map(str, words)]))


def start(folder: Path, *words: object) -> "subprocess.Popen[str]":
    command = [str(word) for word in (sys.executable, ROOT / "run_compliance.py", *words)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def dataset(path: Path, rows: int, effort: str = "high") -> Path:
    """Prompts that differ and ask for ``effort``; GPQA references."""
    system = f"<|start|>system<|message|>Reasoning: {effort}\n<|end|>"
    prompt = tokenizer.encode_harmony(f"{system}<|start|>user<|message|>Question<|end|>")
    prompts = [[*prompt[:-1], 1000 + row, prompt[-1]] for row in range(rows)]
    truths = ["ABCD"[row % 4] for row in range(rows)]
    columns = {"input_tokens": prompts, "ground_truth": truths, "dataset": ["gpqa_diamond"] * rows}
    pq.write_table(pa.table(columns), path)
    return path


def user_conf(folder: Path, qps: float = 500) -> Path:
    """Nothing that deviates from the rules."""
    path = folder / "user.conf"
    path.write_text(f"*.Server.target_qps = {qps}\n*.Offline.target_qps = {qps}\n")
    return path


def audit(folder: Path, test: str, thresholds: str) -> Path:
    """The official settings with other thresholds."""
    rows = {"TEST07": TEST07_ROWS, "TEST09": TEST09_ROWS}[test]
    path = folder / f"{test}.config"
    path.write_text(
        "*.*.mode = 2\n*.*.accuracy_log_rng_seed = 720381539243781796\n*.*.min_duration = 0 # ms\n"
        f"*.*.accuracy_log_sampling_target = 10000\n*.*.min_query_count = {rows} # all of them\n"
        "*.*.performance_issue_unique = 1\n*.*.sample_concatenate_permutation = 0\n" + thresholds
    )
    return path
