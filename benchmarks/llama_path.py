#!/usr/bin/env python3
"""The complete path of llama3.1-8b at full size on the stub server: time and memory of each step.

    python benchmarks/llama_path.py [--checker inference/tools/submission] [--python PYTHON]

13,368 made-up samples with prompts of 200 to 1350 tokens; every answer has 128 tokens. For Offline and
Server: performance, accuracy, score and TEST06; then the submission, its check and MLCommons's checker.
min_duration is 0, since a stub's throughput has no meaning: both checkers report only that. "cpu" is
that of the program and all its processes, "peak" that of the largest one. The data is not counted.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import ROOT, Stub, print_table, save

from tests.harness.submission.building import write_info
from tests.made_up.cnn import DATACENTER, ROWS, MadeUp, write

SCENARIOS = ("offline", "server")
CONF = """\
*.Offline.target_qps = 20
*.Offline.min_duration = 0
*.Offline.min_query_count = {rows}
*.Server.target_qps = {qps}
*.Server.min_duration = 0
"""
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


@dataclass(frozen=True)
class Step:
    """One finished program."""

    step: str
    code: int
    wall_s: float
    cpu_s: float
    peak_mib: float


def main() -> None:
    """Make the data, run every step, print and save the table."""
    parser = argparse.ArgumentParser(description="Measure the complete path of llama3.1-8b.")
    parser.add_argument("--folder", type=Path, help="where data and results are kept (default: removed)")
    parser.add_argument("--qps", type=float, default=200, help="queries per second of Server")
    parser.add_argument("--checker", type=Path, help="tools/submission of mlcommons/inference")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="that runs the checker")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (flags.folder or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        data = write(folder, DATACENTER, long=True)
        print(f"{data.dataset.name}: {ROWS[DATACENTER]} rows, {data.dataset.stat().st_size / 1e6:.0f} MB")
        (folder / "user.conf").write_text(CONF.format(rows=ROWS[DATACENTER], qps=flags.qps))
        write_info(folder)
        with Stub(model=MODEL, vocab_size=128256) as stub:
            steps = [step for scenario in SCENARIOS for step in scenario_steps(folder, data, scenario, stub)]
        steps += submission_steps(folder, flags.checker, flags.python)
    columns = ["step", "exit code", "wall s", "cpu s", "peak MiB"]
    print_table("llama3.1-8b, 13,368 samples", columns, [list(asdict(step).values()) for step in steps])
    save("llama_path", [asdict(step) for step in steps])


def scenario_steps(folder: Path, data: MadeUp, scenario: str, stub: Stub) -> list[Step]:
    """The four programs of a scenario."""
    where = ["--benchmark", DATACENTER, "--scenario", scenario, "--server-url", stub.urls[0]]
    where += [
        "--input-file",
        data.dataset,
        "--user-conf",
        folder / "user.conf",
        "--output-dir",
        folder / "results",
    ]
    accuracy = folder / "results" / scenario / "accuracy"
    score = ["--benchmark", DATACENTER, "--mlperf-log", accuracy / "mlperf_log_accuracy.json"]
    score += ["--reference-data", data.dataset, "--tokenizer", data.tokenizer]
    return [
        measured(f"{scenario}: performance", folder, "run_mlperf.py", *where),
        measured(f"{scenario}: accuracy", folder, "run_mlperf.py", *where, "--accuracy"),
        measured(
            f"{scenario}: score", folder, "eval_mlperf_accuracy.py", *score, output=accuracy / "accuracy.txt"
        ),
        measured(f"{scenario}: TEST06", folder, "run_compliance.py", *where, "--test", "TEST06"),
    ]


def submission_steps(folder: Path, checker: Path | None, python: Path) -> list[Step]:
    """The submission and its checks."""
    tree = folder / "submission"
    words = ["build", "--benchmark", DATACENTER, "--results", folder / "results", "--output", tree]
    words += ["--submission", folder / "submission.toml"]
    steps = [
        measured("build and check", folder, "prepare_submission.py", *words),
        measured("check", folder, "prepare_submission.py", "check", tree),
    ]
    if checker:
        official = [python, "-m", "submission_checker.main", "--version", "v6.1", "--input", tree]
        command = [*official, "--csv", folder / "official.csv"]
        steps.append(timed("MLCommons's checker", checker, command, folder / "official.log"))
    return steps


def measured(step: str, folder: Path, program: str, *words: object, output: Path | None = None) -> Step:
    """One of our programs; its output goes to ``output``, or to a log."""
    log = output or folder / f"{step.replace(': ', '_').replace(' ', '_')}.log"
    return timed(step, folder, [sys.executable, ROOT / program, *words], log)


def timed(step: str, folder: Path, command: list[object], output: Path) -> Step:
    """Run a command to its end."""
    print(f"{step} ...", flush=True)
    begin = time.monotonic()
    with output.open("wb") as file, output.with_suffix(".err").open("wb") as errors:
        process = subprocess.Popen([str(word) for word in command], cwd=folder, stdout=file, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begin
    return Step(step, process.returncode, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


if __name__ == "__main__":
    main()
