"""Building the submission folder: all input is checked, then files are staged, then renamed into place."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from harness.loadgen_logs.summary_and_detail import read_detail
from harness.record.run_record import RunRecord
from harness.submission.building.descriptions import SubmitterInfo, measurements, system_fields
from harness.submission.building.find_runs import ScenarioRuns, find_runs, verify_file
from harness.submission.building.readme import ScenarioReadme
from harness.submission.building.source_code import SourceCode, WrittenSource, copy_source, source_of
from harness.submission.building.staging import (
    Move,
    copy_file,
    is_equal,
    keep_file,
    put_in_place,
    refuse_existing,
    staging,
    write_file,
)
from harness.submission.tree.accuracy_files import truncated, without_hash
from harness.submission.tree.layout import REHEARSAL, kept_beside
from harness.submission.tree.origins import (
    ADDRESS,
    origin_differences,
    read_record,
    servers_elsewhere,
)
from harness.submission.tree.round_rules import RoundRules
from harness.submission.tree.secrets import find_secrets
from harness.submission.tree.system_description import nameplate_of, system_issues

_LISTED = 5  # secrets in a message


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The folder to build, and what it is built from."""

    benchmark: Benchmark
    rules: RoundRules
    info: SubmitterInfo
    results: Path
    """the output folder of the runs"""
    output: Path
    only: tuple[Scenario, ...]
    """scenarios to submit; empty for all that are found"""
    user_conf: Path | None
    """takes the place of the file that each performance run used"""
    force: bool
    """replace what exists"""
    servers_moved: bool = False
    """accept runs of one scenario that name the same servers by different addresses"""
    rehearsal: bool = False
    """take runs that are not official, and write a tree that no checker takes for a submission"""

    @property
    def division(self) -> str:
        """The name of the division's folder."""
        return self.info.division + (REHEARSAL if self.rehearsal else "")

    @property
    def org(self) -> Path:
        """``<division>/<org>``, in the tree and in the folder of kept files."""
        return Path(self.division, self.info.submitter)

    @property
    def runs_folder(self) -> Path:
        """The folder of this benchmark's scenarios."""
        return self.org / "results" / self.info.system_id / self.benchmark.name

    @property
    def system_file(self) -> Path:
        """The system description."""
        return self.org / "systems" / f"{self.info.system_id}.json"

    @property
    def kept(self) -> Path:
        """The folder of the files that are kept and not submitted."""
        return kept_beside(self.output)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The submission that was built."""

    runs: tuple[ScenarioRuns, ...]
    sources: tuple[WrittenSource, ...]
    """the published code of the runs"""
    from_machine: tuple[str, ...]
    """description fields taken from this machine"""
    elsewhere: bool
    """whether the servers are on other machines, so that this machine described nothing"""


def build_tree(request: BuildRequest, machine: Mapping[str, str]) -> BuildResult:
    """Write the tree and the kept files beside it. Raises ConfigError before anything is written."""
    suite_name, suite = request.rules.suite_of(request.benchmark.name)
    _refuse_other_benchmark(request)
    _refuse_type(request, suite_name)
    runs = find_runs(
        request.results,
        request.benchmark,
        suite,
        request.info.division,
        request.only,
        request.rehearsal,
    )
    records_of = {run.scenario: run.records() for run in runs}
    _refuse_mixed(request, records_of)
    sources = [source_of(record.provenance.git for record in found.values()) for found in records_of.values()]
    records = [record for found in records_of.values() for record in found.values()]
    elsewhere = any(servers_elsewhere(record, platform.node()) for record in records)
    machine = {} if elsewhere else machine
    folders = {"division": request.division, "submitter": request.info.submitter}
    system = system_fields(request.info, folders, machine, records, request.rules)
    _refuse_incomplete(request, folders, system)
    measured = measurements(request.info, request.benchmark, request.rules)
    confs = [_user_conf(request, run) for run in runs]
    refuse_existing([request.output / request.runs_folder, request.kept / request.runs_folder], request.force)
    with staging(request.output) as folder:
        tree = folder / "tree"
        codes = _write_sources(request, sources, tree)
        for run, source, conf in zip(runs, sources, confs, strict=True):
            target = Path(request.runs_folder, run.scenario.folder)
            write_file(tree / target / "measurements.json", _json(measured))
            _write_logs(request.rules, run, tree / target, folder / "kept" / target)
            places = _write_confs(run, conf, tree / target)
            readme = ScenarioReadme(
                request.benchmark,
                run.scenario,
                read_detail(run.performance / DETAIL),
                records_of[run.scenario],
                codes[source],
                places,
            )
            write_file(tree / target / "README.md", readme.text())
        write_file(tree / request.system_file, _json(system))
        if request.info.nameplate is not None:
            copy_file(request.info.nameplate, tree / nameplate_of(request.system_file))
        _refuse_secrets(tree)
        put_in_place(list(_moves(request, folder)), folder, request.force, request.output)
    used = tuple(name for name in machine if not request.info.system.get(name))
    return BuildResult(runs, tuple(codes.values()), used, elsewhere)


def _refuse_other_benchmark(request: BuildRequest) -> None:
    """Raise ConfigError for runs of another benchmark: every other message would be about its rules."""
    folders = [request.results / scenario for scenario in request.only or Scenario]
    paths = sorted(path for folder in folders for path in folder.rglob(RUN_RECORD))
    records = [record for path in paths if (record := read_record(path)) is not None]
    others = sorted({record.plan.client.benchmark.name for record in records} - {request.benchmark.name})
    if others:
        raise ConfigError(
            f"--benchmark {request.benchmark.name}: {request.results} has runs of {', '.join(others)}; "
            f"pass --benchmark {others[0]}, or the --results of {request.benchmark.name}"
        )


def _write_sources(
    request: BuildRequest, sources: Sequence[SourceCode], tree: Path
) -> dict[SourceCode, WrittenSource]:
    """Write each code once.

    A folder of other code stays as it is: the results of another system refer to it.
    """
    final, own = request.output / request.org / "src", request.output / request.runs_folder
    others = set(own.parents[1].glob(f"*/{request.benchmark.name}")) - {own}
    codes = {}
    for source in dict.fromkeys(sources):
        staged = tree / request.org / "src" / request.benchmark.name
        if taken := staged.exists():
            staged = staged.with_name(f"{staged.name}-{source.short}")
        written = copy_source(source, staged)
        there = final / staged.name
        if not taken and there.exists() and (others or not request.force) and not is_equal(there, staged):
            staged = staged.rename(staged.with_name(f"{staged.name}-{source.short}"))
        codes[source] = replace(written, folder=staged.name)
    return codes


def _write_confs(run: ScenarioRuns, conf: Path, target: Path) -> dict[str, str]:
    """Write each user.conf of the scenario's runs once; returns where it is, by the run's folder."""
    copy_file(conf, target / USER_CONF)
    places = {conf.read_bytes(): USER_CONF}
    confs = {}
    for name, path in run.record_files().items():
        own = path.with_name(USER_CONF)
        has_own = name != PERFORMANCE.as_posix() and own.is_file()
        content = own.read_bytes() if has_own else conf.read_bytes()
        if content not in places:
            places[content] = f"{name}/{USER_CONF}"
            copy_file(own, target / name / USER_CONF)
        confs[name] = places[content]
    return confs


def _refuse_secrets(tree: Path) -> None:
    """Raise ConfigError with file, line and kind, not the text."""
    found = [
        f"{one.path.relative_to(tree).as_posix()}:{one.line} {one.kind}"
        for one in find_secrets(sorted(tree.rglob("*")))
    ]
    if found:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise ConfigError(
            f"text that looks like a secret would be published: {', '.join(found[:_LISTED])}{more}; "
            "remove it from the file and revoke the key; a line without one may end in kingfisher:ignore"
        )


def _refuse_mixed(request: BuildRequest, records: Mapping[Scenario, Mapping[str, RunRecord]]) -> None:
    """Raise ConfigError unless all runs of a scenario have the same server, settings and harness commit."""
    for scenario, by_run in records.items():
        found = origin_differences(by_run)
        texts = [text for what, text in found if not (request.servers_moved and what == ADDRESS)]
        if texts and not request.rehearsal:
            raise ConfigError(
                f"{request.results / scenario}: its runs have different origins: {'; '.join(texts)}; "
                "repeat those that differ, or pass --servers-moved if only the servers' addresses changed"
            )


def _refuse_incomplete(request: BuildRequest, folders: Mapping[str, str], system: Mapping[str, Any]) -> None:
    """Raise ConfigError for an incomplete system description. That of a rehearsal may be."""
    issues = [] if request.rehearsal else list(system_issues(system, request.rules.system, folders))
    if issues:
        raise ConfigError(
            f"the system description is incomplete: {'; '.join(issues)}; write these into [system] "
            "of the submission's TOML ('prepare_submission.py system' prints them on a node of the system)"
        )


def _refuse_type(request: BuildRequest, suite: str) -> None:
    """Raise ConfigError for a system type without this benchmark, which the official checker refuses."""
    types = str(request.info.system.get("system_type", ""))
    if request.info.division == "closed" and types and suite not in types.split(","):
        raise ConfigError(
            f"system_type is {types!r}, and {request.benchmark.name} is a {suite} benchmark; "
            f"write {suite!r} into [system] of the submission's TOML"
        )


def _moves(request: BuildRequest, folder: Path) -> Iterator[Move]:
    """All moves, the results last: a tree with results is complete."""
    tree, source, system_file = folder / "tree", request.org / "src", request.system_file
    for staged in sorted((tree / source).iterdir()):
        yield Move(staged, request.output / source / staged.name, keep=True)
    yield Move(tree / system_file, request.output / system_file, keep=True)
    if request.info.nameplate is not None:
        yield Move(tree / nameplate_of(system_file), request.output / nameplate_of(system_file), keep=True)
    yield Move(folder / "kept" / request.runs_folder, request.kept / request.runs_folder)
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


def _write_logs(rules: RoundRules, run: ScenarioRuns, target: Path, kept: Path) -> None:
    """Logs and run.json of all runs; accuracy logs truncated, and complete among the kept files."""
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


def write_test(folder: Path, test: str, rules: RoundRules, target: Path, kept: Path) -> None:
    """The log of a test that logs random samples stays complete: reviewers verify it again."""
    if (folder / PERFORMANCE).is_dir():
        _copy_logs(folder / PERFORMANCE, target / PERFORMANCE)
    verified = verify_file(folder, test)
    copy_file(verified, target / verified.name)
    if not TESTS[test].every_sample:
        copy_file(folder / ACCURACY / ACCURACY_LOG, target / ACCURACY / ACCURACY_LOG)
    else:
        _shorten(folder / ACCURACY, target / ACCURACY, kept / ACCURACY, rules)


def _copy_logs(source: Path, target: Path) -> None:
    for name in (SUMMARY, DETAIL):
        if (source / name).is_file():
            copy_file(source / name, target / name)


def _shorten(source: Path, target: Path, kept: Path, rules: RoundRules) -> None:
    """Write the truncated log and accuracy.txt with the full log's hash; keep the full log."""
    log, text = source / ACCURACY_LOG, source / ACCURACY_TEXT
    written = without_hash(text.read_text(encoding="utf-8", errors="replace")) if text.is_file() else ""
    write_file(target / ACCURACY_TEXT, f"{written}\nhash={sha256_of(log)}\n".lstrip())
    write_file(target / ACCURACY_LOG, truncated(log, rules.files.shown_bytes))
    keep_file(log, kept / ACCURACY_LOG)
