#!/usr/bin/env python3
"""The client's CPU time for a request of an Endpoints point: in the ladder's way, with answers kept, salted.

    python benchmarks/point_cost.py [--repeats 3] [--requests 12792]

1 024 requests in flight, prompts of 1 000 tokens, answers of 200 tokens in events of 10, the C stub on core
1, the client on core 0. The three ways take turns, so that a busy machine is as busy for each.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench import Stub, pinned, program_parser, report, write_prompts
from harness.config.plans import ClientPlan
from harness.config.scenario import Scenario
from harness.dataset.salt import SaltIds
from harness.dataset.samples import SampleSet, load_samples
from harness.endpoints.salting import with_salt
from harness.peak.ladder.ladder_plan import ladder_client
from harness.peak.peak_options import LadderOptions
from sut.client.endpoint import Access
from sut.drive import DrivenRun, ended, preflight
from sut.issuers.passes import Passes, SampleOrder
from sut.prepare import place_workers, prepare_client
from sut.servers.discovery import find_servers
from sut.supervisor.placement import Load
from sut.supervisor.progress_meter import RunLength
from sut.supervisor.session import QuerySession

CONCURRENCY, SAMPLES = 1024, 6396
KNOBS = {"gap_us": 20_000, "first_us": 100_000, "jitter_us": 20_000, "tokens_per_event": 10, "cumulative": 0}
WAYS = ("as the ladder", "answers kept", "answers kept, salted")


def main() -> None:
    """Run the three ways in turns and print the medians."""
    parser = program_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=2 * SAMPLES)
    options = parser.parse_args()
    os.sched_setaffinity(0, pinned((0,)))
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name, Stub(KNOBS) as stub:
        dataset = write_prompts(Path(name) / "prompts.parquet", SAMPLES, 1000)
        words = LadderOptions(input_file=dataset, server_url=stub.urls, max_new_tokens=200)
        for number in range(options.repeats):
            for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                folder = Path(name) / f"{number}-{WAYS.index(way)}"
                found[way].append(
                    cost_us(ladder_client(words, Scenario.SERVER, folder), way, options.requests)
                )
    columns = ("way", "CPU us for a request", "lowest", "highest")
    rows = [(way, statistics.median(one), min(one), max(one)) for way, one in found.items()]
    report("point_cost", f"{CONCURRENCY} requests in flight", columns, rows)


def cost_us(client: ClientPlan, way: str, requests: int) -> float:
    """CPU time of the issuing process and the workers, for each request."""
    samples = load_samples(client.input_file, vocabulary_size=client.benchmark.vocabulary_size)
    samples = _salted(samples) if way == WAYS[2] else samples
    load = Load(open_at_most=CONCURRENCY)
    servers = find_servers(client.server_urls, client.backend, Access(), client.preflight)
    prepared = prepare_client(client, samples, load, place_workers(client, load), servers)
    prepared, destination, _ = preflight(prepared)
    order = SampleOrder(len(samples), 1)
    passes = -(-requests // len(samples))
    kept = None if way == WAYS[0] else 3
    issuer = Passes(order, CONCURRENCY, CONCURRENCY, CONCURRENCY, passes, 0.0, kept)
    with QuerySession(client, issuer, prepared.placement) as session:
        driven = DrivenRun(session, prepared, destination, lambda: "", RunLength(requests))
        with ended(driven) as seen:
            assert not seen.errors, seen.errors
            return (seen.cpu_s or 0.0) * 1e6 / seen.issued


def _salted(samples: SampleSet) -> SampleSet:
    """With a salt of gpt-oss's size: 19 symbols, behind the first id of each prompt."""
    first = {str(one): (one,) for one in sorted({int(samples.tokens(i)[0]) for i in range(len(samples))})}
    return with_salt(samples, SaltIds("1", tuple(range(1000, 1128)), 19), (58,), (60, 220), first)


if __name__ == "__main__":
    main()
