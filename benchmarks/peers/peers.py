#!/usr/bin/env python3
"""Other clients beside this harness, in turn (ours, theirs, ours, theirs), on the same workloads and stub.

    python benchmarks/peers/fetch_vllm_rs.py
    python benchmarks/peers/peers.py [--only WORKLOAD...] [--repeats 3] [--python VENV/bin/python]

A client runs on core 0 (the first of --cores N), the stub server on the next core. Rate, CPU time and true
TTFT are measured from outside: the stub's record of every answer, and the kernel's accounts. CPU is that of
all processes of a client from start to end, start-up and report included. A TTFT error is the client's figure
minus the stub's. VENV holds the packages of other clients (the dependency group "benchmarks"). --aiperf,
--guidellm and --endpoints-client name programs in environments of their own. Clients that are not installed
are named.
The runs of a workload replace its former ones in benchmarks/results/peers.json; the table shows them all.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from tokenizers import Tokenizer, models

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.bench import RESULTS, Stub, print_table, program_parser, save, write_prompts
from benchmarks.peers.fetch_vllm_rs import BINARY, lacks
from benchmarks.peers.peer_tools import (
    Claims,
    Job,
    Tool,
    absent,
    aiperf,
    endpoints_client,
    figures,
    foreign,
    guidellm,
    harness,
    plain,
    reference,
    sglang,
    vllm_rs,
)
from benchmarks.peers.running import Ended, run
from benchmarks.peers.workloads import PROMPTS, WORKLOADS, Workload

LIMIT_S = 90  # a slower client is stopped; its rate covers the answers until then
PAUSE_S = 1.0  # between two runs
Run = dict[str, Any]  # the figures of one run, by name
# The rows of the table: title, workload, figure, digits after the point.
TABLE = (
    ("burst, 256 in flight: events/s", "burst", "per_s", 0),
    ("  CPU us an event", "burst", "cpu_us", 2),
    ("  without start-up and report", "burst", "cpu_test_us", 2),
    ("the same, 8 events a send: events/s", "burst-8", "per_s", 0),
    ("  CPU us an event", "burst-8", "cpu_us", 2),
    ("  without start-up and report", "burst-8", "cpu_test_us", 2),
    ("2 000 ids in, 1 token, 256 in flight: requests/s", "prompts", "per_s", 0),
    ("  CPU us a request", "prompts", "cpu_us", 1),
    ("  without start-up and report", "prompts", "cpu_test_us", 1),
    ("Poisson 120/s x 20 ms: CPU us an event", "poisson-120", "cpu_us", 2),
    ("  without start-up and report", "poisson-120", "cpu_test_us", 2),
    ("Poisson 480/s x 20 ms: CPU us an event", "poisson-480", "cpu_us", 2),
    ("  without start-up and report", "poisson-480", "cpu_test_us", 2),
    ("  TTFT error mean, ms", "poisson-480", "error_mean_ms", 2),
    ("  TTFT error p99, ms", "poisson-480", "error_p99_ms", 2),
    ("  from the client's own send: mean, ms", "poisson-480", "own_mean_ms", 2),
    ("  from the client's own send: p99, ms", "poisson-480", "own_p99_ms", 2),
    ("  memory, MiB", "poisson-480", "peak_mib", 0),
    ("Poisson 240/s x 20 ms, 1 000 tokens: CPU us an event", "poisson-240", "cpu_us", 2),
    ("1 000 in flight x 10 ms: CPU us an event", "held-1000", "cpu_us", 2),
    ("  TTFT p99 above 50 ms: all requests, ms", "held-1000", "above_p99_ms", 2),
    ("  after the first 1 000 and before the last, ms", "held-1000", "steady_p99_ms", 2),
    ("100 in flight x 10 ms: CPU us an event", "held-100", "cpu_us", 2),
    ("  TTFT p99 above 50 ms: all requests, ms", "held-100", "above_p99_ms", 2),
    ("  after the first 100 and before the last, ms", "held-100", "steady_p99_ms", 2),
    ("start-up: CPU s of a run of one query", "start-up", "cpu_s", 2),
)


def main() -> None:
    """Run the workloads and print the table."""
    parser = program_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--clients", nargs="+", metavar="NAME", help="only these, such as ours vllm-rs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="of each client (default: %(default)s)")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="has the packages of other clients; a path"
    )
    parser.add_argument("--reference", type=Path, help="a checkout of mlcommons/inference")
    parser.add_argument("--vllm-rs", type=Path, help="another binary than the one that was fetched")
    parser.add_argument("--aiperf", type=Path, help="the program, if not beside --python")
    parser.add_argument("--guidellm", type=Path, help="the program, if not beside --python")
    parser.add_argument("--endpoints-client", type=Path, help="inference-endpoint, if not beside --python")
    parser.add_argument("--command", action="append", default=[], metavar="NAME=LINE", help="another client")
    parser.add_argument("--show", action="store_true", help="only the table of former runs")
    arguments = parser.parse_args()
    if not arguments.show:
        tools = [tool for tool in available(arguments) if tool.name in (arguments.clients or [tool.name])]
        for name in arguments.only:
            measure(WORKLOADS[name], tools, arguments.repeats, arguments.cores)
    show(kept())


def available(arguments: argparse.Namespace) -> Iterator[Tool]:
    """The clients that can run; for each of the others, print the reason."""
    python = str(arguments.python.absolute())  # clients run in folders of their own
    yield harness()
    if is_installed("vllm-rs", "" if arguments.vllm_rs else lacks()):
        yield vllm_rs(arguments.vllm_rs or BINARY)
    for library in ("aiohttp", "httpx"):
        if is_installed(library, absent(python, library)):
            yield plain(library, python)
    for module in ("sglang.benchmark.serving", "sglang.benchmark.rust_client"):
        if is_installed(module, absent(python, module)):
            yield sglang(module, python)
    checkout = arguments.reference
    needed = "no --reference" if checkout is None else absent(python, "mlperf_loadgen", "aiohttp", "tqdm")
    if is_installed("MLCommons reference", needed):
        yield reference(python, checkout.absolute())
    programs = (
        ("aiperf", aiperf, arguments.aiperf),
        ("guidellm", guidellm, arguments.guidellm),
        ("inference-endpoint", endpoints_client, arguments.endpoints_client),
    )
    for name, tool, given in programs:
        program = (given or Path(python).with_name(name)).absolute()
        if is_installed(name, "" if program.exists() else f"{program} is missing"):
            yield tool(program)
    for command in arguments.command:
        yield foreign(*command.split("=", 1))


def is_installed(name: str, lacks: str) -> bool:
    """Whether nothing is missing; print the reason otherwise."""
    if lacks:
        print(f"absent: {name}: {lacks}", flush=True)
    return not lacks


def measure(load: Workload, tools: Sequence[Tool], repeats: int, cores: int) -> None:
    """Every client in turn, ``repeats`` times; keep each run as soon as it ended."""
    runs: dict[str, list[Run]] = {tool.name: [] for tool in tools}
    for turn in range(repeats):
        for tool in tools:
            time.sleep(PAUSE_S)
            if (one := run_of(tool, load, cores)) is None:
                continue
            runs[tool.name].append(one)
            words = ", ".join(f"{key} {value:.4g}" for key, value in one.items() if isinstance(value, float))
            print(f"{load.name} {turn + 1}/{repeats} {tool.name}: {words}, lost {one['lost']}", flush=True)
            file = kept()
            file.setdefault(load.name, {})[tool.name] = runs[tool.name]
            save("peers", file, quiet=True)


def run_of(tool: Tool, load: Workload, cores: int) -> Run | None:
    """One run of one client; None where it does not support the workload."""
    with tempfile.TemporaryDirectory() as name, Stub(load.knobs, cores=(cores,)) as stub:
        folder = Path(name)
        parquet = write_prompts(folder / "prompts.parquet", min(PROMPTS, load.count), load.prompt_tokens)
        prompts = folder / "prompts.json"
        prompts.write_text(json.dumps(pq.read_table(parquet)["input_tokens"].to_pylist()))
        job = Job(load, stub.urls[0], folder, parquet, prompts, write_tokenizer(folder, load.words))
        planned = tool.command(job)
        if planned is None:
            return None
        ended = run(*planned, LIMIT_S, stub.pids[0], cores)
        truth = [row for row in stub.log() if row["tokens"] == load.tokens]
        claimed = claims(tool, job, ended)
        if not load.ladder_s:  # a trial request before them may have the same shape
            truth = sorted(truth, key=lambda row: row["t_request"])[-(claimed.requests or load.count) :]
        if ended.code not in (0, 4) or not truth:  # 4: LoadGen calls an answer of one token an error
            print(f"{tool.name}: exit {ended.code}, {len(truth)} answers\n{ended.output[-2000:]}", flush=True)
            if not truth:
                return None
        events = sum(row["events"] for row in truth) if load.ladder_s is None else stub.stats()[0]["events"]
        return figures_of(job, ended, truth, events if load.tokens > 1 else len(truth), claimed)


def figures_of(job: Job, ended: Ended, truth: list[dict[str, int]], count: int, claimed: Claims) -> Run:
    """The figures of one run; ``count`` events or requests."""
    load = job.workload
    start, end = min(row["t_request"] for row in truth), max(row["t_last_event"] for row in truth)
    found: Run = {
        "per_s": count / ((end - start) / 1e9 or 1.0),
        "cpu_s": ended.cpu_s,
        "cpu_us": ended.cpu_s * 1e6 / count,
        "cpu_test_us": ended.cpu_between(start, end) * 1e6 / count,
        "peak_mib": ended.peak_mib,
        "load_average": ended.load_average,
        "others_cores": ended.others,
        "lost": max(0, load.count - len(truth)) if load.ladder_s is None else 0,
        "reported_failures": claimed.failures,
        "exit": ended.code,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": f"{os.cpu_count()} x {processor()}",
    }
    if claimed.ttft is not None:
        true = figures([row["t_first_event"] - row["t_request"] for row in truth])
        found |= {f"error_{key}_ms": (claimed.ttft[key] - true[key]) / 1e6 for key in true}
        from_send = claimed.from_send or claimed.ttft
        found |= {f"own_{key}_ms": (from_send[key] - true[key]) / 1e6 for key in true}
        found["above_p99_ms"] = (claimed.ttft["p99"] - load.knobs.get("first_us", 0) * 1e3) / 1e6
    if claimed.in_order is not None and load.ladder_s:
        steady = claimed.in_order[load.concurrency : -load.concurrency]
        found["steady_p99_ms"] = float(np.percentile(steady, 99) - load.knobs.get("first_us", 0) * 1e3) / 1e6
    return found


def claims(tool: Tool, job: Job, ended: Ended) -> Claims:
    """What the client reports; nothing where it wrote nothing."""
    try:
        return tool.claims(job, ended.output)
    except (OSError, ValueError, KeyError, IndexError):
        return Claims()


def show(file: dict[str, dict[str, list[Run]]]) -> None:
    """Print the table: medians, least and most of the runs of each client, and the load of the machine."""
    names = sorted({name for runs in file.values() for name in runs}, key=lambda name: name != "ours")
    rows = [
        [title, *(spread(file[load].get(name, []), figure, digits) for name in names)]
        for title, load, figure, digits in TABLE
        if load in file
    ]
    rows += [
        [f"{load}: load average before, cores of others", *(quiet(runs.get(name, [])) for name in names)]
        for load, runs in file.items()
    ]
    print_table("peers: medians (least-most)", ("", *names), rows)
    every = [one for runs in file.values() for some in runs.values() for one in some]
    if every:
        moments = sorted(one["at"] for one in every)
        commits, machines = ({one[key] for one in every} for key in ("commit", "machine"))
        versions = f"ours {', '.join(sorted(commits))}; {', '.join(sorted(machines))}"
        print(f"\n{moments[0]} to {moments[-1]}; {versions}")


def spread(runs: Sequence[Run], figure: str, digits: int) -> str:
    """``13.5 (12.9-14.3)``."""
    values = [one[figure] for one in runs if one.get(figure) is not None]
    if not values:
        return "-"
    middle, least, most = (f"{value:,.{digits}f}" for value in (median(values), min(values), max(values)))
    return f"{middle} ({least}-{most})"


def quiet(runs: Sequence[Run]) -> str:
    """The most of the load average and of the others' cores."""
    if not runs:
        return "-"
    return f"{max(one['load_average'] for one in runs):.1f}, {max(one['others_cores'] for one in runs):.2f}"


def kept() -> dict[str, dict[str, list[Run]]]:
    """The runs of former calls, by workload and client."""
    path = RESULTS / "peers.json"
    if not path.exists():
        return {}
    file = json.loads(path.read_text())
    return file if isinstance(file, dict) else {}


def commit() -> str:
    """Of this checkout."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def processor() -> str:
    """The name that the kernel gives the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine()
    )


def write_tokenizer(folder: Path, words: int) -> Path:
    """A tokenizer of this number of words, from whose ids clients draw prompts; a small one loads fast."""
    home = folder / "tokenizer"
    home.mkdir()
    vocabulary = {f"w{index}": index for index in range(words)}
    Tokenizer(models.WordLevel(vocabulary, unk_token="w0")).save(str(home / "tokenizer.json"))
    return home


if __name__ == "__main__":
    main()
