#!/usr/bin/env python3
"""The heaviest submitted Server loads, from this machine.

    python benchmarks/record_load.py --load 72-gpu [--hold-s 180]
    python benchmarks/record_load.py --load 512-gpu [--scale 0.5] [--cores 8]
    python benchmarks/record_load.py --load long-answers --hold-s 280

Poisson arrivals, stream interval 100, and answers as long as the submitted systems gave: gpt-oss-120b on 72
and 512 GPUs, and deepseek-r1, with 84 000 in flight at 310 queries/s. The stub keeps the delay of the first
token and the pace. Each GPU of the system is a server with a port of its own. Streams are distributed over
stub processes and workers within the limit on descriptors, and a worker to each of the client's cores but
LoadGen's. Prints the load that was reached, or the limit that prevented it.
"""

import resource
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

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
from harness.record.run_record import RunRecord

INTERVAL = 100
SPARE = 300  # descriptors of a process that are not streams


@dataclass(frozen=True)
class Load:
    """A submitted result: arrivals each second, TTFT and TPOT in ms, servers with one GPU each, tokens."""

    servers: int
    qps: float
    ttft_ms: float
    tpot_ms: float
    tokens: int = 1364

    @property
    def streams(self) -> int:
        """Mean number in flight, by Little's law."""
        return int(self.qps * (self.ttft_ms + (self.tokens - 1) * self.tpot_ms) / 1000)


LOADS = {
    "72-gpu": Load(72, 750, 1000, 60),
    "512-gpu": Load(512, 3956, 1000, 34.3),
    # VR200 x 72, v6.1: 1.18 M tokens/s; the TPOT follows from the connections.
    "long-answers": Load(72, 310, 1000, 71, tokens=3806),
}


def main() -> None:
    """Run one load and print the result."""
    parser = program_parser(__doc__)
    parser.add_argument("--load", choices=sorted(LOADS), default="72-gpu")
    parser.add_argument("--hold-s", type=float, default=180)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the load, for small machines")
    parser.add_argument("--cores", type=int, default=1, help="of the client, and as many for the stub")
    arguments = parser.parse_args()
    load = LOADS[arguments.load]
    scale = arguments.scale
    load = replace(load, servers=max(1, round(load.servers * scale)), qps=load.qps * scale)
    processes = min(load.servers, max(process_count(load.streams), arguments.cores - 1))
    print(
        f"{load.qps:g}/s to {load.servers} servers, about {load.streams} streams, {processes} stub processes "
        "and workers"
    )
    rows = hold(load, processes, arguments.hold_s, arguments.cores)
    print_table(f"record_load: {arguments.load} x {arguments.scale:g}", ("", "value"), rows)
    save(f"record_load_{arguments.load}", {str(name): value for name, value in rows})


def process_count(streams: int) -> int:
    """Processes on each side, so that descriptors suffice, with a fifth of headroom.

    Local ports need no headroom: the harness uses further source addresses.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return max(1, -(-int(streams * 1.2) // (hard - SPARE)))


def hold(load: Load, processes: int, hold_s: float, cores: int) -> list[list[object]]:
    """One run, on the first ``cores`` cores and against stubs on as many behind them; rows of the table."""
    knobs: dict[str, int | str] = {
        "tokens_per_event": INTERVAL,
        "first_us": int(load.ttft_ms * 1000),
        "gap_us": int(load.tpot_ms * INTERVAL * 1000),
        "cumulative": 0,
    }
    ports = -(-load.servers // processes)
    of_stub = range(cores, 2 * cores)
    with tempfile.TemporaryDirectory() as name, Stub(knobs, processes, of_stub, ports) as stub:
        folder = Path(name)
        dataset = write_prompts(folder / "prompts.parquet", 6396, 200)
        run = run_harness(
            folder,
            *("--input-file", dataset, "--max-new-tokens", load.tokens, "--num-workers", processes),
            scenario="server",
            urls=stub.urls[: load.servers],
            conf=SERVER.format(load.qps, int(hold_s * 1000)),
            cores=range(cores),
        )
        stats = stub.stats()
        most = sum(one["max_active"] for one in stats)
        if run.statistics.failed:
            return [["most streams in flight", most], *given_up(run)]
        return [
            *reached(run, most),
            ["stub late p99 ms", max(one["late_us"]["p99"] for one in stats) / 1e3],
            ["servers", load.servers],
            ["workers", processes],
        ]


def reached(run: Measured, most: int) -> list[list[object]]:
    """Rows of a run without failures; ``most`` streams were in flight."""
    rows = run.requests("issued_ns", "sent_ns")
    issued = np.sort(rows["issued_ns"].to_numpy())
    share = run.client_share_ms
    seconds = (issued[-1] - issued[0]) / 1e9
    rate = (len(issued) - 1) / seconds
    delay = (rows["sent_ns"] - rows["issued_ns"]).to_numpy() / 1e6
    return [
        ["queries", len(issued)],
        ["issued for s", seconds],
        ["issued per second", rate],
        ["LoadGen's own schedule per second", scheduled_rate(run.record)],
        ["most streams in flight", most],
        ["failures", run.statistics.failed],
        ["tokens per second", run.statistics.tokens_per_s],
        ["client share p50 ms", share["50"]],
        ["client share p99 ms", share["99"]],
        ["issue delay p99 ms", np.percentile(delay, 99)],
        ["schedule lag mean ms", (run.record.schedule_lag_mean_ns or float("nan")) / 1e6],
        ["client CPU cores", run.cpu_s / run.seconds],
        ["client CPU us for each query", run.cpu_s * 1e6 / len(issued)],
        ["client memory MiB", run.peak_rss_mib],
        ["client memory KiB for each stream", run.peak_rss_mib * 1024 / max(1, most)],
        ["verdict", run.record.verdict and run.record.verdict.result],
    ]


def given_up(run: Measured) -> list[list[object]]:
    """Rows of a run in which queries failed: the load was not reached."""
    return [
        ["failures", run.statistics.failures],
        ["reasons", "; ".join(run.record.verdict.reasons if run.record.verdict else ())],
        ["warnings", "; ".join(run.record.warnings)],
        ["client CPU cores", run.cpu_s / run.seconds],
    ]


def scheduled_rate(record: RunRecord) -> float:
    """LoadGen's "Scheduled samples per second"."""
    assert record.loadgen is not None
    return record.loadgen.figures["Scheduled samples per second"] or float("nan")


if __name__ == "__main__":
    main()
