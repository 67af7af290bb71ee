"""What the tests of a point build: a small dataset in the harmony format, its plan, servers that are open."""

from pathlib import Path
from typing import Any

from harness.config.plans import ClientPlan
from harness.config.scenario import Scenario
from harness.dataset.samples import load_samples
from harness.endpoints.curve import Curve, Point, SeedSet
from harness.endpoints.point_run import PointRun
from harness.peak.ladder.ladder_plan import ladder_client
from harness.peak.peak_options import LadderOptions
from sut.client.endpoint import Access
from sut.endpoints.point import OpenServers, run_point
from sut.servers.discovery import find_servers
from tests.runs import write_dataset

SYSTEM = [200006, 17360, 200008, 3575, 553, 200007]
USER = [200006, 1428, 200008]
END = [200007, 200006, 173781]
ROWS = 12
PROMPTS = [[*SYSTEM, *USER, *range(1000 + row * 31, 1020 + row * 32), *END] for row in range(ROWS)]
SEEDS = SeedSet(
    name="A", cohort="", published="2026-10-C1", scheduler=1, sample_index=586478644936801402, model=3
)


class Watcher:
    """Keeps the phases; ``then`` is called with each."""

    def __init__(self, then=lambda phase: None):
        self.phases = []
        self._then = then

    def progress(self, point, elapsed_s, phase):
        self.phases.append(phase)
        self._then(phase)

    def passed(self, point, steady):
        self.phases.append(steady)


def point_of(concurrency: int, **changes: Any) -> Point:
    usual: dict[str, Any] = {
        "name": f"r{concurrency}",
        "concurrency": concurrency,
        "band": "low",
        "issue_s": 0.0,
        "passes": 2,
    }
    return Point(**usual | changes)


def curve_of(*points: Point, **changes: Any) -> Curve:
    usual: dict[str, Any] = {
        "benchmark": "gpt-oss-120b",
        "model_name": "gpt-oss-120b",
        "c_min": 1,
        "c_max": 64,
    }
    usual |= {"points": points, "samples": ROWS, "accuracy_samples": 0, "seeds": SEEDS, "short": True}
    return Curve(**usual | changes)


def client_of(folder: Path, *urls: str, tokens: int = 8, prompts=PROMPTS, **options) -> ClientPlan:
    dataset = options.pop("dataset", None) or write_dataset(folder / "dataset.parquet", prompts)
    known = LadderOptions(input_file=dataset, server_url=urls, max_new_tokens=tokens, **options)
    return ladder_client(known, Scenario.SERVER, folder / "unused")


def opened(client: ClientPlan) -> OpenServers:
    samples = load_samples(client.input_file, vocabulary_size=client.benchmark.vocabulary_size)
    servers = find_servers(client.server_urls, client.backend, Access(), client.preflight)
    return OpenServers(client, samples, servers, lambda: "")


def rehearsed(folder: Path, point: Point, *urls: str, watcher=None, curve=None, **options) -> PointRun:
    """The result of a point in ``folder``/<its name>."""
    servers = opened(client_of(folder, *urls, **options))
    return run_point(curve or curve_of(point), point, servers, folder / point.name, watcher or Watcher())
