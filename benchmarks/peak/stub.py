#!/usr/bin/env python3
"""The model in virtual time against the stub server, LoadGen and the client, at the same rates.

    python benchmarks/peak/stub.py [--seconds 20]
    python benchmarks/peak/stub.py --search [--only NAME ...]

Real runs against the stub's decode batches (benchmarks/stub/batch.c), and the simulation of the same
schedule and samples (benchmarks/peak/server_model.py). The stub begins a prefill after the running step, and
a step with the running requests of its begin; the model does neither, so that TTFT differs by up to a step.
The real times are the stub's own, from the complete request on. BENCH_PORT is the first port.

With --search: complete searches by find_peak.py, and one by LoadGen itself, on runs of half a minute. A busy
machine is slower than the model: t_max is 2 here, and one stall is more.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.bench import Stub, print_table, program_parser, run_harness, save
from benchmarks.peak.on_stub import conf_rows, knobs, write_dataset
from benchmarks.peak.server_model import Floats, Server
from benchmarks.peak.truth import true_peak
from benchmarks.peak.workload import LEAST_TOKENS, Workload, lengths
from harness.analysis.statistics import percentile
from harness.files import ROOT
from harness.peak.search.search_state import read_state

ROWS, TOKENS = 480, 60.0
MS = 1000


@dataclass(frozen=True)
class Case:
    """A server and a rate."""

    name: str
    server: Server
    rate: float


_BASE: dict[str, Any] = {"step_s": 0.020, "stream_s": 1e-3, "prefill_s": 0.004}
CASES = (
    Case("1 port, half load", Server(**_BASE), 8.0),
    Case("1 port", Server(**_BASE), 11.0),
    Case("2 ports, 12 slots, queue", Server(**_BASE, replicas=2, slots=12), 13.0),
    Case("4 ports, one 30 % slower", Server(**_BASE, replicas=4, slow=1.3), 32.0),
    Case("1 port, 10 % slower when warm", Server(**_BASE, drift=0.1, drift_s=10.0), 8.0),
)


_LOADED: dict[str, Any] = {"step_s": 0.020, "stream_s": 2.5e-3, "prefill_s": 0.004, "slots": 64}
SEARCHED = {
    "4 ports": Server(**_LOADED, replicas=4),
    "4 ports, 16 slots": Server(**{**_LOADED, "slots": 16}, replicas=4),
    "4 ports, one 20 % slower": Server(**_LOADED, replicas=4, slow=1.2),
}


def main() -> None:
    """Run each case for real and in virtual time, and print both."""
    parser = program_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--search", action="store_true", help="search instead of comparing")
    parser.add_argument("--only", nargs="+", help="names of the servers to search on")
    arguments = parser.parse_args()
    if arguments.search:
        search_all(arguments.only)
        return
    columns = ("case", "queries", *(f"{q} ms: real, model" for q in ("TTFT p50", "TTFT p99")))
    columns += ("TPOT p50", "TPOT p99")
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as name:
        for case in CASES:
            rows.append(compare(Path(name), case, arguments.seconds))
    print_table("peak_stub: stub, LoadGen and client against the model", columns, rows)
    save("peak_stub", rows)


def compare(folder: Path, case: Case, seconds: float) -> list[object]:
    """A line of the table."""
    workload = Workload(lengths(ROWS, mean=TOKENS), min_duration_s=seconds)
    real = _real(folder, case, workload)
    answers = workload.outcome(case.server, case.rate, cut=False).answers
    cells = [
        f"{MS * percentile(mine, share):.4g}, {MS * percentile(theirs, share):.4g}"
        for mine, theirs in zip(real, (answers.ttft, answers.tpot), strict=True)
        for share in (0.5, 0.99)
    ]
    return [case.name, len(answers.done), *cells]


def _real(folder: Path, case: Case, workload: Workload) -> tuple[Floats, Floats]:
    """TTFT and TPOT of the queries of a real run in seconds, by the stub's own record."""
    dataset = write_dataset(folder / "prompts.parquet", workload)
    with Stub(knobs(case.server)) as stub:
        run = run_harness(
            folder,
            *("--input-file", dataset, "--max-samples", len(workload.tokens), "--max-new-tokens", 1000),
            scenario="server",
            urls=stub.urls,
            conf=conf_rows(workload, case.rate),
        )
        log = [row for row in stub.log() if row["tokens"] >= LEAST_TOKENS]  # not the trial request
        print(case.name, "events later than due, us:", [stats["late_us"] for stats in stub.stats()])
    rows: Any = run.requests().sort_values("issued_ns")
    assert rows["sample_index"].tolist() == np.resize(workload.order, len(rows)).tolist()
    first = np.array([row["t_first_event"] for row in log], np.float64)
    done = np.array([row["t_last_event"] for row in log], np.float64)
    ttft: Floats = (first - [row["t_request"] for row in log]) / 1e9
    tpot: Floats = (done - first) / 1e9 / np.maximum(np.array([row["tokens"] for row in log]) - 1, 1)
    return ttft, tpot


def search_all(only: Sequence[str] | None) -> None:
    """Search on each server and print the rates beside the true ones."""
    rows: list[list[object]] = []
    for name, server in SEARCHED.items():
        if only and name not in only:
            continue
        workload = Workload(lengths(1000, mean=TOKENS), min_duration_s=30.0)
        peak = true_peak(server, workload)
        methods = [find_peak, loadgens] if server is SEARCHED["4 ports"] else [find_peak]
        for method in methods:
            with tempfile.TemporaryDirectory() as folder, Stub(knobs(server)) as stub:
                dataset = write_dataset(Path(folder) / "prompts.parquet", workload)
                (Path(folder) / "user.conf").write_text(conf_rows(workload, 0.55 * peak))
                rate, runs, seconds = method(Path(folder), dataset, stub.urls)
            error = f"{100 * (rate / peak - 1):+.1f} %" if rate else "-"
            rows.append([f"{name}: {method.__name__}", peak, rate or 0.0, error, runs, seconds / 60])
    columns = ("server and search", "true qps", "found", "error", "runs", "minutes")
    print_table("peak_stub: searches on the stub", columns, rows)
    save("peak_stub_search", rows)


def find_peak(folder: Path, dataset: Path, urls: Sequence[str]) -> tuple[float | None, str, float]:
    """The rate that find_peak.py finds, its runs and its seconds."""
    begun = time.monotonic()
    words = ["search", "--input-file", dataset, "--user-conf", folder / "user.conf", "--ladder-seconds", 15]
    words += ["--server-url", ",".join(urls), "--output-dir", folder, "--max-new-tokens", 1000]
    subprocess.run([sys.executable, ROOT / "find_peak.py", *map(str, words)], check=False)
    state = read_state(folder / "peak/server/search")
    cut = sum(probe.cut_after_s is not None for probe in state.history.probes)
    for probe in state.history.probes:
        print(probe.rate, probe.verdict, probe.over_ttft, probe.over_tpot, probe.most_over, probe.cut_after_s)
    print(state.conclusion)
    rate = state.conclusion.rate if state.conclusion else None
    return rate, f"{len(state.history.probes) - cut}+{cut} cut", time.monotonic() - begun


def loadgens(folder: Path, dataset: Path, urls: Sequence[str]) -> tuple[float | None, str, float]:
    """The same of LoadGen's FindPeakPerformance."""
    words = ["-m", "benchmarks.peak.loadgen_search", folder, dataset, folder / "user.conf", *urls]
    done = subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    return found["rate"], str(len(found["runs"])), found["s"]


if __name__ == "__main__":
    main()
