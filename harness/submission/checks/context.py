"""The scenario under check with its rules, and the LoadGen logs of one run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.config.benchmark import Benchmark
from harness.config.scenario import Scenario
from harness.files import DETAIL, SUMMARY
from harness.loadgen_logs.summary_and_detail import LoadgenDetail, LoadgenSummary, read_detail, read_summary
from harness.submission.checks.issue import Issue, missing
from harness.submission.tree.layout import ScenarioDir
from harness.submission.tree.round_rules import RoundRules

CLOCK_FORMAT = "%m-%d-%Y %H:%M:%S.%f"
_LARGEST = 1e30  # far above all of LoadGen's 64 bits; NaN and infinity are not below it


@dataclass(frozen=True, slots=True)
class CheckContext:
    """One scenario's folder and the rules that apply to it."""

    dir: ScenarioDir
    benchmark: Benchmark
    scenario: Scenario
    rules: RoundRules
    read: "dict[Path, Logs]" = field(default_factory=dict, repr=False, compare=False)
    """The logs that were read, by folder."""

    @property
    def closed(self) -> bool:
        """Whether accuracy target, tests and settings are binding."""
        return self.dir.binding

    def issue(self, code: str, path: Path, what: str, *, is_warning: bool = False, remedy: str = "") -> Issue:
        """``path`` is absolute or relative to the scenario's folder."""
        return Issue(code, self.dir.relative(self.dir.path / path), what, is_warning, remedy)

    def missing(self, path: Path, code: str = "missing-file") -> Issue:
        """The issue of a file that is not there, or only under another name. ``path`` as for ``issue``."""
        return missing(self.dir, self.dir.path / path, code)


@dataclass(frozen=True, slots=True)
class Logs:
    """Summary and detail log of one run; ``folder`` is relative to the scenario's."""

    folder: Path
    summary: LoadgenSummary
    detail: LoadgenDetail

    @property
    def values(self) -> Mapping[str, Any]:
        """Rows of the detail log by key."""
        return self.detail.values

    def number(self, key: str) -> int | float | None:
        """A row's value; None if there is no row or it holds no finite number."""
        value = self.values.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return value if abs(value) <= _LARGEST else None

    @property
    def samples_issued(self) -> int | float | None:
        """Samples of all queries that LoadGen generated."""
        queries, each = self.number("generated_query_count"), self.number("generated_samples_per_query")
        return None if queries is None or each is None else queries * each

    @property
    def lasted_s(self) -> float | None:
        """Seconds between power_begin and power_end."""
        begin, end = self.clock
        return None if begin is None or end is None else (end - begin).total_seconds()

    @property
    def clock(self) -> tuple[datetime | None, datetime | None]:
        """power_begin and power_end by the clock of the machine."""
        return _time(self.values.get("power_begin")), _time(self.values.get("power_end"))

    @property
    def mean_tokens(self) -> float | None:
        """Output tokens per sample, from LoadGen's two throughputs."""
        for tokens, samples in (
            ("result_tokens_per_second", "result_samples_per_second"),
            ("result_completed_tokens_per_second", "result_completed_samples_per_sec"),
        ):
            rate, per = self.number(tokens), self.number(samples)
            if rate is not None and per:
                return rate / per
        return None


def _time(value: object) -> datetime | None:
    try:
        return datetime.strptime(str(value), CLOCK_FORMAT)
    except ValueError:
        return None


def read_logs(context: CheckContext, folder: Path) -> Logs:
    """Both logs, read once; ``problem`` describes a missing or damaged one."""
    if folder not in context.read:
        path = context.dir.path / folder
        context.read[folder] = Logs(folder, read_summary(path / SUMMARY), read_detail(path / DETAIL))
    return context.read[folder]
