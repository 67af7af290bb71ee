"""What a round asks of a submission: configs/submission/rounds.toml beside the benchmark's definition."""

from collections.abc import Mapping

import msgspec

from harness.benchmark import CONFIG_DIR, Benchmark, Scenario
from harness.errors import ConfigError

ROUNDS_FILE = CONFIG_DIR / "submission" / "rounds.toml"
SEED_NAMES = ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")


class ScenarioRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scenarios of a closed datacenter submission: all of ``required`` and one of ``one_of``."""

    required: tuple[Scenario, ...]
    one_of: tuple[Scenario, ...]


class FileRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes in bytes."""

    accuracy_log_bytes: int
    shown_bytes: int
    any_bytes: int


class SystemRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of systems/<system>.json, and what some of them may hold."""

    meaningful: tuple[str, ...]
    optional: tuple[str, ...]
    whole_numbers: tuple[str, ...]
    status: tuple[str, ...]
    system_type: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field that must be there."""
        return (*self.meaningful, *self.optional)


class MeasurementsRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of measurements.json."""

    required: tuple[str, ...]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    current: str
    seeds: dict[str, dict[str, int]]
    scenarios: ScenarioRule
    files: FileRule
    system: SystemRule
    measurements: MeasurementsRule

    @property
    def rounds(self) -> tuple[str, ...]:
        """Rounds whose seeds are known, the current one first."""
        return (self.current, *self.seeds)

    def seeds_of(self, round_name: str, benchmark: Benchmark) -> Mapping[str, int]:
        """LoadGen's seeds in a round. Raises ConfigError for a round that is not known."""
        if round_name == self.current:
            return {name: int(benchmark.loadgen.settings[name]) for name in SEED_NAMES}
        if round_name not in self.seeds:
            raise ConfigError(
                f"--round {round_name}: its seeds are not known, expected one of {', '.join(self.rounds)}"
            )
        return self.seeds[round_name]


def load_rules() -> Rules:
    """Read the file. Raises ConfigError when it is malformed."""
    try:
        return msgspec.toml.decode(ROUNDS_FILE.read_bytes(), type=Rules)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{ROUNDS_FILE}: {error}") from error
