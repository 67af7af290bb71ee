#!/usr/bin/env python3
"""Compare ``prepare_submission.py check`` with MLCommons's submission checker on published results.

    python scripts/compare_checkers.py INFERENCE RESULTS [--version v6.0] [--python PYTHON] [--absent FILE]

INFERENCE is a checkout of mlcommons/inference, RESULTS one of a round's results. The official checker needs
numpy, pandas and pyyaml; --python names an interpreter that has them. --absent names a file with the paths
that RESULTS lacks, one per line: a benchmark whose detail logs are absent is left out for both checkers.

The table has one row for each tree (division and submitter). Each issue gets a class:
same           both report that result, document or file
ours right     only ours reports it, and FINDINGS has the reason
false alarm    only ours reports it
missed         only the official checker reports it, for a benchmark that is defined here
not checked    only the official checker reports it, for another benchmark
Exit code 0: no false alarm and nothing missed. 1: some.
"""

import argparse
import fnmatch
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness.submission.checks.check import check_tree, official_name
from harness.submission.checks.issue import Issue
from harness.submission.tree.layout import DIVISIONS, ScenarioDir, scenario_dirs
from harness.submission.tree.round_rules import definition_of, load_rules

CLASSES = ("same", "ours right", "false alarm", "missed", "not checked")
_GONE = "submission_structure.md requires the test's logs, truncate_accuracy_log.py its accuracy.txt"
_EMPTY = "no answer was logged: the official script passes an empty log"
# Issues that only ours reports, and rightly: code, where, reason. Each one was checked by hand.
FINDINGS = (
    ("test06-log", "closed/*/results/*/llama3_1-8b/*/TEST06/*", _EMPTY),
    ("test06-log", "closed/Google/results/GB200-*/deepseek-r1/Server/TEST06/*", _EMPTY),
    ("missing-file", "closed/Intel/results/1-node-4x-BMG-*B60*/gpt-oss-120b/*/TEST0[79]/*", _GONE),
    ("missing-file", "closed/Cisco/results/C880A_M8_B300_*/gpt-oss-120b/*/TEST07/accuracy/*", _GONE),
    ("missing-file", "closed/HPE/results/*_MI355X_*/gpt-oss-120b/Offline/TEST0[79]/accuracy/*", _GONE),
    (
        "*",
        "closed/NVIDIA/results/GB300-NVL72_*/gpt-oss-120b/Offline/TEST0[79]/*",
        "TEST07 was run with the dataset of TEST09 (6396 samples), and TEST09 with that of TEST07 (990)",
    ),
    (
        "sample-count",
        "closed/Nebius/results/GB300-NVL72_*/gpt-oss-120b/*/TEST07/*",
        "TEST07 drew 990 samples of the accuracy dataset of 4395, which holds AIME and code besides GPQA",
    ),
    (
        "settings",
        "closed/NVIDIA/results/GB200-NVL72_*/gpt-oss-120b/Interactive/performance/*",
        "mlperf.conf locks sample_concatenate_permutation = 1 for gpt-oss-120b",
    ),
    (
        "logs-disagree",
        "open/NVIDIA/results/Jetson-Thor/llama3.1-8b-edge/*/performance/*",
        "the summary has min_duration 0 and min_query_count 5000, the detail log 600000 ms and 1",
    ),
    (
        "seeds",
        "closed/RedHat/results/8xB200-LLM-D-Openshift/gpt-oss-120b/Offline/TEST07/*",
        "all three seeds are 0, the round has others",
    ),
    ("secret", "closed/*/Makefile.power:*", "it holds the password of a power server"),
)
_LOGS = ("performance/run_1/mlperf_log_detail.txt", "accuracy/mlperf_log_detail.txt")


@dataclass(frozen=True)
class OfficialLine:
    """One line of the official checker. ``key`` is the result, document or file that it concerns."""

    key: str
    text: str


@dataclass(frozen=True)
class ClassifiedLine:
    """A line with its class and, if only ours has it, the reason."""

    kind: str
    text: str
    reason: str = ""


def main() -> int:
    """Compare all trees and print the table."""
    arguments = _arguments()
    absent = frozenset(arguments.absent.read_text().splitlines()) if arguments.absent else frozenset()
    found = scenario_dirs(arguments.results)
    left_out = {folder.path.parent for folder in found if _lacks_logs(folder, absent)}
    issues = [
        issue
        for issue in check_tree(arguments.results, round_name=arguments.version)
        if issue.where not in absent
        and not any((arguments.results / issue.where).is_relative_to(path) for path in left_out)
    ]
    total: Counter[str] = Counter()
    print(
        f"{'tree':34}{'results':>8}{'refused':>8}{'issues':>8}{'warnings':>10}",
        *(f"{name:>12}" for name in CLASSES),
    )
    for tree in sorted({folder.org_path for folder in found}):
        name = tree.relative_to(arguments.results).as_posix()
        mine = [issue for issue in issues if issue.where.startswith(f"{name}/")]
        inside = [
            folder for folder in found if folder.org_path == tree and folder.path.parent not in left_out
        ]
        refused, theirs = _official(arguments, tree, inside)
        classified = list(_classify(mine, theirs, inside, arguments.version))
        counts = Counter(one.kind for one in classified)
        total += counts
        warnings = sum(issue.is_warning for issue in mine)
        cells = f"{name:34}{len(inside):8}{refused:8}{len(mine) - warnings:8}{warnings:10}"
        print(cells, *(f"{counts[kind]:12}" for kind in CLASSES))
        for one in classified if arguments.lines else ():
            print(f"    {one.kind}: {one.text}{f' ({one.reason})' if one.reason else ''}")
    for path in sorted(left_out):
        print(f"left out, its logs are absent: {path.relative_to(arguments.results)}")
    print("all:", ", ".join(f"{total[kind]} {kind}" for kind in CLASSES))
    return 1 if total["false alarm"] or total["missed"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("inference", type=Path, help="a checkout of mlcommons/inference")
    parser.add_argument("results", type=Path, help="a checkout of a round's results")
    parser.add_argument("--version", default="v6.0", help="the round (%(default)s)")
    parser.add_argument("--python", default=sys.executable, help="interpreter for the official checker")
    parser.add_argument(
        "--absent", type=Path, help="file with the paths that the checkout lacks, one per line"
    )
    parser.add_argument("--lines", action="store_true", help="print every line with its class")
    arguments = parser.parse_args()
    arguments.results, arguments.inference = arguments.results.absolute(), arguments.inference.absolute()
    return arguments


def _lacks_logs(folder: ScenarioDir, absent: frozenset[str]) -> bool:
    return any(folder.relative(folder.path / log) in absent for log in _LOGS)


def _official(
    arguments: argparse.Namespace, tree: Path, inside: Sequence[ScenarioDir]
) -> tuple[int, list[OfficialLine]]:
    """Number of results that the official checker refuses; its lines and those of repository_checks.sh."""
    tools = arguments.inference / "tools/submission"
    with tempfile.TemporaryDirectory() as folder:
        view = Path(folder, "view")
        _link(arguments.results, tree, inside, view)
        words = ["-m", "submission_checker.main", "--version", arguments.version, "--input", view]
        done = subprocess.run(
            [arguments.python, *map(str, words), "--csv", str(Path(folder, "summary.csv"))],
            capture_output=True,
            text=True,
            cwd=tools,
        )
        lines = list(_checker_lines(done.stderr, view))
        if "SUMMARY: submission" not in done.stderr:
            lines.append(
                OfficialLine(tree.relative_to(arguments.results).as_posix(), done.stderr.splitlines()[-1])
            )
    listed = subprocess.run(
        ["bash", str(tools / "repository_checks.sh"), str(tree)], capture_output=True, text=True, check=True
    ).stdout
    paths = {line.rstrip(";") for line in listed.splitlines() if line.startswith(str(tree))}
    files = [Path(path).relative_to(arguments.results).as_posix() for path in sorted(paths)]
    lines += [OfficialLine(name, "repository_checks.sh names it") for name in files]
    return sum("NoResults" in line.text for line in lines), lines


def _link(results: Path, tree: Path, inside: Sequence[ScenarioDir], view: Path) -> None:
    """Link the tree for the official checker, without the benchmarks that are left out."""
    target = view / tree.relative_to(results)
    target.mkdir(parents=True)
    for entry in tree.iterdir():
        if entry.name != "results":
            (target / entry.name).symlink_to(entry)
    for path in sorted({folder.path.parent for folder in inside}):
        link = target / path.relative_to(tree)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)


def _checker_lines(stderr: str, view: Path) -> Iterator[OfficialLine]:
    """One line for each refused result, with the errors logged before."""
    errors: list[str] = []
    reasons: dict[str, list[str]] = {}
    for line in stderr.splitlines():
        severity = re.match(r"\[[^\]]* (ERROR|WARNING|INFO)\] (.*)", line)
        text = severity[2].replace(f"{view}{os.sep}", "") if severity else ""
        if ended := re.match(r"Some .*[Cc]hecks failed for: (.*)", text):
            reasons.setdefault(_result(ended[1]), []).extend(errors)
            errors = []
        elif text.startswith("Starting "):
            errors = []
        elif refused := re.match(r"NoResults (.*)", text):
            key = _result(refused[1])
            yield OfficialLine(key, f"NoResults: {'; '.join(reasons.get(key, ()))[:400]}")
        elif severity and ("ERROR" in severity[1] or "accuracy not met" in text) and "SUMMARY" not in text:
            errors.append(text)


def _result(path: str) -> str:
    """``<division>/<org>/results/<system>/<benchmark>/<Scenario>`` of a file in it."""
    return "/".join(path.split("/")[:6])


def _classify(
    mine: Sequence[Issue], theirs: Sequence[OfficialLine], inside: Sequence[ScenarioDir], version: str
) -> Iterator[ClassifiedLine]:
    for issue in mine:
        if not issue.is_warning:
            yield _classify_ours(issue, theirs)
    rules = load_rules(version)
    for line in theirs:
        if any(_same(issue, line) for issue in mine if not issue.is_warning):
            continue
        names = [
            official_name(folder, rules) for folder in inside if line.key == folder.relative(folder.path)
        ]
        defined = [name for name in names if definition_of(name, version) is not None]
        yield ClassifiedLine("missed" if defined or not names else "not checked", f"{line.key}: {line.text}")


def _classify_ours(issue: Issue, theirs: Sequence[OfficialLine]) -> ClassifiedLine:
    text = str(issue).split("; rule:")[0]
    if any(_same(issue, line) for line in theirs):
        return ClassifiedLine("same", text)
    for code, where, reason in FINDINGS:
        if fnmatch.fnmatchcase(issue.code, code) and fnmatch.fnmatchcase(issue.where, where):
            return ClassifiedLine("ours right", text, reason)
    return ClassifiedLine("false alarm", text)


def _same(issue: Issue, line: OfficialLine) -> bool:
    """The same file; or a refused result, and an issue of it or of a file that it depends on."""
    where, key = issue.where, line.key
    if where == key or where.startswith(f"{key}/"):
        return True
    parts = key.split("/")
    if len(parts) < 4 or parts[0] not in DIVISIONS or issue.code == "files":
        return False
    org, system = "/".join(parts[:2]), parts[3]
    return key.startswith(f"{where}/") or where in (f"{org}/systems/{system}.json", f"{org}/src")


if __name__ == "__main__":
    sys.exit(main())
