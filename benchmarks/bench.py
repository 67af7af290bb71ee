"""Shared by the benchmarks: the stub server, and the complete harness as the program under measurement."""

import argparse
import csv
import io
import json
import math
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.files import REQUESTS, ROOT, RUN_RECORD
from harness.record.run_record import RunRecord, Statistics
from harness.text import aligned

RESULTS = Path(os.environ.get("BENCH_RESULTS", ROOT / "benchmarks/results"))
STUB = ROOT / "benchmarks/stub/stub_server"
# LoadGen's settings: the number of queries; the rate and the milliseconds of a run.
OFFLINE = "*.Offline.target_qps = 1\n*.Offline.min_duration = 0\n*.Offline.min_query_count = {}\n"
SERVER = "*.Server.target_qps = {}\n*.Server.min_duration = {}\n*.Server.min_query_count = 1\n"
PORT = int(os.environ.get("BENCH_PORT", "31900"))  # the first of the stub servers


class Stub:
    """Stub servers on consecutive ports, ``ports`` for each process; ``knobs`` as in stub/README.md."""

    def __init__(
        self,
        knobs: Mapping[str, int | str],
        processes: int = 1,
        cores: Sequence[int] = (1,),
        ports: int = 1,
    ) -> None:
        if _is_stale(STUB):
            subprocess.run([ROOT / "benchmarks/stub/build.sh"], check=True)
        self.urls = [f"http://127.0.0.1:{PORT + index}" for index in range(processes * ports)]
        flags = [word for knob, value in knobs.items() for word in (f"--{knob}", str(value))]
        flags += ["--ports", str(ports)]
        self._commands = [
            [str(STUB), "--port", str(PORT + index * ports), *flags] for index in range(processes)
        ]
        self._of_process = self.urls[::ports]
        self._cores = pinned(cores)
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._running = [
            subprocess.Popen(
                command, stderr=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, self._cores)
            )
            for command in self._commands
        ]
        for url in self.urls:
            _wait_for(url)
        if any(process.poll() is not None for process in self._running):  # another one answers there
            raise SystemExit(f"a stub server ended at once: are the ports from {PORT} on taken? (BENCH_PORT)")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.terminate()
            process.wait()

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [process.pid for process in self._running]

    def stats(self) -> list[dict[str, Any]]:
        """The counts of each process."""
        return [json.loads(_get(url, "/_stats")) for url in self._of_process]

    def log(self) -> list[dict[str, int]]:
        """The true times of every complete answer, trial requests excluded."""
        rows: list[dict[str, int]] = []
        for url in self._of_process:
            rows += [
                {key: int(value) for key, value in row.items() if value.isdecimal()}
                for row in csv.DictReader(io.StringIO(_get(url, "/_log")))
            ]
        return rows


@dataclass(frozen=True)
class Measured:
    """One finished run of the harness."""

    record: RunRecord
    log_dir: Path
    peak_rss_mib: float

    @property
    def cpu_s(self) -> float:
        """CPU seconds of LoadGen's process and the workers during the test."""
        return self.record.client_cpu_s or 0.0

    @property
    def statistics(self) -> Statistics:
        """Figures of the journal."""
        assert self.record.statistics is not None
        return self.record.statistics

    @property
    def seconds(self) -> float:
        """From the first issue to the last byte of the last completed answer; nan where there is none."""
        return (self.statistics.duration_ns or math.nan) / 1e9

    @property
    def client_share_ms(self) -> Mapping[str, float]:
        """Percentiles of the client share."""
        assert self.record.client_share is not None
        return {percent: ns / 1e6 for percent, ns in self.record.client_share.percentiles.items()}

    def requests(self, *columns: str) -> Any:
        """requests.parquet as a DataFrame."""
        return pq.read_table(self.log_dir / REQUESTS, columns=list(columns) or None).to_pandas()


def program_parser(description: str | None) -> argparse.ArgumentParser:
    """Shows a module's docstring as it is."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def write_prompts(path: Path, rows: int, length: int) -> Path:
    """A dataset of distinct prompts."""
    ids = (np.arange(rows)[:, None] * 7919 + np.arange(length)[None, :] * 31) % 100_000 + 1000
    offsets = pa.array(np.arange(0, rows * length + 1, length), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array(ids.ravel(), pa.int32()))
    pq.write_table(pa.table({"input_tokens": lists}), path)
    return path


def run_harness(
    folder: Path,
    *flags: object,
    scenario: str,
    urls: Sequence[str],
    conf: str,
    cores: Sequence[int] = (0,),
    program: Sequence[object] = (ROOT / "run_mlperf.py",),
) -> Measured:
    """Run run_mlperf.py, pinned to ``cores``, and read its results. Raises SystemExit when it failed.

    ``program``: Python's arguments before the flags.
    """
    conf_path = folder / "user.conf"
    conf_path.write_text(conf)
    words = [sys.executable, *program, "--scenario", scenario, "--user-conf", conf_path]
    words += ["--server-url", ",".join(urls), "--output-dir", folder, "--log-level", "warning", *flags]
    process = subprocess.Popen(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, pinned(cores)),
    )
    peak = _watch_memory(process)
    output, _ = process.communicate()
    log_dir = folder / scenario / "performance"
    if process.returncode not in (0, 4):
        raise SystemExit(f"run_mlperf.py ended with {process.returncode}:\n{output[-3000:]}")
    run = Measured(RunRecord.read(log_dir / RUN_RECORD), log_dir, peak)
    if run.statistics.failures:
        print(f"FAILURES: {run.statistics.failures} {run.record.failure_examples}")
    return run


def pinned(cores: Sequence[int]) -> set[int]:
    """Those of ``cores`` that exist here, otherwise all: on one core everything shares it."""
    there = os.sched_getaffinity(0)
    return set(cores) & there or there


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns; numbers have three significant digits."""
    print(f"\n{title}", *aligned([columns, *([_text(cell) for cell in row] for row in rows)], "<>"), sep="\n")


def report(name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, and save its rows by the names of the columns."""
    print_table(f"{name}: {title}", columns, rows)
    save(name, [dict(zip(columns, row, strict=True)) for row in rows])


def save(name: str, result: object, *, quiet: bool = False) -> None:
    """Write the result as JSON under benchmarks/results/, or the folder that BENCH_RESULTS names."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2, default=float) + "\n")
    if not quiet:
        print(f"\nwritten to {path}")


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return str(cell)


def _get(url: str, path: str) -> str:
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def _is_stale(program: Path) -> bool:
    sources = max(path.stat().st_mtime for path in program.parent.glob("*.[ch]"))
    return not program.exists() or program.stat().st_mtime < sources


def _wait_for(url: str) -> None:
    for _ in range(200):
        try:
            _get(url, "/health")
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise SystemExit(f"{url}: the stub server does not answer")


def resident_mib(processes: Iterable[int]) -> float:
    """Resident memory of processes: a page that several have, as copies of one another do, is shared out."""
    total_kib = 0
    for pid in processes:
        with suppress(OSError, IndexError):  # it has ended
            total_kib += int(Path(f"/proc/{pid}/smaps_rollup").read_text().partition("\nPss:")[2].split()[0])
    return total_kib / 1024


def _watch_memory(process: "subprocess.Popen[str]") -> float:
    """Peak of the resident memory of the program and its children together, in MiB, looked at every 2 s.

    The kernel walks the page tables: a client of several GB stands still for some ms meanwhile.
    """
    import psutil

    peak = 0.0
    while process.poll() is None:
        time.sleep(2.0)
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children(recursive=True)
            peak = max(peak, resident_mib([process.pid, *(child.pid for child in children)]))
    return peak
