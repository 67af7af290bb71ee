#!/usr/bin/env python3
"""Issue delay: from LoadGen's scheduled time to the last byte of the request in the kernel.

For each query, LoadGen's trace has the delay from the scheduled time to the issue callback, and
requests.parquet has the rest. The mean of the first is compared with the schedule lag that run.json
derives without a trace. Run it on a quiet machine; the stub server runs on the same one.

    benchmarks/stub/build.sh && python benchmarks/issue_delay.py --qps 100 --answer-s 2
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.files import REQUESTS  # noqa: E402
from harness.record.run_record import RunRecord  # noqa: E402

PORT = 31999
TOKENS = 50


def main() -> None:
    """Measure once and print a table in microseconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--qps", type=float, default=100)
    parser.add_argument("--answer-s", type=float, default=2.0, help="how long each answer streams")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = start_stub(arguments.answer_s)
        try:
            record = run(Path(folder), arguments)
        finally:
            server.terminate()
            server.wait()
        report(record, arguments)


def start_stub(answer_s: float) -> "subprocess.Popen[bytes]":
    """The C stub, streaming TOKENS tokens one by one over ``answer_s``."""
    binary = ROOT / "benchmarks/stub/stub_server"
    gap_us = int(answer_s * 1e6 / TOKENS)
    server = subprocess.Popen([binary, "--port", str(PORT), "--gap_us", str(gap_us), "--first_us", "50000"])
    for _ in range(100):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return server
    raise SystemExit("the stub server does not answer; was it built?")


def run(folder: Path, arguments: argparse.Namespace) -> RunRecord:
    """One traced server run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from harness.cli.run_flags import parse_options
    from harness.config.plan import resolve_plan
    from sut.run import run as run_plan

    prompts = [[1000 + (row * 7919 + i * 31) % 100_000 for i in range(2000)] for row in range(256)]
    pq.write_table(pa.table({"input_tokens": prompts}), folder / "prompts.parquet")
    conf = folder / "user.conf"
    conf.write_text(
        f"*.Server.target_qps = {arguments.qps}\n*.Server.min_duration = {int(arguments.seconds * 1000)}\n"
        "*.Server.min_query_count = 1\n"
    )
    flags = ["--scenario", "server", "--server-url", f"http://127.0.0.1:{PORT}", "--output-dir", str(folder)]
    flags += ["--input-file", str(folder / "prompts.parquet"), "--user-conf", str(conf)]
    flags += [
        "--max-new-tokens",
        str(TOKENS),
        "--num-workers",
        str(arguments.workers),
        "--log-level",
        "warning",
    ]
    plan = resolve_plan(parse_options(flags))
    return run_plan(plan, trace=True)


def report(record: RunRecord, arguments: argparse.Namespace) -> None:
    """Join LoadGen's trace and requests.parquet, both in order of issue, and print percentiles."""
    import numpy as np
    import pyarrow.parquet as pq

    log_dir = record.plan.log_dir
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
