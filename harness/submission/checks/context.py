"""The scenario under check with its rules, and the LoadGen logs of one run."""

from pathlib import Path

import msgspec

from harness.compliance.base import ComplianceTest
from harness.compliance.registry import TESTS, find_test, needed_tests
from harness.config.benchmark import Benchmark
from harness.config.scenario import Scenario
from harness.files import ACCURACY, DETAIL, PERFORMANCE, RUN_RECORD, SUMMARY
from harness.loadgen_logs.summary_and_detail import LoadgenDetail, LoadgenSummary, read_detail, read_summary
from harness.submission.checks.issue import Issue, missing
from harness.submission.tree.layout import ScenarioDir
from harness.submission.tree.round_rules import RoundRules


class CheckContext(msgspec.Struct, frozen=True, eq=False):
    """One scenario's folder and the rules that apply to it."""

    dir: ScenarioDir
    benchmark: Benchmark
    scenario: Scenario
    """of its runs: another one than the folder's where the result is inferred"""
    rules: RoundRules
    kept: Path | None
    """the scenario's folder of full accuracy logs and run.json, if it exists"""
    is_of_endpoints: bool
    """whether it has the logs of MLPerf Endpoints in place of LoadGen's"""
    read: "dict[Path, Logs]" = {}
    """the logs that were read, by folder"""

    @property
    def closed(self) -> bool:
        """Whether accuracy target, tests and settings are binding."""
        return self.dir.binding

    @property
    def is_inferred(self) -> bool:
        """Whether the result is inferred from runs of another scenario, of which they are copies."""
        return self.dir.scenario is not self.scenario

    @property
    def has_records(self) -> bool:
        """Whether the run.json of every run in the folder was kept."""
        tests = (Path(name) for name in TESTS if (self.dir.path / name).is_dir())
        return self.kept is not None and all(
            (self.kept / run / RUN_RECORD).is_file() for run in (PERFORMANCE, ACCURACY, *tests)
        )

    @property
    def tests(self) -> tuple[ComplianceTest, ...]:
        """The compliance tests of the benchmark, which closed results need."""
        return tuple(find_test(self.benchmark, name) for name in needed_tests(self.benchmark))

    def issue(self, code: str, path: Path, what: str, *, is_warning: bool = False, remedy: str = "") -> Issue:
        """``path`` is absolute or relative to the scenario's folder."""
        return Issue(code, self.dir.relative(self.dir.path / path), what, is_warning, remedy)

    def read_verified(self, test: ComplianceTest) -> str | None:
        """The verification file of a test, None where there is none; that of a rehearsal is for its tree."""
        found = test.verified_in(self.dir.path / test.name)
        return None if found is None or not (found[1] or self.dir.is_rehearsal) else found[0]

    def missing(self, path: Path, code: str = "missing-file") -> Issue:
        """The issue of a file that is not there, or only under another name. ``path`` as for ``issue``."""
        return missing(self.dir, self.dir.path / path, code)


class Logs(msgspec.Struct, frozen=True):
    """Summary and detail log of one run."""

    folder: Path
    """relative to the scenario's folder"""
    summary: LoadgenSummary
    detail: LoadgenDetail


def read_logs(context: CheckContext, folder: Path) -> Logs:
    """Both logs, read once; ``problem`` describes a missing or damaged one."""
    if folder not in context.read:
        path = context.dir.path / folder
        context.read[folder] = Logs(folder, read_summary(path / SUMMARY), read_detail(path / DETAIL))
    return context.read[folder]
