"""The three commands of prepare_submission.py: each prints, and says whether all is well."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.config.benchmark import load_benchmark
from harness.submission.build import Order
from harness.submission.build import build as build_tree
from harness.submission.checks.check import check_tree, kept_beside, subjects_of
from harness.submission.checks.issue import Complaint
from harness.submission.find_runs import scenarios_there
from harness.submission.layout import FOLDER_OF
from harness.submission.machine import machine_fields
from harness.submission.rules import SystemRule, load_rules
from harness.submission.submitter_info import read_statement
from harness.submission.summary import compare, summarize, table, write_csv
from harness.submission.system_description import FROM_RUNS


def build(arguments: argparse.Namespace) -> bool:
    """Make the folder and check it."""
    rules, statement = load_rules(), read_statement(arguments.submission, arguments.division)
    order = Order(
        benchmark=load_benchmark(arguments.benchmark),
        statement=statement,
        results=arguments.results,
        output=arguments.output.absolute(),
        only=tuple(dict.fromkeys(arguments.scenario)),
        user_conf=arguments.user_conf,
        force=arguments.force,
        servers_moved=arguments.servers_moved,
    )
    built = build_tree(order, machine_fields(), rules)
    names = [FOLDER_OF[run.scenario] for run in built.runs]
    print(f"{arguments.output}: {order.runs_folder} with {', '.join(names)}")
    left = sorted(set(scenarios_there(order.results)) - {run.scenario for run in built.runs})
    if left:
        print(f"not taken from {order.results}: {', '.join(left)}")
    print(f"{kept_beside(arguments.output)}: full accuracy logs and run.json, to be kept and not submitted")
    if built.from_machine:
        print(f"taken from this machine, is it the system? {', '.join(built.from_machine)}")
    if built.elsewhere:
        print("the servers are on other machines: nothing of the system's description comes from this one")
    if built.changed_source:
        print("the harness had local changes in a run: src/ has its files as they are now")
    return _conclude(arguments, order.output, check_tree(order.output))


def check(arguments: argparse.Namespace) -> bool:
    """Check a folder."""
    tree: Path = arguments.tree.absolute()
    return _conclude(arguments, tree, check_tree(tree, round_name=arguments.round, kept=arguments.kept))


def _conclude(arguments: argparse.Namespace, tree: Path, complaints: Sequence[Complaint]) -> bool:
    """Print complaints, results and the count; whether there is no complaint."""
    rows = summarize(subjects_of(tree))
    earlier = summarize(subjects_of(arguments.against.absolute())) if arguments.against else ()
    compared = compare(rows, earlier)
    for complaint in complaints:
        print(complaint)
    for line in table(compared) if compared else ():
        print(line)
    if arguments.csv:
        write_csv(arguments.csv, compared)
    notes = sum(complaint.note for complaint in complaints)
    wrong = len(complaints) - notes
    more = f", {notes} note{'s' * (notes != 1)}" if notes else ""
    print(f"{wrong or 'no'} complaint{'s' * (wrong != 1)}{more}")
    return not wrong


def system(arguments: argparse.Namespace) -> bool:
    """Print [system] for the submission's TOML; what is still empty must be filled in."""
    rule, machine = load_rules().system, machine_fields()
    stated = read_statement(arguments.submission).system if arguments.submission else {}
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
