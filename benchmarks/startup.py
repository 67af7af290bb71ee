#!/usr/bin/env python3
"""Start-up time: --help, imports, a full-size dataset, and the largest Offline query ever submitted.

    python benchmarks/startup.py [--repeats 3] [--whole]

LoadGen passes Offline's samples as two lists; the dispatcher makes arrays of them. ``--whole`` also sends all
of them through the complete harness to the stub server (minutes).
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import OFFLINE, ROOT, Stub, print_table, program_parser, run_harness, save, write_prompts

LARGEST = 3_590_400  # samples in the Offline query of 512 GPUs
ISSUE = f"""
import socket, sys, time
sys.path.insert(0, {str(ROOT)!r})
from sut.loadgen.dispatcher import Dispatcher, WorkerChannel
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
ours, theirs = socket.socketpair()
ids, indexes = list(range({LARGEST})), [i % 6396 for i in range({LARGEST})]
channel, counts = WorkerChannel(ours, 1024), memoryview(bytearray(128)).cast("q")
dispatcher = Dispatcher([channel], counts, lambda queries: None)
before = peak()
start = time.monotonic()
dispatcher.issue(ids, indexes)
print(time.monotonic() - start, peak() - before)
"""


def main() -> None:
    """Measure everything ``repeats`` times and print medians."""
    parser = program_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--whole", action="store_true", help="run the largest Offline query to its end, once")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = list(measured(Path(name), arguments.repeats))
        if arguments.whole:
            rows += whole(Path(name))
    print_table("startup", ("what", "seconds", "MiB"), rows)
    save("startup", {row[0]: row[1:] for row in rows})


def measured(folder: Path, repeats: int) -> Iterator[list[object]]:
    """The steps that take seconds."""
    small = write_prompts(folder / "small.parquet", 6396, 1500)
    large = write_prompts(folder / "large.parquet", 6396, 8000)
    measures: dict[str, Callable[[], list[float]]] = {
        "run_mlperf.py --help": lambda: run_seconds(str(ROOT / "run_mlperf.py"), "--help"),
        "import of everything that a run needs": lambda: run_seconds("-c", "import sut.run"),
        "load 6 396 rows of 1 500 tokens": lambda: printed(load_code(small)),
        "load 6 396 rows of 8 000 tokens": lambda: printed(load_code(large)),
        f"issue {LARGEST:,} samples in one query": lambda: printed(ISSUE),
    }
    for name, measure in measures.items():
        found = [measure() for _ in range(repeats)]
        medians = [statistics.median(values) for values in zip(*found, strict=True)]
        yield [name, *medians, *["-"] * (2 - len(medians))]


def whole(folder: Path) -> list[list[object]]:
    """The largest Offline query through LoadGen, worker and stub, with short answers so that it ends."""
    dataset = write_prompts(folder / "whole.parquet", 6396, 200)
    flags = ("--input-file", dataset, "--max-new-tokens", 4, "--max-concurrency", 512)
    start = time.monotonic()
    with Stub() as stub:
        run = run_harness(folder, *flags, scenario="offline", urls=stub.urls, conf=OFFLINE.format(LARGEST))
    seconds = time.monotonic() - start
    first_ns = run.requests("issued_ns", "sent_ns").min()
    print(f"{run.statistics.completed} completed, failures {run.statistics.failures}, CPU {run.cpu_s:.0f} s")
    return [
        ["the same, complete run: total", seconds, run.peak_rss_mib],
        ["the same: from issue to last answer", run.seconds, "-"],
        ["the same: from issue to the first request sent", (first_ns.iloc[1] - first_ns.iloc[0]) / 1e9, "-"],
    ]


def run_seconds(*arguments: str) -> list[float]:
    """Wall seconds of a complete Python process."""
    start = time.monotonic()
    subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return [time.monotonic() - start]


def printed(code: str) -> list[float]:
    """The seconds and the memory that a program prints."""
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def load_code(path: Path) -> str:
    """A program that times load_samples."""
    return (
        "import time; from pathlib import Path; from harness.dataset.samples import load_samples; "
        f"import numpy, pyarrow.parquet; start = time.monotonic(); "
        f"load_samples(Path({str(path)!r}), vocabulary_size=201088); print(time.monotonic() - start)"
    )


if __name__ == "__main__":
    main()
