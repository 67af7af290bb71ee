#!/usr/bin/env python3
"""The model in virtual time against the stub server, LoadGen and the client, at the same rates.

    python benchmarks/peak_stub.py [--seconds 20]

Real runs against the stub's decode batches (benchmarks/stub/batch.c), and the simulation of the same
schedule and samples (benchmarks/peak/server_model.py). The stub begins a prefill after the running step, and
a step with the running requests of its begin; the model does neither, so that TTFT differs by up to a step.
The real times are the stub's own, from the complete request on. BENCH_PORT is the first port.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench import Stub, print_table, run_harness, save

from benchmarks.peak.server_model import Server
from benchmarks.peak.workload import LEAST_TOKENS, Floats, Workload, lengths

ROWS, TOKENS, PROMPT = 480, 60.0, 40
MS = 1000


@dataclass(frozen=True)
class Case:
    """A server and a rate."""

    name: str
    server: Server
    rate: float


_BASE = {"step_s": 0.020, "stream_s": 1e-3, "prefill_s": 0.004}
CASES = (
    Case("1 port, half load", Server(**_BASE), 8.0),
    Case("1 port", Server(**_BASE), 11.0),
    Case("2 ports, 12 slots, queue", Server(**_BASE, replicas=2, slots=12), 13.0),
    Case("4 ports, one 30 % slower", Server(**_BASE, replicas=4, slow=1.3), 32.0),
    Case("1 port, 10 % slower when warm", Server(**_BASE, drift=0.1, drift_s=10.0), 8.0),
)


def main() -> None:
    """Run each case for real and in virtual time, and print both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
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
        f"{MS * _at(mine, share):.4g}, {MS * _at(theirs, share):.4g}"
        for mine, theirs in zip(real, (answers.ttft, answers.tpot), strict=True)
        for share in (0.5, 0.99)
    ]
    return [case.name, len(answers.done), *cells]


def write_dataset(path: Path, workload: Workload) -> Path:
    """Prompts whose first id is the number of tokens of their answers (the stub's ``first_id_tokens``)."""
    ids = [[int(tokens), *range(row + 1, row + PROMPT)] for row, tokens in enumerate(workload.tokens)]
    pq.write_table(pa.table({"input_tokens": pa.array(ids, pa.list_(pa.int32()))}), path)
    return path


def knobs(server: Server) -> dict[str, int]:
    """The stub's knobs for a server without noise."""
    return {
        "ports": server.replicas,
        "first_id_tokens": 1,
        "cumulative": 0,
        "batch_us": round(server.step_s * 1e6),
        "stream_ns": round(server.stream_s * 1e9),
        "square_ps": round(server.square_s * 1e12),
        "slots": server.slots if server.slots < 1_000_000 else 0,
        "prefill_us": round(server.prefill_s * 1e6),
        "slow_permille": round(1000 * (server.slow - 1)),
        "drift_permille": round(1000 * server.drift),
        "drift_s": round(server.drift_s),
    }


def _real(folder: Path, case: Case, workload: Workload) -> tuple[Floats, Floats]:
    """TTFT and TPOT of the queries of a real run in seconds, by the stub's own record."""
    dataset = write_dataset(folder / "prompts.parquet", workload)
    conf = (
        f"*.Server.target_qps = {case.rate}\n*.Server.min_duration = {workload.min_duration_s * 1000:.0f}\n"
    )
    with Stub(**knobs(case.server)) as stub:
        run = run_harness(
            folder,
            *("--input-file", dataset, "--max-samples", len(workload.tokens), "--max-new-tokens", 1000),
            scenario="server",
            urls=stub.urls,
            conf=conf + "*.Server.min_query_count = 1\n",
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


def _at(values: Floats, share: float) -> float:
    """LoadGen's percentile."""
    return float(np.sort(values)[int(share * len(values))])


if __name__ == "__main__":
    main()
