#!/usr/bin/env python3
"""Issue delay: from LoadGen's scheduled time to the last byte of the request in the kernel.

For each query, LoadGen's trace has the delay from the scheduled time to the issue callback, and
requests.parquet has the rest. The mean of the first is compared with the schedule lag that run.json
derives without a trace. Run it on a quiet machine; the stub server runs on the same one.

    python benchmarks/issue_delay.py --qps 100 --answer-s 2
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import SERVER, Stub, program_parser, write_prompts
from harness.config.run_options import parse_options
from harness.config.run_plan import resolve_plan
from harness.files import REQUESTS
from harness.record.run_record import RunRecord
from sut.run import run as run_plan

TOKENS = 50


def main() -> None:
    """Measure once and print a table in microseconds."""
    parser = program_parser(__doc__)
    parser.add_argument("--qps", type=float, default=100)
    parser.add_argument("--answer-s", type=float, default=2.0, help="how long each answer streams")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    gap_us = int(arguments.answer_s * 1e6 / TOKENS)
    with tempfile.TemporaryDirectory() as folder:
        with Stub({"gap_us": gap_us, "first_us": 50_000}) as stub:
            record = run(Path(folder), stub.urls[0], arguments)
        report(record, arguments)


def run(folder: Path, url: str, arguments: argparse.Namespace) -> RunRecord:
    """One traced server run."""
    conf = folder / "user.conf"
    conf.write_text(SERVER.format(arguments.qps, int(arguments.seconds * 1000)))
    prompts = write_prompts(folder / "prompts.parquet", 256, 2000)
    words = ["--scenario", "server", "--server-url", url, "--output-dir", folder, "--user-conf", conf]
    words += ["--input-file", prompts, "--max-new-tokens", TOKENS, "--num-workers", arguments.workers]
    plan = resolve_plan(parse_options([*map(str, words), "--log-level", "warning"]))
    return run_plan(plan, trace=True)


def report(record: RunRecord, arguments: argparse.Namespace) -> None:
    """Join LoadGen's trace and requests.parquet, both in order of issue, and print percentiles."""
    log_dir = record.plan.client.log_dir
    rows = pq.read_table(log_dir / REQUESTS, columns=["issued_ns", "sent_ns"]).to_pandas()
    trace = (log_dir / "mlperf_log_trace.json").read_text()
    starts = re.findall(r'"name":"Sample".*?"sample_seq":(\d+),.*?"issue_start_ns":(\d+)', trace)
    schedule_lag = np.array([int(lag) for _, lag in sorted(starts, key=lambda pair: int(pair[0]))])
    hand_over = (rows["sent_ns"] - rows["issued_ns"]).to_numpy()
    streams = arguments.qps * arguments.answer_s
    print(f"\n{len(rows)} queries, about {streams:.0f} streams in flight, microseconds")
    print(f"{'':<32}{'mean':>9}{'p50':>9}{'p90':>9}{'p99':>9}{'max':>9}")
    figures = {
        "scheduled to issue callback": schedule_lag,
        "issue callback to bytes sent": hand_over,
        "scheduled to bytes sent": schedule_lag + hand_over,
    }
    result = {}
    for name, values in figures.items():
        points = [float(point) / 1000 for point in (values.mean(), *np.percentile(values, (50, 90, 99, 100)))]
        result[name] = dict(zip(("mean", "p50", "p90", "p99", "max"), points, strict=True))
        print(f"{name:<32}" + "".join(f"{point:9.0f}" for point in points))
    derived = (record.schedule_lag_mean_ns or float("nan")) / 1000
    print(f"{'run.json: schedule lag':<32}{derived:9.0f}")
    print(json.dumps(result | {"run.json": {"mean": derived}}))


if __name__ == "__main__":
    main()
