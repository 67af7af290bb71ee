"""The plan of a ladder: a Server run's settings without LoadGen, and the steps."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.config.benchmark import load_benchmark
from harness.config.client_plan import resolve_client
from harness.config.deadlines import resolve_policy
from harness.config.generation import official_parameters, resolve_generation
from harness.config.loadgen_settings import limits_ns
from harness.config.official_data import official_dataset
from harness.config.plans import ClientPlan
from harness.config.rule_checks import round_deviations, rule_limits, scenario_deviations
from harness.config.run_options import ClientOptions
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.peak.peak_options import LadderOptions
from harness.record.settled import ServerInfo, running_limit

FOLDER = "peak"  # below --results
_LADDER = "ladder"
_LEAST_S, _MOST_S = 1.0, 86400.0
_MOST_REQUESTS = 1 << 20
_DOUBLINGS = 5  # The default steps end at what the servers run at once, after this number of doublings.


class LadderPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of requests in flight, measured one after the other under a scenario's limits."""

    client: ClientPlan
    scenario: Scenario
    concurrency: tuple[int, ...]
    """empty: the steps follow from the servers' limits"""
    seconds: float
    """the shortest window of a step"""
    goes_on: bool = False
    """whether the ladder continues after a step with failed requests"""

    @property
    def limits_ns(self) -> dict[str, int]:
        """The scenario's p99 limits of TTFT and TPOT; none where the benchmark has none for it."""
        return limits_ns(self.scenario, rule_limits(self.client.benchmark, self.scenario))


def resolve_ladder_plan(options: LadderOptions) -> LadderPlan:
    """Turn options into a plan. Raises ConfigError."""
    _check_steps(options.concurrency)
    check_seconds("--seconds", options.seconds)
    scenario = Scenario.parse(options.scenario)
    return LadderPlan(
        client=ladder_client(options, scenario, ladder_folder(options.results, scenario)),
        scenario=scenario,
        concurrency=options.concurrency,
        seconds=options.seconds,
        goes_on=options.fail_fast is False,
    )


def ladder_folder(results: Path, scenario: Scenario) -> Path:
    """The output folder of a ladder below a folder of runs."""
    return results / FOLDER / scenario / _LADDER


def ladder_client(options: ClientOptions, scenario: Scenario, folder: Path) -> ClientPlan:
    """The client's part of a ladder: a performance run's parameters. Raises ConfigError."""
    benchmark = load_benchmark(options.benchmark, options.round)
    benchmark.model_key(scenario)  # a scenario that the benchmark does not have is refused
    official = official_parameters(benchmark, accuracy=False)
    generation = resolve_generation(options, official, timed=scenario.streams)
    return resolve_client(
        options,
        benchmark,
        options.input_file or official_dataset(benchmark, benchmark.dataset(accuracy=False)),
        generation.parameters,
        resolve_policy(options, streams=generation.parameters.stream),
        folder,
        every_replica=True,
        deviations=(
            *scenario_deviations(benchmark, scenario),
            *round_deviations(benchmark),
            *generation.deviations,
        ),
        warnings=generation.warnings,
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


def default_steps(servers: Sequence[ServerInfo], client_holds: int) -> tuple[int, ...]:
    """Doubled from a 32nd of what the servers run at once, or the client can hold, up to it.

    At least one request for each server.
    """
    most = min(running_limit(servers), client_holds)
    parts = (math.ceil(most / 2**power) for power in range(_DOUBLINGS, -1, -1))
    return tuple(sorted({max(part, min(len(servers), most)) for part in parts}))
