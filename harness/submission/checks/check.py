"""All checks of a tree, in the order of its folders."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.config.rounds import current_round
from harness.config.scenario import Scenario
from harness.files import DETAIL, PERFORMANCE
from harness.json_files import read_fields
from harness.loadgen_logs.summary_and_detail import read_detail
from harness.submission.checks.accuracy_run import check_accuracy
from harness.submission.checks.compliance_tests import check_tests
from harness.submission.checks.context import CheckContext
from harness.submission.checks.documents import check_scenario_documents, check_system, check_user_conf
from harness.submission.checks.endpoints_run import check_endpoints
from harness.submission.checks.issue import Issue, unreadable
from harness.submission.checks.loadgen_logs import check_versions
from harness.submission.checks.performance_run import check_performance
from harness.submission.checks.power import check_power
from harness.submission.checks.run_records import check_records
from harness.submission.checks.tree_files import (
    check_encoding,
    check_files,
    check_other_tests,
    check_repeats,
)
from harness.submission.tree.cost import Cost
from harness.submission.tree.layout import (
    REHEARSAL,
    BenchmarkDir,
    ScenarioDir,
    benchmark_dirs,
    has_endpoints_layout,
    is_empty,
    kept_beside,
    organisations,
    scenario_dirs,
    scenario_of,
    system_dirs,
)
from harness.submission.tree.round_rules import RoundRules, Suite, definition_of, load_rules
from harness.submission.tree.system_description import other_suite

# The checks of one result, in the order of their issues: of LoadGen's logs, and of those of Endpoints.
CHECKS: tuple[Callable[[CheckContext], Iterator[Issue]], ...] = (
    check_encoding,
    check_other_tests,
    check_scenario_documents,
    check_performance,
    check_user_conf,
    check_versions,
    check_power,
    check_accuracy,
    check_tests,
    check_records,
)
ENDPOINTS_CHECKS = (check_encoding, check_other_tests, check_endpoints)
_UNDEFINED_SCENARIOS = ("multistream",)  # MLPerf has it, and none of our benchmarks
# How an issue of a detail log and a deviation in run.json name a setting of LoadGen.
_LOGGED = re.compile(r"effective_(\w+) is ")
_DEVIATION = re.compile(r"LoadGen (\w+) is ")
_MAPPING = "model_mapping.json"  # names the official benchmark of each folder in an open submission


def check_tree(root: Path, *, round_name: str | None = None, kept: Path | None = None) -> tuple[Issue, ...]:
    """All issues of a submission, warnings included. Raises ConfigError when ``root`` is not a submission.

    ``kept`` holds full accuracy logs and run.json under the same paths as in the tree.
    """
    round_name = round_name or current_round()
    contexts = check_contexts(root, round_name, kept)
    parts = _parts(root, round_name, contexts)
    issues = dict.fromkeys(issue for path, found in parts for issue in _guarded(root, path, found))
    return tuple(_without_repeats(list(issues)))


def _without_repeats(issues: Sequence[Issue]) -> Iterator[Issue]:
    """Leave out a deviation of run.json that is an issue of the same run's logs, too."""
    logged = {
        (Path(issue.where).parent, match[1]) for issue in issues if (match := _LOGGED.match(issue.what))
    }
    for issue in issues:
        match = _DEVIATION.match(issue.what) if issue.code == "deviations" else None
        if match is None or (Path(issue.where), match[1]) not in logged:
            yield issue


def check_contexts(
    root: Path, round_name: str | None = None, kept: Path | None = None
) -> tuple[CheckContext, ...]:
    """Every result that is checked, those with the logs of Endpoints last.

    Raises ConfigError when ``root`` is not a submission.
    """
    kept, round_name = kept or kept_beside(root), round_name or current_round()
    found = (_context(folder, kept, round_name) for folder in scenario_dirs(root))
    return tuple(sorted(filter(None, found), key=lambda context: context.is_of_endpoints))


def _parts(
    root: Path, round_name: str, contexts: Sequence[CheckContext]
) -> Iterator[tuple[Path, Iterator[Issue]]]:
    """The issues of each part of a tree, and the part's folder."""
    rules = load_rules(round_name)
    yield from ((path, _organisation(root, path)) for path in organisations(root))
    yield from ((one.path, check_system(one, rules.system)) for one in system_dirs(root))
    yield from ((one.path, _benchmark(one, round_name)) for one in benchmark_dirs(root))
    for context in contexts:
        checks = ENDPOINTS_CHECKS if context.is_of_endpoints else CHECKS
        yield from ((context.dir.path, check(context)) for check in checks)
        context.read.clear()
    yield root, check_files(root, rules.files.any_bytes)
    yield root, check_repeats(root, contexts)


def _guarded(root: Path, path: Path, issues: Iterator[Issue]) -> Iterator[Issue]:
    """One entry that cannot be read is an issue, and ends no other check."""
    try:
        yield from issues
    except OSError as error:
        named = Path(os.fsdecode(error.filename)) if error.filename else path
        where = (named if named.is_relative_to(root) else path).relative_to(root)
        yield unreadable(where.as_posix(), str(error.strerror))


def _benchmark(folder: BenchmarkDir, round_name: str) -> Iterator[Issue]:
    """The name of a benchmark's folder and the scenarios in it."""
    rules, where = load_rules(round_name), folder.relative(folder.path)
    name = official_name(folder, rules)
    if name not in rules.benchmarks:
        text = f"{folder.benchmark} is no benchmark of {round_name}; the official checker refuses it"
        yield Issue("benchmark", where, text)
    elif definition_of(name, round_name) is None:
        text = f"{folder.benchmark} has no definition here: not checked"
        yield Issue("benchmark", where, text, is_warning=True)
    else:
        yield from _scenarios(folder, *rules.suite_of(name))


def _context(folder: ScenarioDir, kept: Path, round_name: str) -> CheckContext | None:
    """None for a folder that is not checked; ``_benchmark`` reports those."""
    rules, of_endpoints = load_rules(round_name), has_endpoints_layout(folder.path)
    scenario, name = folder.scenario, official_name(folder, rules)
    benchmark, (_, suite) = definition_of(name, round_name), rules.suite_of(name)
    if benchmark is None or scenario is None or (folder.binding and scenario not in suite.allowed):
        return None
    if is_empty(folder.path):
        return None
    if not of_endpoints:
        scenario = _of_runs(folder, scenario, suite)
    aside = kept / folder.path.relative_to(folder.root)
    return CheckContext(folder, benchmark, scenario, rules, aside if aside.is_dir() else None, of_endpoints)


def _of_runs(folder: ScenarioDir, scenario: Scenario, suite: Suite) -> Scenario:
    """The scenario of the folder's runs: another one where its result may be inferred from that one's."""
    other = suite.inferred.get(scenario)
    if other is None:
        return scenario
    ran = read_detail(folder.path / PERFORMANCE / DETAIL).effective.get("scenario")
    return other if ran == other.loadgen else scenario


def _organisation(root: Path, path: Path) -> Iterator[Issue]:
    """What the official checker needs of a submitter's folder before it reads a result of anyone."""
    where = path.relative_to(root)
    if not (path / "results").is_dir():
        text = "has no results/, for which MLCommons's checker ends with an error: no result is checked"
        yield Issue("missing-file", where.as_posix(), text, remedy="remove the folder, or add its results")
    mapping = path / _MAPPING
    if (
        where.parts[0].removesuffix(REHEARSAL) == "open"
        and mapping.exists()
        and isinstance(what := read_fields(mapping), str)
    ):
        yield Issue("malformed", (where / _MAPPING).as_posix(), what)


def official_name(folder: BenchmarkDir, rules: RoundRules) -> str:
    """The official name of a folder's benchmark; open results may map other names in model_mapping.json."""
    name = rules.aliases.get(folder.benchmark, folder.benchmark)
    if name in rules.benchmarks or folder.binding:
        return name
    mapping = read_fields(folder.org_path / _MAPPING)
    return str(mapping.get(name, name)) if isinstance(mapping, Mapping) else name


def _scenarios(folder: BenchmarkDir, suite: str, rule: Suite) -> Iterator[Issue]:
    """Scenario folders that are missing, not allowed or not checked."""
    where = folder.relative(folder.path)
    have: set[Scenario] = set()
    folders = sorted(path.name for path in folder.path.iterdir() if path.is_dir())
    empty = [name for name in folders if is_empty(folder.path / name)]
    for name in folders:
        if name in empty:
            continue
        found = scenario_of(folder.path / name)
        if found is not None and (found in rule.allowed or not folder.binding):
            have.add(found)
        elif not folder.binding and name.lower() in _UNDEFINED_SCENARIOS:
            yield Issue("scenarios", where, f"{name} is not checked", is_warning=True)
            run = read_detail(folder.path / name / PERFORMANCE / DETAIL).effective.get("scenario")
            if str(run).lower() != name.lower():
                text = f"scenario is {run}, expected that of the folder {name}"
                yield Issue("scenario", f"{where}/{name}/{(PERFORMANCE / DETAIL).as_posix()}", text)
        else:
            expected = ", ".join(scenario.folder for scenario in rule.allowed)
            text = f"{name} is not allowed, expected {expected}"
            yield Issue("scenarios", where, text, remedy="rename or remove the folder", cost=Cost.EDIT)
    absent = list(_missing(folder, suite, rule, have, folders)) if folder.binding else []
    yield from absent
    for name in empty:
        if not any(name in issue.what for issue in absent):
            remedy = "remove the folder, or complete it with the scenario's runs"
            yield Issue("scenarios", f"{where}/{name}", "is empty", remedy=remedy, cost=Cost.EDIT)


def _missing(
    folder: BenchmarkDir, suite: str, rule: Suite, have: set[Scenario], folders: Sequence[str]
) -> Iterator[Issue]:
    where = folder.relative(folder.path)
    fields = read_fields(folder.system_file)
    if text := other_suite({} if isinstance(fields, str) else fields, suite, folder.benchmark):
        remedy = f"correct it in {folder.relative(folder.system_file)}, or remove the benchmark's folder"
        yield Issue("scenarios", where, text, remedy=remedy, cost=Cost.EDIT)
        return
    for group in rule.missing(have):
        names = [scenario.folder for scenario in group]
        text = f"{' or '.join(names)} is missing"
        similar = [name for name in folders if name.lower() in map(str.lower, names) and name not in names]
        remedy = f"rename {similar[0]} to {names[0]}" if similar else "add the scenario's results"
        yield Issue("scenarios", where, text, remedy=remedy, cost=Cost.EDIT if similar else None)
