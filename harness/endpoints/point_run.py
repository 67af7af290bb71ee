"""What this client knows of a point that it ran, besides the official files: point_run.json."""

from datetime import datetime
from pathlib import Path

import msgspec

from harness.cli.signals import SignalName
from harness.config.generation import SamplingParameters
from harness.endpoints.curve import Curve, Point
from harness.endpoints.run_folder import POINT_RUN
from harness.json_files import write_json
from harness.peak.ladder.steps import NOT_A_RESULT, Latency
from harness.record.provenance import Provenance, read_own
from harness.record.settled import ServerInfo

WARM_UP = 1 << 31  # query ids of the warm-up begin here; those of the passes count from 0


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent before the first counted request; the six fields that the rules ask for."""

    duration_s: float
    requests_issued: int
    requests_completed: int
    data_source: str
    concurrency: int
    initialization_steps: tuple[str, ...] = ()


class IdleRoundTrip(msgspec.Struct, frozen=True, kw_only=True):
    """The network without load: round trips of a small request to the servers, in ns."""

    count: int
    min_ns: int
    p50_ns: int


class OwnNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The point in this project's definitions: ids as the server counted them, percentiles as LoadGen's."""

    queries: int
    tokens: int
    """of all completed requests"""
    seconds: float
    """from the first issue to the last completion"""
    tokens_per_s: float
    queries_per_s: float
    ttft: Latency | None
    tpot: Latency | None
    latency: Latency | None


class PointRun(msgspec.Struct, frozen=True, kw_only=True):
    """One point, as far as it went. Times of requests: requests.parquet beside it."""

    label: str = NOT_A_RESULT
    curve: Curve
    point: Point
    input_file: str
    dataset_sha256: str
    tokenizer: str | None = None
    """the given one, which counts the tokens; None: the benchmark's"""
    parameters: SamplingParameters
    servers: tuple[ServerInfo, ...]
    provenance: Provenance
    started: datetime
    ended: datetime | None = None
    salt_seed: str = ""
    """what the salts of its queries follow from (harness/endpoints/salting.py); "" without them"""
    warm_up: WarmUp | None = None
    issued: int = 0
    completed: int = 0
    failures: dict[str, int] = {}
    """failed requests by kind"""
    passes: int = 0
    """complete passes that were issued"""
    issue_s: float = 0.0
    """from the first issue to the last"""
    drain_s: float = 0.0
    """from the last issue to the last completion"""
    client_bound: tuple[str, ...] = ()
    """signs that the client was the bottleneck"""
    own: OwnNumbers | None = None
    network: IdleRoundTrip | None = None
    complete: bool = False
    """whether it ended by its rule, not by an error or a signal"""
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    interrupted_by: SignalName | None = None


def write_point_run(folder: Path, run: PointRun) -> None:
    """Write point_run.json, complete or not at all. Raises OSError."""
    write_json(folder / POINT_RUN, run)


def read_point_run(folder: Path) -> PointRun | None:
    """What this client knows of a run folder; None where it did not run it. Raises ConfigError."""
    path = folder / POINT_RUN
    if not path.exists():
        return None
    return read_own(path, PointRun, "remove the run folder, so that the point is run again")
