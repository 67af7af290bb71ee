"""What the rules say of each compliance test, from the benchmark's definition."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from harness.config.benchmark import Benchmark, DatasetRule
from harness.errors import ConfigError

WIDTH = 80
RULE = "=" * WIDTH


@dataclass(frozen=True, slots=True)
class ComplianceVerdict:
    """``statement`` is the official verification file; ``summary`` one line of figures.

    ``scorecard`` is the evaluator's printout where the test scores answers.
    """

    passed: bool
    summary: str
    statement: str
    scorecard: str = ""


TestName = Literal["TEST06", "TEST07", "TEST09"]
RUN_FOLDER = "run"  # of a test: its run, beside what is verified of it
TEST_NAMES: tuple[TestName, ...] = ("TEST06", "TEST07", "TEST09")

MIN_ACCURACY = "test07_accuracy_threshold"
MIN_TOKENS, MAX_TOKENS = "test09_min_output_tokens", "test09_max_output_tokens"
THRESHOLDS: dict[TestName, tuple[str, ...]] = {
    "TEST06": (),
    "TEST07": (MIN_ACCURACY,),
    "TEST09": (MIN_TOKENS, MAX_TOKENS),
}


class _Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``compliance.<test>`` of a definition as it is written."""

    dataset: str
    audit: dict[str, int]
    metric: str | None = None
    threshold: float | None = None
    reference_mean_output_tokens: float | None = None
    tolerance: float | None = None
    eos_token_ids: tuple[int, ...] = ()


class ComplianceRule(msgspec.Struct, frozen=True):
    """One test of one benchmark. ``thresholds`` bear the names that an audit.config gives them."""

    test: TestName
    dataset: DatasetRule
    settings: dict[str, int]
    thresholds: dict[str, float]
    eos_token_ids: tuple[int, ...] = ()


def needed_tests(benchmark: Benchmark) -> tuple[TestName, ...]:
    """The tests that a submission of this benchmark needs."""
    return tuple(test for test in TEST_NAMES if test in benchmark.compliance)


def rule_of(benchmark: Benchmark, test: TestName) -> ComplianceRule:
    """Raises ConfigError where the benchmark has no such test."""
    if test not in benchmark.compliance:
        known = ", ".join(needed_tests(benchmark)) or "no compliance test"
        raise ConfigError(f"{benchmark.name} has no {test}; it needs {known}")
    try:
        found = msgspec.convert(benchmark.compliance[test], _Definition)
        dataset = benchmark.datasets[found.dataset]
    except (msgspec.ValidationError, KeyError) as error:
        raise ConfigError(f"configs/{benchmark.name}.toml: compliance.{test}: {error}") from error
    return ComplianceRule(test, dataset, found.audit, _thresholds(found), found.eos_token_ids)


def _thresholds(found: _Definition) -> dict[str, float]:
    if found.threshold is not None:
        return {MIN_ACCURACY: found.threshold}
    if found.reference_mean_output_tokens is not None and found.tolerance is not None:
        mean, share = found.reference_mean_output_tokens, found.tolerance
        return {MIN_TOKENS: round(mean * (1 - share), 2), MAX_TOKENS: round(mean * (1 + share), 2)}
    return {}
