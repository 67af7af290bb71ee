#!/usr/bin/env python3
"""Capacity of one client core: the complete harness with LoadGen on core 0, the C stub on core 1.

    python benchmarks/client_capacity.py [--repeats 3] [--workers N]

--workers measures only how the rate of short requests grows from one worker to N: each on a core of its own,
which LoadGen's process shares, with as many stubs on the cores behind them.

CPU time covers LoadGen's process and the worker during the test, from run.json. Medians of the repeats.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from math import nan
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import OFFLINE, Measured, Stub, program_parser, report, run_harness, write_prompts
from harness.text import counted

OFFLINE_SAMPLES = 200_000
COLUMNS = ("workload", "per second", "CPU us for each", "client cores", "client share p99 ms")
PACED = {"gap_us": 20_000, "first_us": 100_000, "jitter_us": 20_000}


def main() -> None:
    """Run every workload ``repeats`` times and print the medians."""
    parser = program_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, metavar="N")
    arguments = parser.parse_args()
    repeats = arguments.repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.workers:
            rows = [short(folder, repeats, workers + 1) for workers in range(arguments.workers)]
            report("client_workers", "the complete harness, a core for each worker", COLUMNS, rows)
            return
        rows = [
            offline(folder, repeats),
            # As fast as the stub sends them, and one each 20 ms.
            *(streams(folder, repeats, "burst", 500, 100, 2000, cumulative=c) for c in (0, 1)),
            *(streams(folder, repeats, "paced 20 ms", 512, 250, 512, **PACED, cumulative=c) for c in (0, 1)),
            # The same events in OpenAI's forms, with ids and as text, which is encoded again.
            *(forms(folder, repeats, api, ids) for api in ("completions", "chat-ids") for ids in (1, 0)),
        ]
    report("client_capacity", "the complete harness, client on one core", COLUMNS, rows)


def offline(folder: Path, repeats: int) -> list[object]:
    """Non-streamed answers of 128 tokens to prompts of 2 000: requests per second."""
    dataset = write_prompts(folder / "offline.parquet", 512, 2000)
    flags = ("--input-file", dataset, "--max-new-tokens", 128, "--max-concurrency", 512)
    runs = runs_of(folder, repeats, OFFLINE_SAMPLES, flags)
    return figures("offline, not streamed: requests", runs, [OFFLINE_SAMPLES] * repeats)


def short(folder: Path, repeats: int, workers: int) -> list[object]:
    """Non-streamed answers of one token to prompts of 40, the shortest that a benchmark could have.

    LoadGen can compute no TPOT of them.
    """
    dataset = write_prompts(folder / "short.parquet", 512, 40)
    flags = ("--input-file", dataset, "--max-new-tokens", 1, "--num-workers", workers)
    samples, in_flight = OFFLINE_SAMPLES * workers, ("--max-concurrency", 512 * workers)
    conf = OFFLINE + "*.Offline.use_token_latencies = 0\n"
    runs = runs_of(folder, repeats, samples, (*flags, *in_flight), workers, conf)
    return figures(f"{counted(workers, 'worker')}: requests", runs, [samples] * repeats)


def streams(
    folder: Path, repeats: int, name: str, prompts: int, tokens: int, queries: int, **knobs: int
) -> list[object]:
    """256 streams of answers of ``tokens`` events: rate and CPU of events."""
    flags = stream_flags(folder, prompts, tokens)
    runs = runs_of(folder, repeats, queries, flags, **knobs)
    shape = "cumulative" if knobs["cumulative"] else "incremental"
    return figures(f"{name}, {shape}: events", runs, [run.statistics.output_tokens for run in runs])


def forms(folder: Path, repeats: int, api: str, ids: int) -> list[object]:
    """256 paced streams of vLLM's: with ids, or as text."""
    flags = (*stream_flags(folder, 512, 250), "--backend", "vllm", "--api", api)
    runs = runs_of(folder, repeats, 512, flags, **PACED, ids=ids)
    shape = "ids" if ids else "text"
    return figures(f"paced, {api}, {shape}: events", runs, [run.statistics.output_tokens for run in runs])


def stream_flags(folder: Path, prompts: int, tokens: int) -> tuple[object, ...]:
    """Flags of 256 streams of answers of ``tokens`` tokens."""
    dataset = write_prompts(folder / "streams.parquet", prompts, 200)
    return ("--input-file", dataset, "--max-new-tokens", tokens, "--max-concurrency", 256, "--stream", "on")


def runs_of(
    folder: Path,
    repeats: int,
    queries: int,
    flags: Sequence[object],
    cores: int = 1,
    conf: str = OFFLINE,
    /,
    **knobs: int,
) -> list[Measured]:
    """Offline runs with a stub for each core of the client."""
    runs = []
    with Stub(knobs, cores, range(cores, 2 * cores)) as stub:
        for _ in range(repeats):
            run = run_harness(
                folder,
                *flags,
                scenario="offline",
                urls=stub.urls,
                conf=conf.format(queries),
                cores=range(cores),
            )
            print(f"{counted(cores, 'core')}: {queries / run.seconds:.0f} queries/s", flush=True)
            runs.append(run)
    return runs


def figures(name: str, runs: list[Measured], counts: list[int]) -> list[object]:
    """One table row: medians over the runs; ``counts`` of requests or events in each."""
    seconds = [run.seconds for run in runs]
    return [
        name,
        statistics.median(count / s for count, s in zip(counts, seconds, strict=True)),
        statistics.median(run.cpu_s * 1e6 / count for run, count in zip(runs, counts, strict=True)),
        statistics.median(run.cpu_s / s for run, s in zip(runs, seconds, strict=True)),
        # Offline's answers of text have none: their end is told after their ids.
        statistics.median(run.client_share_ms["99"] if run.record.client_share else nan for run in runs),
    ]


if __name__ == "__main__":
    main()
