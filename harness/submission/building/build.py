"""Building the submission folder: all input is checked, then files are staged, then renamed into place."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.cli.door import called
from harness.config.benchmark import Benchmark
from harness.errors import ConfigError
from harness.files import DETAIL, RUN_RECORD, USER_CONF
from harness.loadgen_logs.summary_and_detail import read_detail
from harness.record.run_record import RunRecord
from harness.staging import (
    Move,
    copy_file,
    foreign_files,
    is_equal,
    put_in_place,
    staging,
    write_file,
)
from harness.submission.building.descriptions import FROM_RUNS, measurements, system_fields
from harness.submission.building.endpoints_files import endpoints_readme, write_endpoints
from harness.submission.building.find_runs import BenchmarkRuns, ScenarioRuns, find_runs
from harness.submission.building.gaps import Gap, IncompleteError, attempt
from harness.submission.building.missing_runs import missing_runs
from harness.submission.building.readme import ScenarioReadme
from harness.submission.building.request import BuildRequest
from harness.submission.building.scenario_files import write_confs, write_logs
from harness.submission.building.source_code import SourceCode, WrittenSource, copy_source, source_of
from harness.submission.tree.cost import Cost
from harness.submission.tree.layout import MEASUREMENTS
from harness.submission.tree.origins import (
    ADDRESS,
    PLACES,
    origin_differences,
    read_record,
    servers_elsewhere,
)
from harness.submission.tree.secrets import find_secrets
from harness.submission.tree.system_description import nameplate_of, other_suite, system_issues
from harness.text import first_few

_LISTED = 5  # secrets, or changed files, in a message


class BuildResult(msgspec.Struct, frozen=True):
    """The submission that was built."""

    benchmarks: tuple[BenchmarkRuns, ...]
    sources: tuple[WrittenSource, ...]
    """the published code of the runs"""
    from_machine: tuple[str, ...]
    """description fields taken from this machine"""
    elsewhere: bool
    """whether the servers are on other machines, so that this machine described nothing"""


class _Part(msgspec.Struct, frozen=True):
    """One benchmark, ready to be written."""

    found: BenchmarkRuns
    records: dict[str, dict[str, RunRecord]] = {}
    """by scenario and by the run's folder"""
    sources: dict[str, SourceCode] = {}
    """by scenario"""
    confs: dict[str, Path] = {}
    """by scenario"""
    measured: dict[str, Any] = {}


def build_tree(request: BuildRequest, machine: Mapping[str, str]) -> BuildResult:
    """Write the tree and the kept files beside it. Raises ConfigError before anything is written."""
    gaps: list[Gap] = []
    parts = [_part(request, benchmark, gaps) for benchmark in request.benchmarks]
    records = [one for part in parts for found in part.records.values() for one in found.values()]
    elsewhere = any(servers_elsewhere(record, platform.node()) for record in records)
    machine = {} if elsewhere else machine
    described = [*records, *_records_of_others(request)]
    system = system_fields(request.info, request.folders, machine, described, request.rules)
    measured = any(run.is_of_endpoints for part in parts for run in part.found.runs)
    gaps += _incomplete(request, system, bool(records) or measured)
    if gaps:
        of_several = sum(len(part.found.runs) for part in parts) > 1
        raise IncompleteError(tuple(dict.fromkeys(gaps)), of_several=of_several)
    with staging(request.output) as folder:
        codes = {part.found.benchmark.name: _stage(request, part, folder) for part in parts}
        tree = folder / "tree"
        write_file(tree / request.system_file, _json(system))
        if request.info.nameplate is not None:
            copy_file(request.info.nameplate, tree / nameplate_of(request.system_file))
        _refuse_secrets(tree)
        moves = list(_moves(request, folder))
        _refuse_foreign(request, moves)
        put_in_place(moves, folder, request.output, request.kept)
    used = tuple(name for name in machine if not request.info.system.get(name))
    sources = tuple(code for found in codes.values() for code in found.values())
    return BuildResult(tuple(part.found for part in parts), sources, used, elsewhere)


def _part(request: BuildRequest, benchmark: Benchmark, gaps: list[Gap]) -> _Part:
    """What a benchmark is built from; all that it lacks is added to ``gaps``."""
    suite_name, suite = request.rules.suite_of(benchmark.name)
    part = _Part(find_runs(request, benchmark, suite))
    gaps += missing_runs(part.found, request.rehearsal)
    if request.is_closed and (text := other_suite(request.info.system, suite_name, benchmark.name)):
        gaps.append(Gap(Cost.EDIT, text, f"write {suite_name!r} into [system] of the submission's TOML"))
    for run in part.found.runs:
        records = attempt([], Cost.EDIT, run.records) or {}  # missing_runs names a damaged one
        part.records[run.scenario] = records
        gaps += _mixed(request, benchmark.name, run, records)
        states = [record.provenance.git for record in records.values()]
        source = attempt(gaps, Cost.MINUTES, partial(source_of, states))
        if run.is_of_endpoints:
            part.sources.update({} if source is None else {run.scenario: source})
            continue
        conf = _user_conf(request, run)
        if isinstance(conf, Gap):
            gaps += [conf] if run.performance.is_dir() else []
        elif source is not None:
            part.sources[run.scenario], part.confs[run.scenario] = source, conf
    measured = attempt(gaps, Cost.EDIT, lambda: measurements(request.info, benchmark, request.rules))
    return replace(part, measured=measured or {})


def _mixed(
    request: BuildRequest, benchmark: str, run: ScenarioRuns, records: Mapping[str, RunRecord]
) -> Iterator[Gap]:
    """Runs of a scenario of different servers, settings or code. Those of a rehearsal may differ."""
    own = {name: one for name, one in records.items() if one.plan.client.benchmark.name == benchmark}
    found = [] if request.rehearsal else list(origin_differences(own))
    moved = "; ".join(text for what, text in found if what == ADDRESS and not request.servers_moved)
    other = "; ".join(text for what, text in found if what not in PLACES)
    where = f"{benchmark}: {run.path.name}: its runs have different origins"
    if moved:
        remedy = "pass --servers-moved if only the servers' addresses changed"
        yield Gap(Cost.EDIT, f"{where}: {moved}", remedy)
    if other:
        yield Gap(Cost.GPU_HOURS, f"{where}: {other}", "repeat the runs that differ")


def _records_of_others(request: BuildRequest) -> Iterator[RunRecord]:
    """Kept records of this system's benchmarks that are not built now: its description is of all."""
    system = request.kept / request.system_folder
    now = {system / benchmark.name for benchmark in request.benchmarks}
    for folder in sorted(set(system.glob("*")) - now):
        records = (read_record(path) for path in sorted(folder.rglob(RUN_RECORD)))
        yield from (record for record in records if record is not None)


def _incomplete(request: BuildRequest, system: Mapping[str, Any], has_runs: bool) -> Iterator[Gap]:
    """An incomplete system description. That of a rehearsal may be."""
    known = system if has_runs else {**system, **dict.fromkeys(FROM_RUNS, "from run.json")}
    issues = [] if request.rehearsal else system_issues(known, request.rules.system, request.folders)
    if text := "; ".join(issues):
        yield Gap(
            Cost.EDIT,
            f"the system description is incomplete: {text}",
            "write these into [system] of the submission's TOML "
            f"('{called('prepare_submission.py')} system' prints them on a node of the system)",
        )


def _stage(request: BuildRequest, part: _Part, folder: Path) -> dict[SourceCode, WrittenSource]:
    """Write a benchmark's files into the staging folder; returns its published code."""
    tree, benchmark = folder / "tree", part.found.benchmark
    codes = _write_sources(request, benchmark.name, list(part.sources.values()), tree)
    for run in part.found.runs:
        target = Path(request.runs_folder(benchmark), run.scenario.folder)
        write_file(tree / target / MEASUREMENTS, _json(part.measured))
        if run.is_of_endpoints:
            write_endpoints(run, tree / target, folder / "kept" / target)
            text = endpoints_readme(benchmark, run, codes[part.sources[run.scenario]])
            write_file(tree / target / "README.md", text)
            continue
        write_logs(request.rules, run, tree / target, folder / "kept" / target)
        readme = ScenarioReadme(
            benchmark,
            run.scenario,
            read_detail(run.performance / DETAIL),
            part.records[run.scenario],
            codes[part.sources[run.scenario]],
            write_confs(run, part.confs[run.scenario], tree / target),
        )
        write_file(tree / target / "README.md", readme.text())
    return codes


def _write_sources(
    request: BuildRequest, benchmark: str, sources: Sequence[SourceCode], tree: Path
) -> dict[SourceCode, WrittenSource]:
    """Write each code once.

    A folder of other code stays as it is where the results of another system refer to it.
    """
    final, own = request.output / request.org / "src", request.output / request.system_folder / benchmark
    others = set(own.parents[1].glob(f"*/{benchmark}")) - {own}
    codes = {}
    for source in dict.fromkeys(sources):
        staged = tree / request.org / "src" / benchmark
        if taken := staged.exists():
            staged = staged.with_name(f"{staged.name}-{source.short}")
        written = copy_source(source, staged)
        there = final / staged.name
        if not taken and there.exists() and others and not is_equal(there, staged):
            staged = staged.rename(staged.with_name(f"{staged.name}-{source.short}"))
        codes[source] = replace(written, folder=staged.name)
    return codes


def _refuse_secrets(tree: Path) -> None:
    """Raise ConfigError with file, line and kind, not the text."""
    found = [
        f"{one.path.relative_to(tree).as_posix()}:{one.line} {one.kind}"
        for one in find_secrets(sorted(tree.rglob("*")))
    ]
    if found:
        raise ConfigError(
            f"text that looks like a secret would be published: {first_few(found, _LISTED)}; "
            "remove it from the file and revoke the key; a line without one may end in kingfisher:ignore"
        )


def _refuse_foreign(request: BuildRequest, moves: Sequence[Move]) -> None:
    """Raise ConfigError for files that would be replaced and are not as they were built."""
    finals = [move.final for move in moves if move.final.is_relative_to(request.output)]
    there = [final for final in finals if final.exists()]
    found = [] if request.force else list(foreign_files(request.output, request.kept, there))
    if found:
        raise ConfigError(
            f"--output {request.output}: not built here, or changed since it was built: "
            f"{first_few(found, _LISTED)}; pass --force to replace it, or choose another --output"
        )


def _moves(request: BuildRequest, folder: Path) -> Iterator[Move]:
    """All moves, the results last: a tree with results is complete."""
    tree, source, system_file = folder / "tree", request.org / "src", request.system_file
    for staged in sorted((tree / source).iterdir()):
        final = request.output / source / staged.name
        if not final.exists() or not is_equal(staged, final):
            yield Move(staged, final)
    yield Move(tree / system_file, request.output / system_file)
    if request.info.nameplate is not None:
        yield Move(tree / nameplate_of(system_file), request.output / nameplate_of(system_file))
    for target in map(request.runs_folder, request.benchmarks):
        yield Move(folder / "kept" / target, request.kept / target)
        yield Move(tree / target, request.output / target)


def _user_conf(request: BuildRequest, run: ScenarioRuns) -> Path | Gap:
    path = request.user_conf or _own_user_conf(run)
    if path is not None and path.is_file() and path.stat().st_size:
        return path
    shown = "no run.json names one" if path is None else f"{path} is missing or empty"
    return Gap(Cost.EDIT, f"user.conf of {run.scenario}: {shown}", "pass --user-conf")


def _own_user_conf(run: ScenarioRuns) -> Path | None:
    """The copy beside the run's logs; the original file may have changed since."""
    kept = run.performance / USER_CONF
    if kept.is_file():
        return kept
    record = attempt([], Cost.EDIT, lambda: read_record(run.performance / RUN_RECORD))
    return None if record is None else record.plan.user_conf


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
