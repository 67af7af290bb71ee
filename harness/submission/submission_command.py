"""The three commands of prepare_submission.py: each prints; two return whether there are no issues."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import asdict

from harness.cli.streams import require_stdout
from harness.config.benchmark import load_benchmark
from harness.endpoints.tree.run_facts import read_runs, run_folders
from harness.endpoints.tree.starter import starter
from harness.errors import ConfigError
from harness.submission.building.build import build_tree
from harness.submission.building.descriptions import FROM_RUNS, read_submitter_info
from harness.submission.building.find_runs import benchmarks_in
from harness.submission.building.gaps import IncompleteError
from harness.submission.building.machine import machine_fields
from harness.submission.building.request import BuildRequest
from harness.submission.building.source_code import WrittenSource
from harness.submission.checks.check import check_contexts, check_tree
from harness.submission.checks.listing import issue_lines
from harness.submission.results_table import compare, summarize, table, write_csv
from harness.submission.submission_options import (
    BuildOptions,
    CheckOptions,
    SubmissionOptions,
    SystemOptions,
)
from harness.submission.tree.layout import is_empty, is_rehearsal, kept_beside, scenario_dirs
from harness.submission.tree.round_rules import SystemRule, load_rules
from harness.text import show
from harness.toml_files import quoted


def run(options: SubmissionOptions) -> bool:
    """Run one command of prepare_submission.py. Raises HarnessError."""
    match options:
        case BuildOptions():
            return build(options)
        case CheckOptions():
            return check(options)
        case SystemOptions():
            system(options)
            require_stdout()
            return True


def build(options: BuildOptions) -> bool:
    """Build the folder and check it."""
    request = BuildRequest(
        benchmarks=tuple(load_benchmark(name, options.round) for name in _benchmarks(options)),
        rules=load_rules(options.round),
        info=read_submitter_info(options.submission, options.division),
        results=options.results,
        output=options.tree.absolute(),
        only=options.scenario,
        user_conf=options.user_conf,
        force=options.force,
        servers_moved=options.servers_moved,
        rehearsal=options.rehearsal,
    )
    try:
        built = build_tree(request, machine_fields())
    except IncompleteError as error:
        show(*error.lines(), file=sys.stderr)
        raise
    for one in built.benchmarks:
        names = [run.scenario.folder for run in one.runs]
        show(f"{options.tree}: {request.runs_folder(one.benchmark)} with {', '.join(names)}")
        if one.left_out:
            show(f"not included from {one.folder}: {', '.join(one.left_out)}")
    if len(built.benchmarks) > 1:
        show(*_shared_measurements(request))
    show(f"{kept_beside(options.tree)}: full accuracy logs and run.json; keep them, do not submit them")
    if built.from_machine:
        fields = ", ".join(built.from_machine)
        show(f"check these fields, this machine filled them in (is it the system under test?): {fields}")
    if built.elsewhere:
        print("the servers are on other machines: this machine filled in no field of the system description")
    for line in (line for code in built.sources for line in _about(code)):
        print(line)
    return _conclude(options, request.output, None)


def _benchmarks(options: BuildOptions) -> tuple[str, ...]:
    """The benchmarks to build. Raises ConfigError where one that was asked for has no runs."""
    found = benchmarks_in(options.results)
    absent = [name for name in options.benchmark if name not in found]
    if absent:
        raise ConfigError(
            f"--benchmark {absent[0]}: {options.results} has runs of {', '.join(found)}; "
            f"pass --benchmark {found[0]}, or the --results of {absent[0]}"
        )
    return tuple(dict.fromkeys(options.benchmark)) or found


def _shared_measurements(request: BuildRequest) -> Iterator[str]:
    """What several benchmarks take from one line of the TOML, such as the type of their weights."""
    common = {name: value for name, value in request.info.measurements.items() if isinstance(value, str)}
    tables = {name for name, value in request.info.measurements.items() if isinstance(value, dict)}
    names = [one.name for one in request.benchmarks if one.name not in tables]
    if len(names) > 1:
        stated = ", ".join(f"{name} {value}" for name, value in common.items())
        yield f"check these measurements, they are stated for {', '.join(names)} alike: {stated}"


def _about(code: WrittenSource) -> Iterator[str]:
    """One line for each thing that a submitter must know about the published code."""
    if code.links:
        yield f"src/{code.folder} lacks symbolic links, which are never followed: {', '.join(code.links)}"
    if code.local:
        yield f"src/{code.folder} has the local changes that the runs had: {', '.join(code.local)}"
    if code.changed:
        names = ", ".join(code.changed)
        yield f"src/{code.folder} has files without a key that they had in the runs; revoke it: {names}"
    if code.source.state is None:
        folder = f"src/{code.folder}"
        yield f"warning: the runs did not record their code; {folder} holds the tracked files as they are now"


def check(options: CheckOptions) -> bool:
    """Check a folder."""
    if options.kept is not None and not options.kept.is_dir():
        raise ConfigError(
            f"--kept {options.kept}: no such folder; pass the one that a build leaves beside its tree, or "
            "omit the flag"
        )
    if options.json and options.against is not None and options.csv is None:
        text = f"--against {options.against} has no effect: --json prints no comparison; --csv FILE has it"
        show(f"WARNING: {text}", file=sys.stderr)
    return _conclude(options, options.tree.absolute(), options.kept)


def _conclude(options: BuildOptions | CheckOptions, tree: Path, kept: Path | None) -> bool:
    """Check a folder, and print results and issues, or both as JSON; True where no issue needs an action."""
    issues = check_tree(tree, round_name=options.round, kept=kept)
    contexts = check_contexts(tree, options.round, kept)
    rows = summarize(contexts)
    earlier = summarize(check_contexts(options.against.absolute())) if options.against else ()
    compared = compare(rows, earlier)
    unchecked = sum(not is_empty(one.path) for one in scenario_dirs(tree)) - len(rows)
    unrecorded = sum(not (one.has_records or one.is_of_endpoints) for one in contexts)
    if isinstance(options, CheckOptions) and options.json:
        fields = {
            "rehearsal": is_rehearsal(tree),
            "results": list(map(asdict, rows)),
            "issues": [issue.fields() for issue in issues],
            "not_checked": unchecked,
            "without_run_json": unrecorded,
        }
        print(json.dumps(fields, indent=2))
    else:
        lines = list(table(compared)) if compared else []
        show(*issue_lines(tree, issues, lines, unchecked, unrecorded))
    if options.csv:  # last: the check may have taken minutes, and its findings are not lost with the file
        write_csv(options.csv, compared)
    return not any(issue.needs_action for issue in issues)


def system(options: SystemOptions) -> None:
    """Print [system] for the submission's TOML; fields that are still empty must be filled in."""
    if options.endpoints is not None:
        if options.submission is not None:
            raise ConfigError(
                f"--submission {options.submission} is a TOML of ./mlperf submit build, and --endpoints "
                "prints that of ./mlperf endpoints build; omit one of the two flags"
            )
        show(*starter(machine_fields(), read_runs(run_folders(options.endpoints))))
        return
    rule, machine = load_rules().system, machine_fields()
    stated = read_submitter_info(options.submission).system if options.submission else {}
    given = {"division", "submitter"}  # the top of the TOML has these folder names
    missing = [name for name in rule.fields if name not in given and name not in stated]
    # A TOML with a second [system] is refused.
    place = f"# {'into' if missing else 'nothing is missing in'} [system] of {options.submission}"
    print(place if stated else "[system]")
    for name in missing:
        print(f'"{name}" = {quoted(machine.get(name, ""))}{_mark(name, rule, machine)}')


def _mark(name: str, rule: SystemRule, machine: Mapping[str, str]) -> str:
    if machine.get(name) or name not in rule.meaningful:
        return ""
    return "  # empty: from run.json" if name in FROM_RUNS else "  # needed"
