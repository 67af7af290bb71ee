#!/usr/bin/env python3
"""Comparison with other clients: the same workloads, one after the other, against the same stub server.

    python benchmarks/peers/peers.py --python VENV/bin/python [--reference CHECKOUT] [--tokenizer FOLDER]

VENV holds the packages of the other clients (the dependency group "benchmarks", and SGLang for its clients);
CHECKOUT is one of mlcommons/inference. Clients that are not installed are listed. Rate, CPU time and true
TTFT are measured from outside: the stub's record of every answer, and /proc. The client runs on core 0, the
stub on core 1. The TTFT error is the client's reported mean (p99) minus the stub's true mean (p99).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.bench import Stub, pinned, print_table, program_parser, save, write_prompts
from benchmarks.peers.peer_tools import (
    Job,
    Tool,
    Workload,
    absent,
    figures,
    foreign,
    harness,
    plain,
    reference,
    sglang,
)

PROMPTS = 512
# With text: SGLang's Python client ignores events without text.
PACED = {"gap_us": 20_000, "first_us": 100_000, "jitter_us": 20_000, "text": 1}
KNOBS = {"offline": {}, "streams": PACED, "poisson": PACED}
LIMIT_S = 60  # a slower client is stopped; its rate covers the answers until then
KILL_AFTER_S, NOTICE_S = 3.0, 20.0
SAMPLE_S = 0.05


@dataclass(frozen=True)
class Ended:
    """The end of one command. ``cpu`` holds (monotonic ns, CPU seconds of its processes so far)."""

    code: int | None
    output: str
    cpu: list[tuple[int, float]]


def main() -> None:
    """Run every workload with every installed client."""
    parser = program_parser(__doc__)
    parser.add_argument("--python", default=sys.executable, help="has the packages of the other clients")
    parser.add_argument("--reference", type=Path, help="a checkout of mlcommons/inference")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer's folder, for SGLang's clients")
    parser.add_argument("--command", action="append", default=[], metavar="NAME=LINE", help="another client")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the requests")
    parser.add_argument("--only", nargs="+", choices=[*KNOBS, "killed"], default=[*KNOBS, "killed"])
    arguments = parser.parse_args()
    tools = list(available(arguments))
    columns = (
        *("workload, client", "per second", "CPU us for each", "TTFT error ms", "p99"),
        *("lost", "reported", "exit"),
    )
    rows = [
        [f"{load.name}: {tool.name}", *measure(tool, load)]
        for load in workloads(arguments.scale)
        if load.name in arguments.only
        for tool in tools
    ]
    print_table("peers: requests (offline) or events, as the stub saw them", columns, rows)
    save("peers", [dict(zip(columns, row, strict=True)) for row in rows])


def workloads(scale: float) -> list[Workload]:
    """Counts are multiples of the prompts, as LoadGen issues them. In "killed" the server dies."""
    return [
        Workload("offline", PROMPTS * max(1, round(80 * scale)), 128, 512, 2000, stream=False),
        Workload("streams", PROMPTS * max(1, round(4 * scale)), 100, 256, 200),
        Workload("poisson", int(4_800 * scale), 100, 2000, 200, qps=240.0),
        Workload("killed", PROMPTS * 4, 100, 256, 200),
    ]


def available(arguments: argparse.Namespace) -> Iterator[Tool]:
    """The clients that can run; for each of the others, print the reason."""
    python = arguments.python
    yield harness()
    for library in ("aiohttp", "httpx"):
        if is_installed(library, absent(python, library)):
            yield plain(library, python)
    lacks = (
        "no --reference"
        if arguments.reference is None
        else absent(python, "mlperf_loadgen", "aiohttp", "tqdm")
    )
    if is_installed("MLCommons reference", lacks):
        yield reference(python, arguments.reference.absolute())
    for module in ("sglang.benchmark.serving", "sglang.benchmark.rust_client"):
        lacks = "no --tokenizer" if arguments.tokenizer is None else absent(python, module)
        if is_installed(module, lacks):
            yield sglang(module, python, arguments.tokenizer.absolute())
    for command in arguments.command:
        yield foreign(*command.split("=", 1))


def is_installed(name: str, lacks: str) -> bool:
    """Whether nothing is missing; print the reason otherwise."""
    if lacks:
        print(f"absent: {name}: {lacks}", flush=True)
    return not lacks


def measure(tool: Tool, load: Workload) -> list[object]:
    """One run of one tool; the rest of its table row."""
    killed = load.name == "killed"
    with tempfile.TemporaryDirectory() as name, Stub(KNOBS["streams" if killed else load.name]) as stub:
        folder = Path(name)
        parquet = write_prompts(folder / "prompts.parquet", PROMPTS, load.prompt_tokens)
        job = Job(load, stub.urls[0], folder, parquet, as_json(parquet))
        planned = tool.command(job)
        if planned is None:
            return ["-"] * 7
        if killed:
            return ["-", "-", "-", "-", *watch_the_end(tool, job, stub, planned)]
        ended = run(*planned, LIMIT_S)
        truth = [row for row in stub.log() if row["tokens"] == load.tokens]
        return figures_of(tool, job, ended, truth)


def figures_of(tool: Tool, job: Job, ended: Ended, truth: list[dict[str, int]]) -> list[object]:
    """The row of a run whose server stays up."""
    load = job.workload
    if len(truth) < 2:
        print(f"{tool.name}: {len(truth)} answers\n{ended.output[-2000:]}")
        return ["-", "-", "-", "-", load.count - len(truth), "-", str(ended.code)]
    start, end = min(row["t_request"] for row in truth), max(row["t_last_event"] for row in truth)
    count = sum(row["events"] for row in truth) if load.stream else len(truth)
    seconds = (end - start) / 1e9
    claimed, failures = claims(tool, job, ended)
    true = figures([row["t_first_event"] - row["t_request"] for row in truth])
    errors = ["-", "-"]
    if claimed is not None and load.stream:
        errors = [f"{(claimed[key] - true[key]) / 1e6:+.2f}" for key in ("mean", "p99")]
    cpu = (cpu_at(ended.cpu, end) - cpu_at(ended.cpu, start)) * 1e6 / count
    reported = "-" if failures is None else failures
    finished = ended.code is not None
    lost = max(0, load.count - len(truth)) if finished else "-"
    return [count / seconds, cpu, *errors, lost, reported, str(ended.code) if finished else "cut short"]


def watch_the_end(tool: Tool, job: Job, stub: Stub, planned: tuple[list[str], Path]) -> list[object]:
    """Kill the server during the run. Returns lost requests, reported ones, and the client's exit code."""
    answered: list[int] = []

    def kill() -> None:
        while not stub.stats()[0]["max_active"] > 8:
            time.sleep(0.05)
        time.sleep(KILL_AFTER_S)
        answered.append(sum(row["tokens"] == job.workload.tokens for row in stub.log()))
        stub.kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    ended = run(*planned, NOTICE_S + KILL_AFTER_S)
    killer.join(1)
    _, failures = claims(tool, job, ended)
    lost = job.workload.count - answered[0] if answered else "-"
    return [lost, "-" if failures is None else failures, "hangs" if ended.code is None else str(ended.code)]


def claims(tool: Tool, job: Job, ended: Ended) -> tuple[dict[str, float] | None, int | None]:
    """TTFT figures and failures that the client reports; None for what it did not write."""
    try:
        return tool.claims(job, ended.output)
    except (OSError, ValueError, KeyError, IndexError):
        return None, None


def run(words: Sequence[str], folder: Path, limit_s: float) -> Ended:
    """Run on core 0 and sample CPU time. The exit code is None for a command that had to be killed."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, pinned((0,))),
        )
        cpu = list(watch(process, limit_s))
        code = process.poll()
        if code is None:
            os.killpg(process.pid, 9)
            process.wait()
        output.seek(0)
        text = output.read()
    return Ended(code, text, cpu)


def watch(process: "subprocess.Popen[bytes]", limit_s: float) -> Iterator[tuple[int, float]]:
    """Samples of the CPU seconds of a program and its children, until it ends."""
    until, spent = time.monotonic() + limit_s, {}
    while process.poll() is None and time.monotonic() < until:
        try:
            parent = psutil.Process(process.pid)
            for one in (parent, *parent.children(recursive=True)):
                times = one.cpu_times()
                spent[one.pid] = times.user + times.system
        except psutil.NoSuchProcess:
            pass
        yield time.monotonic_ns(), sum(spent.values())
        time.sleep(SAMPLE_S)


def cpu_at(cpu: list[tuple[int, float]], moment_ns: int) -> float:
    """CPU seconds at a moment, interpolated between two samples."""
    times, seconds = zip(*cpu, strict=True)
    return float(np.interp(moment_ns, times, seconds))


def as_json(parquet: Path) -> Path:
    """The same prompts as a JSON list of lists."""
    path = parquet.with_suffix(".json")
    path.write_text(json.dumps(pq.read_table(parquet)["input_tokens"].to_pylist()))
    return path


if __name__ == "__main__":
    main()
