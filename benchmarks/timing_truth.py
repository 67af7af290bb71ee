#!/usr/bin/env python3
"""Errors of LoadGen's and the harness's times against the times at which the stub server really sent.

    python benchmarks/timing_truth.py [--streams 16 256 500 1024] [--text]

Server scenario, Poisson arrivals, 100 tokens 20 ms apart. The true times are the stub's: from the complete
request to the first and last event. The TTFT error contains the time that the harness adds: issue, send,
receive, report. The client share is the harness's own figure for the way back (kernel stamp to LoadGen's
call); its true value is the time from the stub's send stamp to LoadGen's call.

--text: instead, 240 queries/s of 1 000 tokens in events of 40, with ids and as text, which an encoder process
gives ids; on two cores, as the encoder does not share the worker's.
"""

import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import SERVER, Measured, Stub, program_parser, report, run_harness, write_prompts

TOKENS, GAP_US, FIRST_US = 100, 20_000, 100_000
TEXT_TOKENS, TEXT_EVENT, TEXT_QPS = 1000, 40, 240
# Few queries are enough for errors, not for LoadGen's 99th percentile.
CONF = SERVER + "*.Server.target_latency_percentile = 50\n"
LATENCY_S = (FIRST_US + (TOKENS - 1) * GAP_US) / 1e6 + 0.01


def main() -> None:
    """Measure at each number of streams and print errors in microseconds."""
    parser = program_parser(__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 256, 500, 1024])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--text", action="store_true")
    arguments = parser.parse_args()
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as name:
        if arguments.text:
            for api, ids in (("completions", 1), ("completions", 0), ("chat-ids", 0)):
                rows += measure_text(Path(name), api, ids, arguments.seconds)
        else:
            for streams in arguments.streams:
                rows += measure(Path(name), streams, arguments.seconds)
    columns = ("streams and quantity", "queries", "mean us", "p50 us", "p99 us", "max us")
    report("timing_truth", "errors against the stub's own times", columns, rows)


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
            conf=CONF.format(qps, int(seconds * 1000)),
        )
        errors = compare(run, truth_by_sample(stub.log(), dataset, TOKENS), TOKENS)
    return list(figures(str(streams), errors))


def measure_text(folder: Path, api: str, ids: int, seconds: float) -> list[list[object]]:
    """One run of vLLM's forms whose answers have ids, or are text."""
    dataset = write_prompts(folder / "prompts.parquet", 4096, 200)
    knobs = {"gap_us": 400_000, "first_us": FIRST_US, "jitter_us": 20_000, "tokens_per_event": TEXT_EVENT}
    with Stub(knobs | {"cumulative": 0, "text": 1, "ids": ids}) as stub:
        run = run_harness(
            folder,
            *("--input-file", dataset, "--max-new-tokens", TEXT_TOKENS, "--num-workers", 1),
            *("--backend", "vllm", "--api", api),
            scenario="server",
            urls=stub.urls,
            conf=SERVER.format(TEXT_QPS, int(seconds * 1000)),
            cores=(0, 1),
        )
        truth = truth_by_sample(stub.log(), dataset, TEXT_TOKENS)
    return list(figures(f"{api}, {'ids' if ids else 'text'}", compare(run, truth, TEXT_TOKENS)))


def figures(name: str, errors: dict[str, Any]) -> Iterator[list[object]]:
    """A row of the table for each quantity."""
    for quantity, values in errors.items():
        row = (len(values), float(np.mean(values)), *np.percentile(values, (50, 99, 100)))
        yield [f"{name}: {quantity}", *row]


def truth_by_sample(log: list[dict[str, int]], dataset: Path, tokens: int) -> dict[int, list[dict[str, int]]]:
    """The stub's records by sample index, in order of arrival; the stub identifies a prompt by its CRC-32."""
    prompts = pq.read_table(dataset)["input_tokens"].to_pylist()
    index_of = {zlib.crc32(",".join(map(str, ids)).encode()): index for index, ids in enumerate(prompts)}
    found: dict[int, list[dict[str, int]]] = defaultdict(list)
    for record in sorted(log, key=lambda record: record["t_request"]):
        if record["tokens"] == tokens:  # the trial request asks for fewer
            found[index_of[record["seed"]]].append(record)
    return found


def compare(run: Measured, truth: dict[int, list[dict[str, int]]], tokens: int) -> dict[str, Any]:
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
    tpot = (true["t_last_event"] - true["t_first_event"]) / (tokens - 1)
    latency = true["t_last_event"] - true["t_request"]
    reported_tpot = (ours["reported_done_ns"] - ours["reported_first_ns"]) / (tokens - 1)
    our_tpot = (ours["last_byte_ns"] - ours["first_token_ns"]) / (tokens - 1)
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
