"""The plan of a ladder: a Server run's settings without LoadGen, and the steps."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from msgspec.structs import replace

from harness.config.loadgen_settings import NS_PER_MS
from harness.config.run_options import RunOptions
from harness.config.run_plan import RunPlan, resolve_plan
from harness.errors import ConfigError
from harness.peak.peak_options import LadderOptions
from harness.record.resolved_plan import ServerInfo

FOLDER = "peak"  # below --output-dir
_LADDER = "ladder"
_LEAST_S, _MOST_S = 1.0, 86400.0
_MOST_REQUESTS = 1 << 20
_DOUBLINGS = 5  # The default steps double so often, up to what the servers run at once.
_UNKNOWN_RANK_RUNS = 1024  # as in sut/prepare.py


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderPlan:
    """A ladder that is to be measured."""

    run: RunPlan
    """the plan of a run with the same options"""
    concurrency: tuple[int, ...]
    """the steps; empty where they follow from the servers' limits"""
    seconds: float
    """the shortest window of a step"""
    goes_on: bool
    """whether the ladder continues after a step with failed requests"""

    @property
    def limits_ns(self) -> dict[str, int]:
        """The scenario's p99 limits of TTFT and TPOT; none where the benchmark has none for it."""
        limits = self.run.benchmark.latency_limits.get(self.run.scenario)
        if limits is None:
            return {}
        return {"TTFT": limits.ttft_ms * NS_PER_MS, "TPOT": limits.tpot_ms * NS_PER_MS}


def resolve_ladder_plan(options: LadderOptions) -> LadderPlan:
    """Turn options into a plan. Raises ConfigError."""
    _check_steps(options.concurrency)
    check_seconds("--seconds", options.seconds)
    names = {field.name for field in fields(RunOptions)}
    shared = {field.name: getattr(options, field.name) for field in fields(options) if field.name in names}
    run = resolve_plan(RunOptions(**shared))
    folder = options.output_dir.absolute() / FOLDER / options.scenario / _LADDER
    return LadderPlan(
        run=replace(run, log_dir=folder),
        concurrency=options.concurrency,
        seconds=options.seconds,
        goes_on=options.fail_fast is False,
    )


def check_seconds(flag: str, seconds: float) -> None:
    """Refuse a window of a step that is too short or too long. Raises ConfigError."""
    if not _LEAST_S <= seconds <= _MOST_S:
        raise ConfigError(f"{flag} is {seconds:g} s, expected {_LEAST_S:g} to {_MOST_S:g} s")


def _check_steps(steps: Sequence[int]) -> None:
    for step in steps:
        if not 1 <= step <= _MOST_REQUESTS:
            raise ConfigError(f"--concurrency has {step}, expected 1 to {_MOST_REQUESTS}")
    for lower, higher in itertools.pairwise(steps):
        if higher <= lower:
            raise ConfigError(
                f"--concurrency has {higher} behind {lower}, expected ascending numbers: the ladder ends "
                "where a limit breaks"
            )


def running_limit(servers: Sequence[ServerInfo]) -> int:
    """Requests that the servers run at once; a guess for those that do not report it."""
    return sum(
        server.max_running_requests or _UNKNOWN_RANK_RUNS * (server.dp_size or 1) for server in servers
    )


def default_steps(servers: Sequence[ServerInfo], client_holds: int) -> tuple[int, ...]:
    """Doubled from a 32nd of what the servers run at once, or the client can hold, up to it.

    At least one request for each server.
    """
    most = min(running_limit(servers), client_holds)
    parts = (math.ceil(most / 2**power) for power in range(_DOUBLINGS, -1, -1))
    return tuple(sorted({max(part, min(len(servers), most)) for part in parts}))
