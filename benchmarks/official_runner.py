#!/usr/bin/env python3
"""Grading of programs beside LiveCodeBench's own runner: verdicts, wall time, CPU and memory, in turn.

    python -m benchmarks.official_runner --programs FOLDER --runner CHECKOUT --python VENV/bin/python

FOLDER has problems.json and solutions.jsonl, as of grading_speed. CHECKOUT is LiveCodeBench's repository; its
runner needs numpy and tqdm, and what the programs import, in VENV. Some programs that hang are put among
the solutions: endless loops, a sleep, a wait without end, a deadlock. "tree" is the proportional set size of
all processes together, looked at five times a second.
"""

import argparse
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.grading_speed import Program, Programs, _programs, measured
from harness.grading.livecodebench.index import prepared
from harness.grading.livecodebench.program_journal import ResultJournal
from harness.grading.livecodebench.runner import ExecutionConfig, ProgramTask, run_programs
from harness.grading.sandbox.tier_probe import choose_sandbox
from harness.grading.scoring.grade import GradingMode

HANGING = (
    "while True: pass",
    "import time\ntime.sleep(99999)",
    "import threading\nthreading.Event().wait()",
    "n = 0\nwhile True: n += 1",
    "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
)
# Reads what ``main`` wrote, and writes whether each program passed.
OFFICIAL = """
import json, sys
sys.path.insert(0, sys.argv[1])
from lcb_runner.evaluation.compute_code_generation_metrics import evaluate_generations
if __name__ == "__main__":
    todo = json.load(open(sys.argv[2]))
    found, _ = evaluate_generations(todo["samples"], [[code] for code in todo["codes"]],
                                    num_process_evaluate=todo["workers"], timeout=todo["limit_s"])
    passed = [all(one is True or one > 0 for one in found[i][0]) for i in range(len(todo["codes"]))]
    json.dump(passed, open(sys.argv[3], "w"))
"""
_LOOK_S = 0.2


@dataclass
class Peak:
    """The most memory that all child processes had together, in bytes."""

    size: int = 0


def main() -> None:
    """Grade with each, as often as asked, and print a line for each."""
    parser = argparse.ArgumentParser(description="Compare with LiveCodeBench's own runner.")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/official-runner"), help="for files")
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--runner", type=Path, required=True, help="checkout of LiveCodeBench")
    parser.add_argument("--python", type=Path, required=True, help="Python that runs the official runner")
    parser.add_argument("--hanging", type=int, default=5, help="programs that hang (default: 5)")
    parser.add_argument("--limit", type=int, default=60, help="seconds for a test (default: 60)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--part", choices=("ours",), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    programs = _with_hanging(_programs(arguments.programs), arguments.hanging)
    if arguments.part:
        print(json.dumps(ours(folder, programs, arguments.workers, arguments.limit)))
        return
    (folder / "release.jsonl").write_bytes(programs.release)
    _write_todo(folder, programs, arguments.workers, arguments.limit)
    script = folder / "official.py"
    script.write_text(OFFICIAL)
    commands = {
        "ours": [sys.executable, "-m", "benchmarks.official_runner", *sys.argv[1:], "--part", "ours"],
        "official": [str(arguments.python), str(script), str(arguments.runner), str(folder / "todo.json"),
                     str(folder / "official.json")],
    }  # fmt: skip
    for _ in range(arguments.times):
        for name, command in commands.items():
            with _peak() as peak:
                cost = measured(command)
            load = os.getloadavg()[0]
            print(f"{name:8}: {cost}; tree {peak.size >> 20} MB, load {load:.0f}", flush=True)
    verdicts = [json.loads((folder / f"{name}.json").read_text()) for name in commands]
    same = sum(one == other for one, other in zip(*verdicts, strict=True))
    print(f"{len(programs.solutions)} programs, {same} with the same verdict")


def _with_hanging(programs: Programs, count: int) -> Programs:
    """A program that hangs after each equal part of the others, for a stdin problem."""
    release = [json.loads(line) for line in programs.release.splitlines()]
    problem = next(row["question_id"] for row in release if row["metadata"] == "{}")
    solutions = list(programs.solutions)
    step = len(solutions) // (count + 1)
    for number in range(count):
        code = f"# {number}\n{HANGING[number % len(HANGING)]}"
        solutions.insert((step + 1) * (number + 1), Program(problem, code, False))
    return Programs(programs.release, solutions)


def _write_todo(folder: Path, programs: Programs, workers: int, limit_s: int) -> None:
    """The work of the official runner, in its own form."""
    samples = {}
    for line in programs.release.splitlines():
        row = json.loads(line)
        tests = json.loads(row["public_test_cases"])
        content = {
            "inputs": [test["input"] for test in tests],
            "outputs": [test["output"] for test in tests],
            "fn_name": json.loads(row["metadata"]).get("func_name"),
        }
        samples[row["question_id"]] = {"input_output": json.dumps(content)}
    todo = {
        "samples": [samples[program.question_id] for program in programs.solutions],
        "codes": [program.code for program in programs.solutions],
        "workers": workers,
        "limit_s": limit_s,
    }
    (folder / "todo.json").write_text(json.dumps(todo))


def ours(folder: Path, programs: Programs, workers: int, limit_s: int) -> dict[str, int]:
    """Grade in official mode, every program anew; writes whether each passed."""
    index = prepared(folder / "release.jsonl", folder, lambda text: print(text, file=sys.stderr))
    execution = ExecutionConfig(index, choose_sandbox(allow_unsandboxed=False), workers, limit_s)
    tasks = [
        ProgramTask(GradingMode.OFFICIAL, program.question_id, program.code) for program in programs.solutions
    ]
    journal = ResultJournal(folder / "journal", restart=True)
    results = run_programs(dict.fromkeys(tasks), execution, journal, lambda *_: None)
    (folder / "ours.json").write_text(json.dumps([results[task].passed for task in tasks]))
    return {"passed": sum(results[task].passed for task in tasks)}


@contextmanager
def _peak() -> Iterator[Peak]:
    """Look at the memory of all child processes until the end of the block."""
    peak, ended = Peak(), threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            peak.size = max(peak.size, sum(map(_size, psutil.Process().children(recursive=True))))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _size(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


if __name__ == "__main__":
    main()
