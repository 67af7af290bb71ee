"""The verdict of a compliance test, read from the folder that holds its verification."""

from pathlib import Path

from harness.analysis.run_outcome import ComplianceOutcome
from harness.compliance.base import stated_number
from harness.compliance.registry import find_test
from harness.config.benchmark import Benchmark
from harness.config.plans import ComplianceSettings
from harness.errors import ConfigError

_THRESHOLDS = ("Accuracy threshold", "Min threshold", "Max threshold")


def read_verdict(benchmark: Benchmark, audit: ComplianceSettings, folder: Path) -> ComplianceOutcome:
    """The outcome of a run's test in its folder, without a verdict where nothing was verified.

    A pass that the rules do not give is not official: one by the thresholds of a user's audit.config, or of
    fewer answers.
    """
    name = audit.test
    try:
        test = find_test(benchmark, name)
    except ConfigError:  # of a definition that this version does not have
        return ComplianceOutcome(name, None)
    if (verified := test.verified_in(folder)) is None:
        return ComplianceOutcome(name, None)
    text, official = verified
    found = test.read(text)
    few = test.answers_logged(audit.settings) < test.fewest_answers
    by_other = found.passed is True and (few or any(test.recheck_figures(text)))
    return ComplianceOutcome(name, found.passed, official and not by_other, found.figure, _bounds(text))


def _bounds(text: str) -> str:
    """The thresholds that the verification states: those of a user's audit.config where it had one."""
    stated = [value for name in _THRESHOLDS if (value := stated_number(text, name)) is not None]
    values = [f"{value:g}" for value in stated]
    return f"at least {values[0]}" if len(values) == 1 else " to ".join(values)
