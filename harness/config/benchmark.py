"""Benchmark definitions: what the MLPerf rules lock.

They are read from ``configs/<name>.toml`` and, on top of it, ``configs/rounds/<round>/<name>.toml``.

A misspelt key in a definition is an error; in the record of a run, which may be of a later version, it is
ignored.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from harness.config.choices import available_benchmarks
from harness.config.loadgen_settings import BY_ATTRIBUTE
from harness.config.rounds import benchmark_rules, current_round, read_toml, seeds_of
from harness.config.scenario import Scenario
from harness.errors import ConfigError


class LoadGenKeys(msgspec.Struct, frozen=True):
    """LoadGen's model keys, and the settings that it must report after FromConfig."""

    model_key: str
    settings: dict[str, int | float | bool]
    """by TestSettings' names"""
    interactive_model_key: str | None = None


class LatencyLimits(msgspec.Struct, frozen=True):
    """p99 limits in milliseconds."""

    ttft_ms: int
    tpot_ms: int


class DraftRule(msgspec.Struct, frozen=True):
    """How a server may draft tokens (MLPerf Inference Rules, appendix on speculative decoding)."""

    algorithms: tuple[str, ...]
    """as SGLang names them"""
    num_steps: int
    eagle_topk: int
    draft_model: str | None = None
    """None: the model's own head"""


class Generation(msgspec.Struct, frozen=True):
    """Sampling parameters as the rules name them; None where they name none."""

    temperature: float
    top_p: float
    top_k: int
    """0: off"""
    skip_special_tokens: bool
    stream: bool
    min_new_tokens: int | None = None
    seed: int | None = None


class DatasetRule(msgspec.Struct, frozen=True):
    """One official dataset."""

    file: str
    samples: int
    """rows"""
    max_new_tokens: int
    """most tokens of an answer"""
    reasoning_effort: str | None = None
    """baked into its prompts"""
    repeats: dict[str, int] = {}
    """by part of the dataset"""
    truth_columns: tuple[str, ...] = ("ground_truth",)
    """names that the column of true answers may have"""
    prompt_columns: tuple[str, ...] = ("text_input",)
    """names that the column of the prompts as text may have, which need not be there"""
    release_file: str | None = None
    """the one file of LiveCodeBench's folder that holds its tests; None: all do"""
    program_s: float = 60.0
    """seconds that a program may take for a test"""


class LengthRule(msgspec.Struct, frozen=True):
    """TEST09's mean length of an answer, in tokens, and the share by which a run's may differ from it."""

    reference_mean_output_tokens: Annotated[float, msgspec.Meta(gt=0, lt=1e9)]
    tolerance: Annotated[float, msgspec.Meta(ge=0, le=1)]


class PublishedRuns(msgspec.Struct, frozen=True):
    """Values of a metric that were published for the benchmark: how many, and their distribution."""

    round: str
    runs: int
    mean: float
    deviation: float
    lowest: float
    highest: float


MOST_PERCENT = 100.0


class MetricRule(msgspec.Struct, frozen=True):
    """A metric of the accuracy run, in the unit in which its official evaluator prints it.

    A metric with a lowest passing value must be reported; one without counts where it is reported.
    """

    reference: float
    passing: tuple[float, float]
    """the lowest and the highest passing value, as ratios of the reference; None in JSON where there is no
    highest"""
    published: PublishedRuns | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest passing value."""
        lowest, highest = self.passing
        # A reference of 0 has no highest value either, and not NaN.
        return lowest * self.reference, highest if math.isinf(highest) else highest * self.reference

    @property
    def is_score(self) -> bool:
        """Whether more is better: a percentage. Counts of tokens and characters have a highest value, too."""
        return math.isinf(self.bounds[1])

    def is_possible(self, value: float) -> bool:
        """Whether it can have this value: a percentage is 100 at most."""
        return not self.is_score or value <= MOST_PERCENT


class Benchmark(msgspec.Struct, frozen=True):
    """Everything that the rules of one round lock for one benchmark."""

    name: str
    round: str
    """whose rules hold; empty in the records of versions that named none"""
    official: bool
    """a benchmark of MLPerf"""
    model: str
    vocabulary_size: int
    context_length: int
    loadgen: LoadGenKeys
    generation: Generation
    datasets: dict[str, DatasetRule]
    """`performance`, `accuracy` and, where tests have their own, `compliance`"""
    scenarios: tuple[Scenario, ...] = (Scenario.OFFLINE, Scenario.SERVER, Scenario.INTERACTIVE)
    """those with an official result"""
    model_revision: str | None = None
    tokenizer: str | None = None
    least_weights_gb: float | None = None
    """accelerators' memory below which weights are those of another model, in whatever precision"""
    embedded_model: str | None = None
    """the tiny model of the embedded engine"""
    latency_limits: dict[str, LatencyLimits] = {}
    """by scenario"""
    speculative_decoding: dict[str, DraftRule] = {}
    """by scenario; in others it is not allowed"""
    reasoning_effort_ids: dict[str, list[int]] = {}
    """tokens that mark an effort in a prompt"""
    accuracy: dict[str, MetricRule] = {}
    """by metric"""
    compliance: dict[str, dict[str, Any]] = {}
    """by test"""

    def __post_init__(self) -> None:
        """Raises ValueError for a rule of TEST09 that is none."""
        _ = self.length_rule

    @property
    def length_rule(self) -> LengthRule | None:
        """What TEST09 asks of the length of answers; None for a benchmark without it."""
        section = self.compliance.get("TEST09")
        return None if section is None else msgspec.convert(section, LengthRule)

    @property
    def drafting_scenarios(self) -> str:
        """Where the rules allow drafted tokens, in words."""
        return " and ".join(self.speculative_decoding) or "no scenario"

    def model_key(self, scenario: Scenario) -> str:
        """LoadGen's key for a scenario; Interactive is LoadGen's Server with another key."""
        if not scenario.key_suffix:
            return self.loadgen.model_key
        if self.loadgen.interactive_model_key is None:
            others = ", ".join(self.scenarios)
            raise ConfigError(f"{self.name} has no {scenario} scenario, expected one of {others}")
        return self.loadgen.interactive_model_key

    def dataset(self, *, accuracy: bool) -> DatasetRule:
        """The dataset that a performance or accuracy run needs."""
        return self.datasets["accuracy" if accuracy else "performance"]


def load_benchmark(name: str, round_name: str | None = None) -> Benchmark:
    """Read one definition with the rules of a round, None for the current one.

    Raises ConfigError when the benchmark or the round is unknown or a file is malformed.
    """
    definitions = available_benchmarks()
    if name not in definitions:
        raise ConfigError(f"unknown benchmark {name!r}; configs/ defines {', '.join(definitions)}")
    round_name = round_name or current_round()
    return read_definition(definitions[name], round_name, benchmark_rules(round_name, name))


@cache  # the check of a tree asks for them many times
def read_definition(path: Path, round_name: str, rules: Path) -> Benchmark:
    """Read one definition and ``rules``, its file among the round's, if there is one. Raises ConfigError."""
    settings = {"loadgen": {"settings": seeds_of(round_name)}}
    fields, files = _merged(settings, read_toml(path)), str(path)
    if rules.is_file():
        fields, files = _merged(fields, read_toml(rules)), f"{path}, {rules}"
    try:
        benchmark = msgspec.convert(fields | {"round": round_name}, Benchmark)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{files}: {error}") from error
    if unread := list(_unread(fields, msgspec.to_builtins(benchmark))):
        raise ConfigError(f"{files}: unknown keys: {', '.join(unread)}")
    if unknown := benchmark.loadgen.settings.keys() - BY_ATTRIBUTE.keys():
        raise ConfigError(f"{files}: loadgen.settings: LoadGen has no setting {', '.join(sorted(unknown))}")
    return benchmark


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of both; where both have a value, that of ``above``."""
    found = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = _merged(found[name], value) if both else value
    return found


def _unread(given: Mapping[str, Any], read: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Keys of a definition that no field has taken."""
    for name, value in given.items():
        if name not in read:
            yield f"{place}{name}"
        elif isinstance(value, Mapping):
            yield from _unread(value, read[name], f"{place}{name}.")
