"""The runs of a submission: which benchmarks and scenarios lie in the folder of results, and where."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.compliance.registry import needed_tests
from harness.config.benchmark import Benchmark
from harness.config.choices import DEFAULT_BENCHMARK, available_benchmarks
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import ACCURACY, COMPLIANCE_RUN, DETAIL, PERFORMANCE, RUN_RECORD
from harness.record.run_record import RunRecord
from harness.submission.building.request import BuildRequest
from harness.submission.tree.layout import has_endpoints_layout
from harness.submission.tree.origins import read_record
from harness.submission.tree.round_rules import Suite

# run.json of a run and of a test's, also of those that were moved aside.
_RECORDS = (f"*/{RUN_RECORD}", f"*/{COMPLIANCE_RUN}/{RUN_RECORD}")


class ScenarioRuns(msgspec.Struct, frozen=True):
    """The folder of a scenario's runs and the compliance tests in it."""

    scenario: Scenario
    path: Path
    tests: tuple[str, ...]

    @property
    def performance(self) -> Path:
        """LoadGen's logs of the performance run."""
        return self.path / "performance"

    @property
    def accuracy(self) -> Path:
        """LoadGen's logs of the accuracy run, and accuracy.txt."""
        return self.path / "accuracy"

    @property
    def is_of_endpoints(self) -> bool:
        """Whether the folder holds a run of the client of MLPerf Endpoints, and no log of LoadGen."""
        logs = (self.performance / DETAIL, self.accuracy / DETAIL)
        return has_endpoints_layout(self.path) and not any(path.is_file() for path in logs)

    def record_files(self) -> dict[str, Path]:
        """The path of each run's run.json, by the run's folder in a submission; the file may be missing."""
        tests = {test: self.path / test / COMPLIANCE_RUN / RUN_RECORD for test in self.tests}
        own = {PERFORMANCE: self.performance, ACCURACY: self.accuracy}
        return {name.as_posix(): path / RUN_RECORD for name, path in own.items()} | tests

    def records(self) -> dict[str, RunRecord]:
        """Every run.json that is there, by the run's folder in a submission. Raises ConfigError."""
        found = {name: read_record(path) for name, path in self.record_files().items()}
        return {name: record for name, record in found.items() if record is not None}


class BenchmarkRuns(msgspec.Struct, frozen=True):
    """The scenarios of one benchmark that belong to a submission, with or without runs."""

    benchmark: Benchmark
    folder: Path
    """holds further scenarios"""
    runs: tuple[ScenarioRuns, ...]
    left_out: tuple[Scenario, ...]
    """scenarios with runs that the division does not have, or that were not asked for"""
    none_of: tuple[Scenario, ...]
    """scenarios of which the division needs one, where there is none"""


def _places(results: Path, benchmark: str) -> dict[Scenario, Path]:
    """The folder of each scenario of a benchmark: below one of its name, or else in ``results`` itself."""
    own = results / benchmark
    found = {scenario: own / scenario for scenario in scenarios_in(own)}
    for scenario in scenarios_in(results):
        if scenario not in found and _is_of(results / scenario, benchmark, unnamed=not found):
            found[scenario] = results / scenario
    return dict(sorted(found.items(), key=lambda item: list(Scenario).index(item[0])))


def scenarios_in(folder: Path) -> tuple[Scenario, ...]:
    """Every scenario that has a folder, with or without runs."""
    return tuple(scenario for scenario in Scenario if (folder / scenario).is_dir())


def benchmarks_in(results: Path) -> tuple[str, ...]:
    """The benchmarks with runs in ``results``; runs without a run.json are taken for the default one's.

    Raises ConfigError where there is none.
    """
    if not results.is_dir():
        raise ConfigError(f"--results {results}: no such folder; pass the folder of the runs")
    named = {name for name in available_benchmarks() if any(scenarios_in(results / name))}
    beside = scenarios_in(results)
    records = {name for scenario in beside for name in _benchmarks_of(results / scenario)}
    found = named | (records or ({DEFAULT_BENCHMARK} if beside and not named else set()))
    if not found:
        raise ConfigError(f"--results {results}: it has no scenario folder, expected {', '.join(Scenario)}")
    return tuple(sorted(found))


def find_runs(request: BuildRequest, benchmark: Benchmark, rule: Suite) -> BenchmarkRuns:
    """The scenarios of a benchmark that are to be submitted. Raises ConfigError for a refused --scenario."""
    refused = [one for one in request.only if request.is_closed and one not in rule.allowed]
    if refused:
        raise ConfigError(
            f"--scenario {refused[0]}: {benchmark.name} is submitted with {', '.join(rule.allowed)} in the "
            "closed division; remove the flag, or pass --division open"
        )
    there = _places(request.results, benchmark.name)
    own = request.results / benchmark.name
    folder = own if own.is_dir() or not any(scenarios_in(request.results)) else request.results
    wanted = list(request.only)
    none_of: tuple[Scenario, ...] = ()
    if not request.only and request.is_closed:
        wanted = [one for one in there if one in rule.allowed]
        wanted += [one for one in rule.required if one not in wanted]
        none_of = () if set(wanted).intersection(rule.one_of) else rule.one_of
    elif not request.only:
        wanted = list(there)
    tests = needed_tests(benchmark) if request.is_closed else ()
    runs = tuple(ScenarioRuns(one, there.get(one, folder / one), tests) for one in wanted)
    left = tuple(sorted(set(there).difference(wanted)))
    return BenchmarkRuns(benchmark, folder, runs, left, none_of)


def records_in(scenario: Path) -> Iterator[RunRecord]:
    """Every run.json of a scenario's runs, also of those that were moved aside; none of damaged ones."""
    for path in sorted(path for pattern in _RECORDS for path in scenario.glob(pattern)):
        try:
            record = read_record(path)
        except ConfigError:
            continue
        if record is not None:
            yield record


def _benchmarks_of(scenario: Path) -> set[str]:
    return {record.plan.client.benchmark.name for record in records_in(scenario)}


def _is_of(scenario: Path, benchmark: str, *, unnamed: bool) -> bool:
    """Whether any run of the scenario is of a benchmark; ``unnamed``: what runs without a run.json are."""
    found = _benchmarks_of(scenario)
    return benchmark in found if found else unnamed
