#!/usr/bin/env python3
"""Write docs/reference/cli.md again: the flags of every verb of ./mlperf, from their parsers.

usage: python scripts/write_cli_reference.py
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.batch.batch_options import build_parser as batch_parser  # noqa: E402
from harness.campaign.campaign_options import build_parser as campaign_parser  # noqa: E402
from harness.cli.door import VERBS, Verb  # noqa: E402
from harness.compliance.compliance_options import build_run_parser, build_verify_parser  # noqa: E402
from harness.config.run_options import build_parser as run_parser  # noqa: E402
from harness.endpoints.endpoints_options import build_parser as endpoints_parser  # noqa: E402
from harness.grading.evaluation_options import build_accuracy_parser  # noqa: E402
from harness.grading.evaluation_options import build_parser as grading_parser  # noqa: E402
from harness.peak.peak_options import build_parser as peak_parser  # noqa: E402
from harness.report.report_options import build_parser as report_parser  # noqa: E402
from harness.rows.eval_options import build_parser as eval_parser  # noqa: E402
from harness.submission.submission_options import build_parser as submission_parser  # noqa: E402
from sut.doctor.doctor_options import build_parser as doctor_parser  # noqa: E402

PAGE = ROOT / "docs/reference/cli.md"
MARK = "<!-- below: written by scripts/write_cli_reference.py -->"
_PARSERS = {
    "harness.campaign": campaign_parser,
    "sut.doctor": doctor_parser,
    "run_mlperf.py": run_parser,
    "eval_mlperf_accuracy.py": grading_parser,
    "run_compliance.py": build_run_parser,
    "prepare_submission.py": submission_parser,
    "find_peak.py": peak_parser,
    "run_endpoints.py": endpoints_parser,
    "report.py": report_parser,
    "run_eval.py": eval_parser,
    "run_batch.py": batch_parser,
}
_FURTHER = {"./mlperf comply verify": build_verify_parser, "eval_accuracy.py": build_accuracy_parser}
_SHARED = "Flags that several verbs have"


def written(text: str) -> str:
    """``text`` up to the mark, and all tables after it."""
    return f"{text.partition(MARK)[0]}{MARK}\n\n{reference()}"


def reference() -> str:
    """One section for each verb and each of its commands, and one for the flags that several have."""
    sections = dict(parsers())
    users = defaultdict(list)
    for name, parser in sections.items():
        for row in _rows(parser):
            users[row].append(name.removeprefix("./mlperf "))
    shared = [f"{row} {', '.join(names)} |" for row, names in users.items() if len(names) > 1]
    lines = [line for name, parser in sections.items() for line in _section(name, parser, users)]
    return "\n".join([*lines, f"## {_SHARED}", "", "| flag | | verbs |", "|---|---|---|", *shared, ""])


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """By the words that start a program or one of its commands."""
    for name, verb in VERBS.items():
        yield from _of_verb(f"./mlperf {name}", verb)
    for title, parser in _FURTHER.items():
        yield title, parser()


def _of_verb(title: str, verb: Verb) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser of a verb, or those of its commands."""
    parser = _PARSERS[verb.program]()
    commands = next((a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)), {})
    if verb.command:
        yield title, commands[verb.command]
    elif commands:
        yield from ((f"{title} {command}", one) for command, one in commands.items())
    else:
        yield title, parser


def _section(title: str, parser: argparse.ArgumentParser, users: dict[str, list[str]]) -> Iterator[str]:
    yield from (f"## {title}", "")
    for text in (parser.description, parser.epilog):
        if text:
            yield from (text, "")
    rows = [row for row in _rows(parser) if len(users[row]) == 1]
    if rows:
        yield from ("| flag | |", "|---|---|", *rows, "")
    if any(len(users[row]) > 1 for row in _rows(parser)):
        yield from (f"And of the [flags that several verbs have](#{_SHARED.lower().replace(' ', '-')}).", "")


def _rows(parser: argparse.ArgumentParser) -> list[str]:
    """Two cells for each flag."""
    return [_row(parser, action) for action in parser._actions if _is_documented(action)]


def _is_documented(action: argparse.Action) -> bool:
    return not {"--help", "--version"} & set(action.option_strings) and action.help != argparse.SUPPRESS


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    needed = " (required)" if action.required and action.option_strings else ""
    cells = (f"`{_signature(action)}`", f"{text}{needed}")
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _signature(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    value = f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.metavar
    if value is None:
        value = action.dest.upper()
    return f"{names} {f'[{value}]' if action.nargs == '?' and names else value}".strip()


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
