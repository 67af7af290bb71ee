"""Runs run_mlperf.py as a user does, and reads what it leaves."""

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import run_mlperf as run_mlperf_program

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "datasets" / "samples"
PERFORMANCE, ACCURACY = SAMPLES / "perf_sample.parquet", SAMPLES / "acc_sample.parquet"

# The percentile is one that few queries can prove: a plan with too few is refused.
QUICK_CONF = """
*.Offline.target_qps = 1.0
*.Offline.min_duration = 0
*.Offline.min_query_count = 1
*.Server.target_qps = {qps}
*.Server.min_duration = {duration_ms}
*.Server.min_query_count = 1
*.Server.target_latency_percentile = {percentile}
*.SingleStream.target_latency = 10
*.SingleStream.min_duration = 0
*.SingleStream.min_query_count = 1
*.SingleStream.target_latency_percentile = {percentile}
"""


@dataclass(frozen=True)
class FinishedRun:
    """One ended run of the program."""

    code: int
    stdout: str
    stderr: str
    log_dir: Path

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.log_dir / "run.json").read_text())

    @property
    def result(self) -> str:
        return self.record["verdict"]["result"]

    @property
    def failures(self) -> dict[str, int]:
        return self.record["statistics"]["failures"]

    @property
    def requests(self) -> list[dict[str, Any]]:
        return pq.read_table(self.log_dir / "requests.parquet").to_pylist()

    @property
    def loadgen_summary(self) -> str:
        return (self.log_dir / "mlperf_log_summary.txt").read_text()

    @property
    def accuracy_log(self) -> dict[int, list[int]]:
        """Token ids by qsl_idx; a sample that is logged twice is an error."""
        entries = json.loads((self.log_dir / "mlperf_log_accuracy.json").read_text())
        answers = {e["qsl_idx"]: np.frombuffer(bytes.fromhex(e["data"]), "<i4").tolist() for e in entries}
        assert len(answers) == len(entries), "a sample was logged twice"
        return answers


def write_dataset(path: Path, prompts: list[list[int]]) -> Path:
    pq.write_table(pa.table({"input_tokens": prompts}), path)
    return path


def small_dataset(directory: Path, rows: int = 12, length: int = 20) -> tuple[Path, list[list[int]]]:
    prompts = [[1000 + row * 31 + i for i in range(length + row % 3)] for row in range(rows)]
    return write_dataset(directory / "dataset.parquet", prompts), prompts


def command(output: Path, *arguments: object, report: bool = False) -> list[str]:
    """run_mlperf.py without its page, which few tests look at."""
    words = ("--output-dir", output, *arguments, *(() if report else ("--no-report",)))
    return [sys.executable, str(ROOT / "run_mlperf.py"), *map(str, words)]


def evaluator(log: Path, reference: Path) -> list[object]:
    """The evaluator's command."""
    program = ROOT / "eval_mlperf_accuracy.py"
    return [sys.executable, program, "--mlperf-log", log, "--reference-data", reference]


def run_mlperf(
    output: Path,
    *arguments: object,
    scenario: str = "offline",
    qps: float = 50,
    duration_ms: int = 500,
    percentile: int = 50,
    timeout: float = 600,
    report: bool = False,
    here: pytest.CaptureFixture[str] | None = None,
) -> FinishedRun:
    """Run to the end with quick LoadGen settings; with ``here`` in this process, where the start of the
    program, its working directory and its log lines are not the question."""
    conf = quick_conf(output, qps, duration_ms, percentile)
    words = command(output, "--scenario", scenario, "--user-conf", conf, *arguments, report=report)
    mode = "accuracy" if "--accuracy" in arguments else "performance"
    if here is not None:
        return FinishedRun(*main_here(here, run_mlperf_program.main, words[2:]), output / scenario / mode)
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, cwd=output)
    return FinishedRun(done.returncode, done.stdout, done.stderr, output / scenario / mode)


def run_here(capture: pytest.CaptureFixture[str], output: Path, *arguments: object) -> FinishedRun:
    """Run in this process: for what is refused or planned without a run, when the start of a program is not
    the question."""
    words = ["--output-dir", str(output)]
    words += [os.fsdecode(word) if isinstance(word, bytes) else str(word) for word in arguments]
    code, stdout, stderr = main_here(capture, run_mlperf_program.main, words)
    return FinishedRun(code, stdout, stderr, output / "offline" / "performance")


def main_here(
    capture: pytest.CaptureFixture[str], main: Callable[[list[str]], int], words: list[str]
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a program's main; umask and limit of open files are put back."""
    umask = os.umask(0o022)
    os.umask(umask)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    capture.readouterr()
    try:
        code = main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os.umask(umask)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    return code, *capture.readouterr()


def processes_of_the_session(family: Iterable[psutil.Process]) -> list[psutil.Process]:
    """LoadGen's process, or another issuer's, and the workers in their order."""
    named = {}
    for one in family:
        with suppress(psutil.NoSuchProcess):  # it has ended
            named[one.name()] = one
    return [named[name] for name in sorted(named) if re.fullmatch(r"issuer|worker\d+", name)]


def without_waits(stderr: str) -> list[str]:
    """The lines but for those of a wait for a server, which come after a second: on a busy machine."""
    return [line for line in stderr.splitlines() if not line.startswith("waiting for ")]


def quick_conf(directory: Path, qps: float = 50, duration_ms: int = 500, percentile: int = 50) -> Path:
    path = directory / "quick.conf"
    path.write_text(QUICK_CONF.format(qps=qps, duration_ms=duration_ms, percentile=percentile))
    return path
