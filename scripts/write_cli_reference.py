#!/usr/bin/env python3
"""Write docs/reference/cli.md again: the flags of the programs, from their parsers.

usage: python scripts/write_cli_reference.py
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.batch.batch_options import build_parser as batch_parser  # noqa: E402
from harness.compliance.compliance_options import build_run_parser, build_verify_parser  # noqa: E402
from harness.config.run_options import build_parser as run_parser  # noqa: E402
from harness.grading.evaluation_options import build_accuracy_parser  # noqa: E402
from harness.grading.evaluation_options import build_parser as grading_parser  # noqa: E402
from harness.peak.peak_options import build_parser as peak_parser  # noqa: E402
from harness.report.report_options import build_parser as report_parser  # noqa: E402
from harness.rows.eval_options import build_parser as eval_parser  # noqa: E402
from harness.submission.submission_options import build_parser as submission_parser  # noqa: E402

PAGE = ROOT / "docs/reference/cli.md"
MARK = "<!-- below: written by scripts/write_cli_reference.py -->"


def written(text: str) -> str:
    """``text`` up to the mark, and all tables after it."""
    return f"{text.partition(MARK)[0]}{MARK}\n\n{reference()}"


def reference() -> str:
    """One section for each program and each of its commands."""
    return "\n".join(line for parser in _parsers() for line in _section(parser))


def _parsers() -> Iterator[argparse.ArgumentParser]:
    grading = (grading_parser(), build_accuracy_parser())
    compliance = (build_run_parser(), build_verify_parser())
    others = (submission_parser(), report_parser())
    sending = (run_parser(), eval_parser(), peak_parser(), batch_parser())
    for parser in (*sending, *grading, *compliance, *others):
        yield parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.values()


def _section(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (f"## {parser.prog}", "")
    for text in (parser.description, parser.epilog):
        if text:
            yield from (text, "")
    for group in parser._action_groups:
        rows = [_row(parser, action) for action in group._group_actions if _is_documented(action)]
        if rows:
            yield from (f"| {group.title} | |", "|---|---|", *rows, "")


def _is_documented(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        commands = "; ".join(f"`{choice.dest}`: {choice.help}" for choice in action._choices_actions)
        return f"| `COMMAND` | {commands} |"
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    needed = " (required)" if action.required and action.option_strings else ""
    return f"| `{_signature(action)}` | {text}{needed} |"


def _signature(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    value = f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.metavar
    if value is None:
        value = action.dest.upper()
    return f"{names} {value}".strip()


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
