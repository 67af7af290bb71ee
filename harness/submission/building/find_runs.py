"""The runs of a submission: found below --results, and complete before anything is written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.compliance.registry import TESTS, needed_tests
from harness.config.benchmark import Benchmark
from harness.config.choices import OUTPUT_DIR
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    COMPLIANCE_RUN,
    DETAIL,
    PERFORMANCE,
    RUN_RECORD,
    SUMMARY,
    unofficial,
)
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES
from harness.loadgen_logs.summary_and_detail import read_detail, read_summary
from harness.record.run_record import RunRecord
from harness.submission.tree.accuracy_files import is_complete
from harness.submission.tree.origins import read_record
from harness.submission.tree.round_rules import Suite


@dataclass(frozen=True, slots=True)
class ScenarioRuns:
    """The folder ``results/<scenario>`` and the compliance tests in it."""

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

    def record_files(self) -> dict[str, Path]:
        """The path of each run's run.json, by the run's folder in a submission; the file may be missing."""
        tests = {test: self.path / test / COMPLIANCE_RUN / RUN_RECORD for test in self.tests}
        own = {PERFORMANCE: self.performance, ACCURACY: self.accuracy}
        return {name.as_posix(): path / RUN_RECORD for name, path in own.items()} | tests

    def records(self) -> dict[str, RunRecord]:
        """Every run.json that is there, by the run's folder in a submission. Raises ConfigError."""
        found = {name: read_record(path) for name, path in self.record_files().items()}
        return {name: record for name, record in found.items() if record is not None}


def find_runs(
    results: Path,
    benchmark: Benchmark,
    rule: Suite,
    division: str,
    only: Sequence[Scenario],
    rehearsal: bool = False,
) -> tuple[ScenarioRuns, ...]:
    """The scenarios in ``results`` that may be submitted, or those in ``only``.

    Raises ConfigError that names every missing or damaged file.
    """
    if not results.is_dir():
        raise ConfigError(f"--results {results}: no such folder; pass the --output-dir of the runs")
    refused = [scenario for scenario in only if division == "closed" and scenario not in rule.allowed]
    if refused:
        raise ConfigError(
            f"--scenario {refused[0]}: {benchmark.name} is submitted with {', '.join(rule.allowed)} in the "
            "closed division; remove the flag, or pass --division open"
        )
    wanted = list(only) or _scenarios(results, rule, division)
    tests = needed_tests(benchmark) if division == "closed" else ()
    runs = tuple(ScenarioRuns(scenario, results / scenario, tests) for scenario in wanted)
    missing = [what for run in runs for what in _missing(run, rehearsal)]
    if missing:
        others = "".join(f"; {text}" for run in runs for text in _moved_aside(run, benchmark))
        raise ConfigError(f"--results {results}: missing {', '.join(missing)}; {_remedy(missing)}{others}")
    damaged = [what for run in runs for what in _damaged(run)]
    if damaged:
        raise ConfigError(f"--results {results}: {'; '.join(damaged)}; repeat these runs")
    return runs


def verify_file(folder: Path, test: str) -> Path:
    """The verification file of a test; that of a rehearsal has another name."""
    path = folder / TESTS[test].verify_file
    return path if path.is_file() or not unofficial(path).is_file() else unofficial(path)


def folder_of(benchmark: Benchmark, given: Path | None) -> Path:
    """The folder that holds the benchmark's scenarios: in ``given``, or there by default.

    All benchmarks' runs were once in one folder by default; such a folder is still found.
    """
    own = (given or OUTPUT_DIR) / benchmark.name
    if given is not None and (scenarios_there(given) or not own.is_dir()):
        return given
    return own if own.is_dir() or given is not None or not scenarios_there(OUTPUT_DIR) else OUTPUT_DIR


def scenarios_there(results: Path) -> tuple[Scenario, ...]:
    """Every scenario that has a folder in ``results``, with or without runs."""
    return tuple(scenario for scenario in Scenario if (results / scenario).is_dir())


def _scenarios(results: Path, rule: Suite, division: str) -> list[Scenario]:
    """Scenarios found; in the closed division, those that may be submitted and those that are required."""
    found = list(scenarios_there(results))
    if division == "closed":
        found = [scenario for scenario in found if scenario in rule.allowed]
        found += [scenario for scenario in rule.required if scenario not in found]
        if rule.one_of and not set(found).intersection(rule.one_of):
            raise ConfigError(
                f"--results {results}: closed needs {' or '.join(rule.one_of)}, found {', '.join(found)}; "
                "run one of them, or name the scenarios to submit with --scenario"
            )
    if not found:
        raise ConfigError(f"--results {results}: it has no scenario folder, expected {', '.join(Scenario)}")
    return found


def _missing(run: ScenarioRuns, rehearsal: bool) -> Iterator[str]:
    wanted = [run.performance / SUMMARY, run.performance / DETAIL]
    wanted += [run.accuracy / name for name in (SUMMARY, DETAIL, ACCURACY_LOG, ACCURACY_TEXT)]
    for test in run.tests:
        folder = run.path / test
        verified = verify_file(folder, test) if rehearsal else folder / TESTS[test].verify_file
        wanted += [verified, folder / ACCURACY / ACCURACY_LOG]
        if TESTS[test].every_sample:
            wanted += [folder / PERFORMANCE / name for name in (SUMMARY, DETAIL)]
    for path in wanted:
        if path.is_file():
            continue
        other = unofficial(path)
        instead = f" (only {other.name})" if other.is_file() else ""
        yield path.relative_to(run.path.parent).as_posix() + instead


def _moved_aside(run: ScenarioRuns, benchmark: Benchmark) -> Iterator[str]:
    """Runs that are not the benchmark's, or none, where an earlier run of the benchmark was moved aside."""
    for folder in (run.performance, run.accuracy):
        there = _benchmark_in(folder)
        if there == benchmark.name:
            continue
        for aside in sorted(folder.parent.glob(f"{folder.name}.*"), reverse=True):
            if _benchmark_in(aside) == benchmark.name:
                holds = f"holds a run of {there}" if there else "holds no run"
                yield f"{folder} {holds}, and {aside} an earlier one of {benchmark.name}"
                break


def _benchmark_in(folder: Path) -> str | None:
    record = read_record(folder / RUN_RECORD)
    return None if record is None else record.plan.client.benchmark.name


def _remedy(missing: Sequence[str]) -> str:
    """The programs that write the missing files."""
    programs = []
    if any("/performance/" in name and "TEST" not in name for name in missing):
        programs.append("run_mlperf.py")
    if any("/accuracy/mlperf" in name and "TEST" not in name for name in missing):
        programs.append("run_mlperf.py --accuracy")
    if any(name.endswith(f"accuracy/{ACCURACY_TEXT}") for name in missing):
        programs.append("eval_mlperf_accuracy.py (its output is accuracy.txt)")
    if any("TEST" in name for name in missing):
        programs.append("run_compliance.py")
    return f"run {', '.join(programs)}"


def _damaged(run: ScenarioRuns) -> Iterator[str]:
    tests = [run.path / test for test in run.tests]
    for folder in [run.performance, run.accuracy, *(test / PERFORMANCE for test in tests)]:
        for path, problem in (
            (folder / SUMMARY, read_summary(folder / SUMMARY).problem),
            (folder / DETAIL, read_detail(folder / DETAIL).problem),
        ):
            if problem not in ("", "missing"):
                yield f"{path.relative_to(run.path.parent).as_posix()} is {problem}"
    for folder in [run.accuracy, *(test / ACCURACY for test in tests)]:
        log = folder / ACCURACY_LOG
        name = log.relative_to(run.path.parent).as_posix()
        if log.stat().st_size <= EMPTY_LOG_BYTES:
            yield f"{name} has no answers"
        elif not is_complete(log):
            yield f"{name} is cut short"
