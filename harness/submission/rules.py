"""The rules of a round: configs/submission/rounds.toml, in addition to the benchmark's definition."""

from collections.abc import Mapping
from functools import cache

import msgspec

from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.loadgen_settings import SEEDS
from harness.config.options import available_benchmarks
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import CONFIG_DIR

ROUNDS_FILE = CONFIG_DIR / "submission" / "rounds.toml"


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scenarios of a closed submission: all of ``required`` and, unless it is empty, one of ``one_of``."""

    benchmarks: tuple[str, ...]
    required: tuple[Scenario, ...]
    one_of: tuple[Scenario, ...]

    @property
    def allowed(self) -> tuple[Scenario, ...]:
        """Every scenario that may be submitted."""
        return (*self.required, *self.one_of)


class FileRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes in bytes."""

    accuracy_log_bytes: int
    shown_bytes: int
    any_bytes: int


class SystemRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of systems/<system>.json, and the permitted values of some."""

    meaningful: tuple[str, ...]
    optional: tuple[str, ...]
    network: tuple[str, ...]
    whole_numbers: tuple[str, ...]
    status: tuple[str, ...]
    system_type: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """Every required field."""
        return (*self.meaningful, *self.optional)


class MeasurementsRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of measurements.json."""

    required: tuple[str, ...]


class PowerRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of the files of a result with power measurements."""

    run: tuple[str, ...]
    power: tuple[str, ...]
    optional: tuple[str, ...]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The complete file."""

    current: str
    seeds: dict[str, dict[str, int]]
    benchmarks: dict[str, tuple[str, ...]]
    aliases: dict[str, str]
    suites: dict[str, Suite]
    target_latency_ms: dict[str, int]
    files: FileRule
    system: SystemRule
    measurements: MeasurementsRule
    power: PowerRule

    @property
    def rounds(self) -> tuple[str, ...]:
        """Rounds with known seeds, the current one first."""
        return (self.current, *self.seeds)

    def suite_of(self, benchmark: str) -> tuple[str, Suite]:
        """Name and rules of the suite that a benchmark belongs to."""
        found = [pair for pair in self.suites.items() if benchmark in pair[1].benchmarks]
        return found[0] if found else list(self.suites.items())[-1]

    def seeds_of(self, round_name: str, benchmark: Benchmark) -> Mapping[str, int]:
        """LoadGen's seeds in a round. Raises ConfigError for an unknown round."""
        if round_name == self.current:
            return {name: int(benchmark.loadgen.settings[name]) for name in SEEDS}
        if round_name not in self.seeds:
            raise ConfigError(
                f"--round {round_name}: unknown round, expected one of {', '.join(self.rounds)}"
            )
        return self.seeds[round_name]


@cache
def load_rules() -> Rules:
    """Read the rules. Raises ConfigError when the file is malformed."""
    try:
        return msgspec.toml.decode(ROUNDS_FILE.read_bytes(), type=Rules)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{ROUNDS_FILE}: {error}") from error


@cache
def definition_of(name: str) -> Benchmark | None:
    """The definition of a benchmark, None if this harness has none."""
    return load_benchmark(name) if name in available_benchmarks() else None
