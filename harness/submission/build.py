"""Building the submission folder: all input is checked, then files are staged, then renamed into place."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.compliance.registry import TESTS
from harness.config.benchmark import Benchmark
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    DETAIL,
    PERFORMANCE,
    RUN_RECORD,
    SUMMARY,
    USER_CONF,
    sha256_of,
)
from harness.loadgen_logs.summary_and_detail import read_detail, read_summary
from harness.record.run_record import RunRecord
from harness.submission.accuracy_files import truncated, without_hash
from harness.submission.checks.check import kept_beside
from harness.submission.checks.check_context import Logs
from harness.submission.checks.run_record import (
    ADDRESS,
    origin_differences,
    read_record,
    servers_elsewhere,
)
from harness.submission.documents import SubmitterInfo, measurements, scenario_readme, system_fields
from harness.submission.find_runs import ScenarioRuns, find_runs
from harness.submission.nameplate import nameplate_of
from harness.submission.rules import Rules
from harness.submission.source_code import copy_source, refuse_secrets
from harness.submission.staging import (
    Move,
    copy_file,
    keep_file,
    put_in_place,
    refuse_existing,
    staging,
    write_file,
)


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The folder to build. ``user_conf`` overrides the file that the performance run used.

    ``servers_moved`` accepts runs of one scenario that name the same servers by different addresses.
    """

    benchmark: Benchmark
    info: SubmitterInfo
    results: Path
    output: Path
    only: tuple[Scenario, ...]
    user_conf: Path | None
    force: bool
    servers_moved: bool = False

    @property
    def org(self) -> Path:
        """``<division>/<org>``, in the tree and in the folder of kept files."""
        return Path(self.info.division, self.info.submitter)

    @property
    def runs_folder(self) -> Path:
        """The folder of this benchmark's scenarios."""
        return self.org / "results" / self.info.system_id / self.benchmark.name


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The scenarios that were built. ``from_machine`` are description fields taken from this machine.

    ``elsewhere``: the servers are on other machines, so no field was taken from this one.
    """

    runs: tuple[ScenarioRuns, ...]
    from_machine: tuple[str, ...]
    elsewhere: bool
    changed_source: bool  # the harness had local changes in a run


def build(request: BuildRequest, machine: Mapping[str, str], rules: Rules) -> BuildResult:
    """Write the tree and the kept files beside it. Raises ConfigError before anything is written."""
    division = request.info.division
    suite_name, suite = rules.suite_of(request.benchmark.name)
    _refuse_type(request, suite_name)
    runs = find_runs(request.results, request.benchmark, suite, division, request.only)
    records = [record for run in runs for record in run.records().values()]
    _refuse_mixed(request, runs)
    elsewhere = any(servers_elsewhere(record, platform.node()) for record in records)
    machine = {} if elsewhere else machine
    system = system_fields(request.info, machine, records, rules)
    measured = measurements(request.info, request.benchmark, rules)
    confs = {run.scenario: _user_conf(request, run) for run in runs}
    kept = kept_beside(request.output)
    system_file = request.org / "systems" / f"{request.info.system_id}.json"
    refuse_existing([request.output / request.runs_folder, kept / request.runs_folder], request.force)
    with staging(request.output) as folder:
        for run in runs:
            target = Path(request.runs_folder, run.scenario.folder)
            _write_scenario(request, run, rules, folder / "tree" / target, folder / "kept" / target)
            write_file(folder / "tree" / target / "measurements.json", _json(measured))
            copy_file(confs[run.scenario], folder / "tree" / target / USER_CONF)
        write_file(folder / "tree" / system_file, _json(system))
        if request.info.nameplate is not None:
            copy_file(request.info.nameplate, folder / "tree" / nameplate_of(system_file))
        copy_source(folder / "tree" / request.org / "src" / request.benchmark.name)
        refuse_secrets(folder / "tree")
        put_in_place(list(_moves(request, folder, system_file, kept)), folder, request.force)
    used = tuple(name for name in machine if not request.info.system.get(name))
    return BuildResult(runs, used, elsewhere, any(map(_has_changes, records)))


def _has_changes(record: RunRecord) -> bool:
    return record.provenance.git is not None and record.provenance.git.dirty


def _refuse_mixed(request: BuildRequest, runs: Sequence[ScenarioRuns]) -> None:
    """Raise ConfigError unless all runs of a scenario have the same server, settings and harness commit."""
    for run in runs:
        found = origin_differences(run.records())
        texts = [text for what, text in found if not (request.servers_moved and what == ADDRESS)]
        if texts:
            raise ConfigError(
                f"{request.results / run.scenario}: its runs have different origins: {'; '.join(texts)}; "
                "repeat those that differ, or pass --servers-moved if only the servers' addresses changed"
            )


def _refuse_type(request: BuildRequest, suite: str) -> None:
    """Raise ConfigError for a system type without this benchmark, which the official checker refuses."""
    types = str(request.info.system.get("system_type", ""))
    if request.info.division == "closed" and types and suite not in types.split(","):
        raise ConfigError(
            f"system_type is {types!r}, and {request.benchmark.name} is a {suite} benchmark; "
            f"write {suite!r} into [system] of the submission's TOML"
        )


def _moves(request: BuildRequest, folder: Path, system_file: Path, kept: Path) -> Iterator[Move]:
    """All moves, the results last: a tree with results is complete."""
    tree, source = folder / "tree", request.org / "src" / request.benchmark.name
    yield Move(tree / source, request.output / source, keep=True)
    yield Move(tree / system_file, request.output / system_file, keep=True)
    if request.info.nameplate is not None:
        yield Move(tree / nameplate_of(system_file), request.output / nameplate_of(system_file), keep=True)
    yield Move(folder / "kept" / request.runs_folder, kept / request.runs_folder)
    yield Move(tree / request.runs_folder, request.output / request.runs_folder)


def _user_conf(request: BuildRequest, run: ScenarioRuns) -> Path:
    path = request.user_conf or _own_user_conf(run)
    if path is None or not path.is_file() or not path.stat().st_size:
        shown = "no run.json names one" if path is None else f"{path} is missing or empty"
        raise ConfigError(f"user.conf of {run.scenario}: {shown}; pass --user-conf")
    return path


def _own_user_conf(run: ScenarioRuns) -> Path | None:
    """The copy beside the run's logs; the original file may have changed since."""
    kept = run.performance / USER_CONF
    if kept.is_file():
        return kept
    record = read_record(run.performance / RUN_RECORD)
    return None if record is None else record.plan.user_conf


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


def _write_scenario(request: BuildRequest, run: ScenarioRuns, rules: Rules, target: Path, kept: Path) -> None:
    _copy_logs(run.performance, target / PERFORMANCE)
    if (log := run.performance / ACCURACY_LOG).is_file():
        copy_file(log, target / PERFORMANCE / ACCURACY_LOG)
    _copy_logs(run.accuracy, target / ACCURACY)
    _shorten(run.accuracy, target / ACCURACY, kept / ACCURACY, rules)
    for test in run.tests:
        write_test(run.path / test, test, rules, target / test, kept / test)
    for name, path in run.record_files().items():
        if path.is_file():
            copy_file(path, kept / name / RUN_RECORD)
    logs = Logs(PERFORMANCE, read_summary(run.performance / SUMMARY), read_detail(run.performance / DETAIL))
    write_file(target / "README.md", scenario_readme(request.benchmark, run, logs))


def write_test(folder: Path, test: str, rules: Rules, target: Path, kept: Path) -> None:
    """The log of a test that logs random samples stays complete: reviewers verify it again."""
    if (folder / PERFORMANCE).is_dir():
        _copy_logs(folder / PERFORMANCE, target / PERFORMANCE)
    copy_file(folder / TESTS[test].verify_file, target / TESTS[test].verify_file)
    if not TESTS[test].every_sample:
        copy_file(folder / ACCURACY / ACCURACY_LOG, target / ACCURACY / ACCURACY_LOG)
    else:
        _shorten(folder / ACCURACY, target / ACCURACY, kept / ACCURACY, rules)


def _copy_logs(source: Path, target: Path) -> None:
    for name in (SUMMARY, DETAIL):
        if (source / name).is_file():
            copy_file(source / name, target / name)


def _shorten(source: Path, target: Path, kept: Path, rules: Rules) -> None:
    """Write the truncated log and accuracy.txt with the full log's hash; keep the full log aside."""
    log, text = source / ACCURACY_LOG, source / ACCURACY_TEXT
    written = without_hash(text.read_text(encoding="utf-8", errors="replace")) if text.is_file() else ""
    write_file(target / ACCURACY_TEXT, f"{written}\nhash={sha256_of(log)}\n".lstrip())
    write_file(target / ACCURACY_LOG, truncated(log, rules.files.shown_bytes))
    keep_file(log, kept / ACCURACY_LOG)
