#!/usr/bin/env python3
"""Memory over 200 000 streamed queries: resident memory of each process, read every second.

    python benchmarks/memory_flat.py [--queries 200000]

The worker and the supervisor must not grow after the first tenth. LoadGen's process grows by design: LoadGen
keeps the latencies and the log of every query until the end, and the harness 64 bytes of times for each.
Exit code 1 when a process grew more than its bound.
"""

import json
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from bench import OFFLINE, Stub, print_table, program_parser, run_harness, save, write_prompts

STREAMS, TOKENS = 256, 16  # a fixed number in flight: growth is memory that is kept
ROLES = ("supervisor", "LoadGen", "worker")  # in the order of their start
WARM = 0.1  # of the queries
MOST_MIB = {"supervisor": 4.0, "worker": 4.0}
MOST_LOADGEN_BYTES = 512  # for each query


@dataclass(frozen=True)
class Reading:
    """One reading: queries answered so far, resident MiB by role."""

    second: float
    answered: int
    mib: dict[str, float]


class Watch(threading.Thread):
    """Reads the memory of the processes of run_mlperf.py, a child of this process, once a second."""

    def __init__(self, stub_url: str) -> None:
        super().__init__(daemon=True)
        self.readings: list[Reading] = []
        self._stub_url = stub_url
        self._ended = threading.Event()

    def run(self) -> None:
        """Read until ``end`` is called."""
        start = time.monotonic()
        while not self._ended.wait(1.0):
            mib = resident()
            with suppress(OSError):  # a stub that is too busy to answer: no reading this time
                if len(mib) < len(ROLES):
                    continue
                self.readings.append(Reading(time.monotonic() - start, answered(self._stub_url), mib))

    def end(self) -> list[Reading]:
        """All readings, one before the first answer and one after the last included."""
        self._ended.set()
        self.join()
        return self.readings


def resident() -> dict[str, float]:
    """Resident MiB of each role; fewer roles before all have started and after the first has ended."""
    for program in psutil.Process().children():
        try:
            if any(word.endswith("run_mlperf.py") for word in program.cmdline()):
                children = [c for c in program.children() if "spawn_main" in " ".join(c.cmdline())]
                family = [program, *sorted(children, key=lambda child: child.create_time())]
                return {role: p.memory_info().rss / 2**20 for role, p in zip(ROLES, family, strict=False)}
        except psutil.Error:
            continue
    return {}


def answered(stub_url: str) -> int:
    """Complete answers so far, counted by the server."""
    with urllib.request.urlopen(stub_url + "/_stats", timeout=10) as answer:
        return int(json.loads(answer.read())["completed"])


def main() -> int:
    """Run once. Returns 1 when memory grew."""
    parser = program_parser(__doc__)
    parser.add_argument("--queries", type=int, default=200_000)
    queries = parser.parse_args().queries
    with tempfile.TemporaryDirectory() as name, Stub(gap_us=1000) as stub:
        dataset = write_prompts(Path(name) / "prompts.parquet", 512, 64)
        watch = Watch(stub.urls[0])
        watch.start()
        flags = ("--input-file", dataset, "--max-new-tokens", TOKENS, "--num-workers", 1)
        flags = (*flags, "--max-concurrency", STREAMS, "--stream", "on")
        conf = OFFLINE.format(queries)
        run = run_harness(Path(name), *flags, scenario="offline", urls=stub.urls, conf=conf)
        readings = [reading for reading in watch.end() if 0 < reading.answered < queries]
    print(f"{run.statistics.completed} of {run.statistics.queries} completed, {len(readings)} readings")
    rows = table(readings, WARM * queries)
    columns = ("process", "MiB after a tenth", "MiB at the end", "grew MiB", "bytes a query", "bound MiB")
    print_table("memory_flat", columns, rows)
    save("memory_flat", {"rows": [dict(zip(columns, row, strict=True)) for row in rows],
                         "readings": [vars_of(reading) for reading in readings]})  # fmt: skip
    flat = all(float(str(row[3])) <= float(str(row[5])) for row in rows)
    return 0 if flat and run.statistics.completed >= queries else 1


def table(readings: Sequence[Reading], warm: float) -> list[list[object]]:
    """A row for each process: growth from the first reading after ``warm`` queries to the last."""
    first, last = next(reading for reading in readings if reading.answered >= warm), readings[-1]
    served = last.answered - first.answered
    bounds = {**MOST_MIB, "LoadGen": MOST_LOADGEN_BYTES * served / 2**20}
    rows: list[list[object]] = []
    for role in ROLES:
        grew = max(reading.mib[role] for reading in readings if reading.answered >= warm) - first.mib[role]
        rows.append([role, first.mib[role], last.mib[role], grew, grew * 2**20 / served, bounds[role]])
    return rows


def vars_of(reading: Reading) -> dict[str, object]:
    """A reading as JSON."""
    return {"second": round(reading.second, 1), "answered": reading.answered, **reading.mib}


if __name__ == "__main__":
    sys.exit(main())
