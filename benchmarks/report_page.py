#!/usr/bin/env python3
"""The cost of report.html for a long run: time, memory and size of the page for N made-up queries.

python benchmarks/report_page.py [--queries 2400000] [--replicas 512]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench import ROOT, print_table, program_parser, save

from harness.files import REPORT, REQUESTS, SUMMARY

_MILLION = 1_000_000
# ru_maxrss of a child would hold this process's own peak from before its exec.
_PROGRAM = """
import re, sys, time
from harness.pages.cli import main
assert main(sys.argv[1:]) == 0
print(round(time.process_time(), 2), re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def main() -> None:
    """Write the table, build its page in a separate process, print the cost."""
    parser = program_parser(__doc__)
    parser.add_argument("--queries", type=int, default=2_400_000)
    parser.add_argument("--replicas", type=int, default=512)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(requests(arguments.queries, arguments.replicas), folder / REQUESTS, compression="zstd")
        recorded = ROOT / "tests/data/loadgen/server_invalid" / SUMMARY
        (folder / SUMMARY).write_bytes(recorded.read_bytes())
        begin = time.monotonic()
        command = [sys.executable, "-c", _PROGRAM, "html", folder]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        wall = time.monotonic() - begin
        cpu_s, peak_kib = done.stdout.splitlines()[-1].split()
        rows = [
            ["queries", arguments.queries],
            ["wall, s", round(wall, 2)],
            ["CPU, s", float(cpu_s)],
            ["memory, MiB", int(peak_kib) // 1024],
            ["page, kB", (folder / REPORT).stat().st_size // 1000],
        ]
    print_table("report_page", ("", "value"), rows)
    save("report_page", dict(rows))


def requests(count: int, replicas: int) -> pa.Table:
    """requests.parquet's columns that a page reads: 4,000 queries a second, 600 to 2,500 tokens each."""
    random = np.random.default_rng(1)
    issued = 10**15 + np.sort(random.random(count) * count / 4000 * 1e9).astype(np.int64)
    first = issued + (random.gamma(3, 0.25, count) * 1e9).astype(np.int64)
    osl = random.integers(600, 2500, count).astype(np.uint32)
    tpot = random.normal(50 * _MILLION, 8 * _MILLION, count)
    urls = [f"http://10.0.{number // 256}.{number % 256}:30000" for number in range(replicas)]
    codes = random.integers(0, replicas, count).astype(np.int32)
    nothing = pa.array(np.zeros(count, np.int32), mask=np.ones(count, dtype=bool))
    columns = {
        "issued_ns": issued,
        "first_token_ns": first,
        "last_byte_ns": first + ((osl - 1) * tpot).astype(np.int64),
        "isl": random.integers(50, 3000, count).astype(np.uint32),
        "osl": osl,
        "resumed": np.zeros(count, dtype=bool),
        "replica": pa.DictionaryArray.from_arrays(codes, urls),
        "finish_reason": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["stop"]),
        "failure": pa.DictionaryArray.from_arrays(nothing, ["timeout"]),
    }
    return pa.table(columns)


if __name__ == "__main__":
    main()
