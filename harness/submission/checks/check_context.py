"""The scenario under check with its rules, and the LoadGen logs of one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.config.benchmark import Benchmark
from harness.config.scenario import Scenario
from harness.files import DETAIL, SUMMARY
from harness.loadgen_logs.summary_and_detail import LoadgenDetail, LoadgenSummary, read_detail, read_summary
from harness.submission.checks.issue import Issue
from harness.submission.layout import ScenarioDir
from harness.submission.rules import Rules

_POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"


@dataclass(frozen=True, slots=True)
class CheckContext:
    """One scenario's folder and the rules that apply to it."""

    dir: ScenarioDir
    benchmark: Benchmark
    scenario: Scenario
    rules: Rules

    @property
    def closed(self) -> bool:
        """Whether accuracy target, tests and settings are binding."""
        return self.dir.binding

    def issue(self, code: str, path: Path, what: str, *, is_warning: bool = False) -> Issue:
        """``path`` is absolute or relative to the scenario's folder."""
        return Issue(code, self.dir.relative(self.dir.path / path), what, is_warning)


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
        """A row's value; None if there is no row or it holds no number."""
        value = self.values.get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def samples_issued(self) -> int | float | None:
        """Samples of all queries that LoadGen generated."""
        queries, each = self.number("generated_query_count"), self.number("generated_samples_per_query")
        return None if queries is None or each is None else queries * each

    @property
    def lasted_s(self) -> float | None:
        """Seconds between power_begin and power_end."""
        begin, end = self.values.get("power_begin"), self.values.get("power_end")
        if not isinstance(begin, str) or not isinstance(end, str):
            return None
        try:
            return (
                datetime.strptime(end, _POWER_TIME) - datetime.strptime(begin, _POWER_TIME)
            ).total_seconds()
        except ValueError:
            return None

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


def read_logs(context: CheckContext, folder: Path) -> Logs:
    """Read both logs; ``problem`` describes a missing or damaged one."""
    path = context.dir.path / folder
    return Logs(folder, read_summary(path / SUMMARY), read_detail(path / DETAIL))
