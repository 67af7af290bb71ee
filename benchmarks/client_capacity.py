#!/usr/bin/env python3
"""Capacity of one client core: the complete harness with LoadGen on core 0, the C stub on core 1.

    python benchmarks/client_capacity.py [--repeats 3]

CPU time covers LoadGen's process and the worker during the test, from run.json. Medians of the repeats.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from bench import Measured, Stub, print_table, run_harness, save, write_prompts

OFFLINE_SAMPLES, BURST_SAMPLES, PACED_STREAMS = 200_000, 2_000, 256
OFFLINE = "*.Offline.target_qps = 1\n*.Offline.min_duration = 0\n*.Offline.min_query_count = {}\n"


def main() -> None:
    """Run every workload ``repeats`` times and print the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            offline(folder, repeats),
            *(burst(folder, repeats, cumulative) for cumulative in (0, 1)),
            *(paced(folder, repeats, cumulative) for cumulative in (0, 1)),
        ]
    columns = ("workload", "per second", "CPU us for each", "client cores", "client share p99 ms")
    print_table("client_capacity: the complete harness, client on one core", columns, rows)
    save("client_capacity", [dict(zip(columns, row, strict=True)) for row in rows])


def offline(folder: Path, repeats: int) -> list[object]:
    """Non-streamed answers of 128 tokens to prompts of 2 000: requests per second."""
    dataset = write_prompts(folder / "offline.parquet", 512, 2000)
    flags = ("--input-file", dataset, "--max-new-tokens", 128, "--max-concurrency", 512)
    with Stub() as stub:
        runs = [
            run_harness(
                folder, *flags, scenario="offline", urls=stub.urls, conf=OFFLINE.format(OFFLINE_SAMPLES)
            )
            for _ in range(repeats)
        ]
    return figures("offline, not streamed: requests", runs, [OFFLINE_SAMPLES] * repeats)


def burst(folder: Path, repeats: int, cumulative: int) -> list[object]:
    """256 streams of 100 events as fast as the stub sends them: events per second."""
    dataset = write_prompts(folder / "burst.parquet", 500, 200)
    flags = ("--input-file", dataset, "--max-new-tokens", 100, "--max-concurrency", 256, "--stream", "on")
    with Stub(cumulative=cumulative) as stub:
        runs = [
            run_harness(
                folder, *flags, scenario="offline", urls=stub.urls, conf=OFFLINE.format(BURST_SAMPLES)
            )
            for _ in range(repeats)
        ]
    shape = "cumulative" if cumulative else "incremental"
    return figures(f"burst, {shape}: events", runs, [run.statistics.output_tokens for run in runs])


def paced(folder: Path, repeats: int, cumulative: int) -> list[object]:
    """256 streams of 250 events, one each 20 ms: CPU per event."""
    dataset = write_prompts(folder / "paced.parquet", 512, 200)
    flags = ("--input-file", dataset, "--max-new-tokens", 250, "--max-concurrency", PACED_STREAMS)
    flags = (*flags, "--stream", "on")
    knobs = {"gap_us": 20_000, "first_us": 100_000, "jitter_us": 20_000, "cumulative": cumulative}
    with Stub(**knobs) as stub:
        runs = [
            run_harness(folder, *flags, scenario="offline", urls=stub.urls, conf=OFFLINE.format(512))
            for _ in range(repeats)
        ]
    shape = "cumulative" if cumulative else "incremental"
    return figures(f"paced 20 ms, {shape}: events", runs, [run.statistics.output_tokens for run in runs])


def figures(name: str, runs: list[Measured], counts: list[int]) -> list[object]:
    """One table row: medians over the runs; ``counts`` of requests or events in each."""
    seconds = [run.seconds for run in runs]
    return [
        name,
        statistics.median(count / s for count, s in zip(counts, seconds, strict=True)),
        statistics.median(run.cpu_s * 1e6 / count for run, count in zip(runs, counts, strict=True)),
        statistics.median(run.cpu_s / s for run, s in zip(runs, seconds, strict=True)),
        statistics.median(run.client_share_ms["99"] for run in runs),
    ]


if __name__ == "__main__":
    main()
