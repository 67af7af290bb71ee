"""The rules of a round for all benchmarks: configs/rounds/<round>/round.toml."""

from functools import cache

import msgspec

from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.rounds import current_round, read_toml, round_file
from harness.config.run_options import available_benchmarks
from harness.config.scenario import Scenario
from harness.errors import ConfigError


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


class RoundRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The complete file. ``seeds`` are LoadGen's, ``loadgen`` the version that has them."""

    loadgen: str
    benchmarks: tuple[str, ...]
    seeds: dict[str, int]
    aliases: dict[str, str]
    suites: dict[str, Suite]
    target_latency_ms: dict[str, int]
    files: FileRule
    system: SystemRule
    measurements: MeasurementsRule
    power: PowerRule

    def suite_of(self, benchmark: str) -> tuple[str, Suite]:
        """Name and rules of the suite that a benchmark belongs to."""
        found = [pair for pair in self.suites.items() if benchmark in pair[1].benchmarks]
        return found[0] if found else list(self.suites.items())[-1]


@cache
def load_rules(round_name: str | None = None) -> RoundRules:
    """Read the rules of a round, None for the current one. Raises ConfigError."""
    path = round_file(round_name or current_round())
    try:
        return msgspec.convert(read_toml(path), RoundRules)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error


@cache
def definition_of(name: str, round_name: str | None = None) -> Benchmark | None:
    """The definition of a benchmark in a round, None if this harness has none."""
    return load_benchmark(name, round_name) if name in available_benchmarks() else None
