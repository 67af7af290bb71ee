"""The three commands of prepare_submission.py: each prints, and says whether all is well."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.config.benchmark import load_benchmark
from harness.submission.build import BuildRequest
from harness.submission.build import build as build_tree
from harness.submission.checks.check import check_contexts, check_tree, kept_beside
from harness.submission.checks.issue import Issue
from harness.submission.documents import FROM_RUNS, read_submitter_info
from harness.submission.find_runs import scenarios_there
from harness.submission.layout import FOLDER_OF
from harness.submission.machine import machine_fields
from harness.submission.rules import SystemRule, load_rules
from harness.submission.summary import compare, summarize, table, write_csv


def build(arguments: argparse.Namespace) -> bool:
    """Make the folder and check it."""
    rules, info = load_rules(), read_submitter_info(arguments.submission, arguments.division)
    request = BuildRequest(
        benchmark=load_benchmark(arguments.benchmark),
        info=info,
        results=arguments.results,
        output=arguments.output.absolute(),
        only=tuple(dict.fromkeys(arguments.scenario)),
        user_conf=arguments.user_conf,
        force=arguments.force,
        servers_moved=arguments.servers_moved,
    )
    built = build_tree(request, machine_fields(), rules)
    names = [FOLDER_OF[run.scenario] for run in built.runs]
    print(f"{arguments.output}: {request.runs_folder} with {', '.join(names)}")
    left = sorted(set(scenarios_there(request.results)) - {run.scenario for run in built.runs})
    if left:
        print(f"not taken from {request.results}: {', '.join(left)}")
    print(f"{kept_beside(arguments.output)}: full accuracy logs and run.json, to be kept and not submitted")
    if built.from_machine:
        print(f"taken from this machine, is it the system? {', '.join(built.from_machine)}")
    if built.elsewhere:
        print("the servers are on other machines: nothing of the system's description comes from this one")
    if built.changed_source:
        print("the harness had local changes in a run: src/ has its files as they are now")
    return _conclude(arguments, request.output, check_tree(request.output))


def check(arguments: argparse.Namespace) -> bool:
    """Check a folder."""
    tree: Path = arguments.tree.absolute()
    return _conclude(arguments, tree, check_tree(tree, round_name=arguments.round, kept=arguments.kept))


def _conclude(arguments: argparse.Namespace, tree: Path, issues: Sequence[Issue]) -> bool:
    """Print issues, results and the count; whether there is no issue."""
    rows = summarize(check_contexts(tree))
    earlier = summarize(check_contexts(arguments.against.absolute())) if arguments.against else ()
    compared = compare(rows, earlier)
    for issue in issues:
        print(issue)
    for line in table(compared) if compared else ():
        print(line)
    if arguments.csv:
        write_csv(arguments.csv, compared)
    warnings = sum(issue.is_warning for issue in issues)
    wrong = len(issues) - warnings
    more = f", {warnings} warning{'s' * (warnings != 1)}" if warnings else ""
    print(f"{wrong or 'no'} issue{'s' * (wrong != 1)}{more}")
    return not wrong


def system(arguments: argparse.Namespace) -> bool:
    """Print [system] for the submission's TOML; what is still empty must be filled in."""
    rule, machine = load_rules().system, machine_fields()
    stated = read_submitter_info(arguments.submission).system if arguments.submission else {}
    given = {"division", "submitter"}  # folders, named at the top of the TOML
    print("[system]")
    for name in [name for name in rule.fields if name not in given and name not in stated]:
        print(f'"{name}" = {_quoted(machine.get(name, ""))}{_mark(name, rule, machine)}')
    return True


def _mark(name: str, rule: SystemRule, machine: Mapping[str, str]) -> str:
    if machine.get(name) or name not in rule.meaningful:
        return ""
    return "  # empty: from run.json" if name in FROM_RUNS else "  # needed"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{"".join(letter for letter in escaped if letter.isprintable())}"'
