#!/usr/bin/env python3
"""Errors of LoadGen's and the harness's times against the times at which the stub server really sent.

    python benchmarks/timing_truth.py [--streams 16 256 500 1024]

Server scenario, Poisson arrivals, 100 tokens 20 ms apart. The true times are the stub's: from the complete
request to the first and last event. The TTFT error contains the time that the harness adds: issue, send,
receive, report. The client share is the harness's own figure for the way back (kernel stamp to LoadGen's
call); its true value is the time from the stub's send stamp to LoadGen's call.
"""

import sys
import tempfile
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import (
    SERVER,
    Measured,
    Stub,
    print_table,
    program_parser,
    run_harness,
    save,
    write_prompts,
)

TOKENS, GAP_US, FIRST_US = 100, 20_000, 100_000
LATENCY_S = (FIRST_US + (TOKENS - 1) * GAP_US) / 1e6 + 0.01


def main() -> None:
    """Measure at each number of streams and print errors in microseconds."""
    parser = program_parser(__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 256, 500, 1024])
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as name:
        for streams in arguments.streams:
            rows += measure(Path(name), streams, arguments.seconds)
    columns = ("streams and quantity", "queries", "mean us", "p50 us", "p99 us", "max us")
    print_table("timing_truth: errors against the stub's own times", columns, rows)
    save("timing_truth", [dict(zip(columns, row, strict=True)) for row in rows])


def measure(folder: Path, streams: int, seconds: float) -> list[list[object]]:
    """One run at ``streams`` streams in flight on average."""
    dataset = write_prompts(folder / "prompts.parquet", 4096, 200)
    qps = streams / LATENCY_S
    knobs = {"gap_us": GAP_US, "first_us": FIRST_US, "jitter_us": 20_000}
    with Stub(knobs) as stub:
        run = run_harness(
            folder,
            *("--input-file", dataset, "--max-new-tokens", TOKENS),
            *("--max-samples", max(64, min(4096, int(qps * seconds)))),
            scenario="server",
            urls=stub.urls,
            conf=SERVER.format(qps, int(seconds * 1000)),
        )
        errors = compare(run, truth_by_sample(stub.log(), dataset))
    return [
        [f"{streams}: {name}", len(values), float(np.mean(values)), *np.percentile(values, (50, 99, 100))]
        for name, values in errors.items()
    ]


def truth_by_sample(log: list[dict[str, int]], dataset: Path) -> dict[int, list[dict[str, int]]]:
    """The stub's records by sample index, in order of arrival; the stub identifies a prompt by its CRC-32."""
    prompts = pq.read_table(dataset)["input_tokens"].to_pylist()
    index_of = {zlib.crc32(",".join(map(str, ids)).encode()): index for index, ids in enumerate(prompts)}
    found: dict[int, list[dict[str, int]]] = defaultdict(list)
    for record in sorted(log, key=lambda record: record["t_request"]):
        if record["tokens"] == TOKENS:  # the trial request asks for fewer
            found[index_of[record["seed"]]].append(record)
    return found


def compare(run: Measured, truth: dict[int, list[dict[str, int]]]) -> dict[str, Any]:
    """Errors in microseconds of each quantity, as reported to LoadGen and as in requests.parquet."""
    rows = run.requests().sort_values("sent_ns")
    turn: dict[int, int] = defaultdict(int)
    records = []
    for index in rows["sample_index"]:
        records.append(truth[index][turn[index]])
        turn[index] += 1
    true = {key: np.array([record[key] for record in records]) for key in records[0]}
    ours = {name: rows[name].to_numpy() for name in rows.columns if name.endswith("_ns")}
    ttft = true["t_first_event"] - true["t_request"]
    tpot = (true["t_last_event"] - true["t_first_event"]) / (TOKENS - 1)
    latency = true["t_last_event"] - true["t_request"]
    reported_tpot = (ours["reported_done_ns"] - ours["reported_first_ns"]) / (TOKENS - 1)
    our_tpot = (ours["last_byte_ns"] - ours["first_token_ns"]) / (TOKENS - 1)
    claimed = ours["reported_first_ns"] - ours["first_token_ns"]
    nanoseconds = {
        "TTFT, LoadGen": ours["reported_first_ns"] - ours["issued_ns"] - ttft,
        "TTFT, requests.parquet from sent": ours["first_token_ns"] - ours["sent_ns"] - ttft,
        "TPOT, LoadGen": reported_tpot - tpot,
        "TPOT, requests.parquet": our_tpot - tpot,
        "latency, LoadGen": ours["reported_done_ns"] - ours["issued_ns"] - latency,
        "client share, claimed minus true": claimed - (ours["reported_first_ns"] - true["t_first_event"]),
    }
    return {name: values / 1000 for name, values in nanoseconds.items()}


if __name__ == "__main__":
    main()
