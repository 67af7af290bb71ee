"""The rules of a round for all benchmarks: configs/rounds/<round>/round.toml."""

from collections.abc import Collection
from functools import cache

import msgspec

from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.choices import available_benchmarks
from harness.config.rounds import current_round, read_toml, round_file
from harness.config.scenario import Scenario
from harness.toml_files import converted


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scenarios of a closed submission of some benchmarks."""

    benchmarks: tuple[str, ...]
    required: tuple[Scenario, ...]
    """all of these"""
    one_of: tuple[Scenario, ...]
    """and one of these, unless it is empty"""
    inferred: dict[Scenario, Scenario] = {}
    """a scenario whose result may be inferred from a run of another one"""

    @property
    def allowed(self) -> tuple[Scenario, ...]:
        """Every scenario that may be submitted."""
        return (*self.required, *self.one_of)

    def missing(self, have: Collection[Scenario]) -> list[tuple[Scenario, ...]]:
        """What a submission with these scenarios lacks: of each group one scenario."""
        groups: list[tuple[Scenario, ...]] = [(one,) for one in self.required if one not in have]
        if self.one_of and not set(have).intersection(self.one_of):
            groups.append(self.one_of)
        return groups


class FileRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes in bytes."""

    accuracy_log_bytes: int
    """the largest accuracy log"""
    shown_bytes: int
    """each end of a truncated accuracy log"""
    any_bytes: int
    """the largest file"""


class SystemRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of systems/<system>.json, and the permitted values of some."""

    meaningful: tuple[str, ...]
    """required, and not empty"""
    optional: tuple[str, ...]
    """required, but may be empty"""
    network: tuple[str, ...]
    """required of a network system"""
    whole_numbers: tuple[str, ...]
    status: tuple[str, ...]
    """permitted values"""
    system_type: tuple[str, ...]
    """permitted values"""

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
    """in the folders of the performance run and of the ranging run"""
    power: tuple[str, ...]
    """in the folder power/"""
    optional: tuple[str, ...]


class RoundRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The complete file."""

    loadgen: str
    """the version of LoadGen"""
    benchmarks: tuple[str, ...]
    seeds: dict[str, int]
    """LoadGen's, by LoadGen's names"""
    aliases: dict[str, str]
    """the official name of a benchmark by another one"""
    suites: dict[str, Suite]
    target_latency_ms: dict[str, int]
    files: FileRule
    system: SystemRule
    measurements: MeasurementsRule
    power: PowerRule
    endpoints_benchmarks: tuple[str, ...] = ()
    """those that may have logs of MLPerf Endpoints in place of LoadGen's"""

    def suite_of(self, benchmark: str) -> tuple[str, Suite]:
        """Name and rules of the suite that a benchmark belongs to."""
        found = [pair for pair in self.suites.items() if benchmark in pair[1].benchmarks]
        return found[0] if found else list(self.suites.items())[-1]


@cache
def load_rules(round_name: str | None = None) -> RoundRules:
    """Read the rules of a round, None for the current one. Raises ConfigError."""
    path = round_file(round_name or current_round())
    return converted(str(path), read_toml(path), RoundRules)


@cache
def definition_of(name: str, round_name: str) -> Benchmark | None:
    """The definition of a benchmark in a round, None if this harness has none."""
    return load_benchmark(name, round_name) if name in available_benchmarks() else None
