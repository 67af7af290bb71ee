"""The options of report.py's commands and its command line. Imports stay light for a fast ``--help``."""

import argparse
from pathlib import Path
from typing import Any

from harness.cli.door import called
from harness.cli.flags import Command, add_commands, flag, options, path, read
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.choices import OUTPUT_DIR

STDOUT = Path("-")  # for a file that may be printed instead


def compare_page_flag() -> Any:
    """The field for the page of a comparison, of runs or of curves."""
    return flag(
        "the page (default: %(default)s)", "--output", "-o", default=Path("compare.html"), metavar="FILE"
    )


@options
class HtmlOptions:
    """``show``. ``output`` None writes report.html into each folder."""

    folders: tuple[Path, ...] = flag(
        "a folder with LoadGen's logs, or one above such folders",
        "folders",
        type=path,
        nargs="+",
        metavar="DIR",
    )
    output: Path | None = flag(
        "write the page of one run here (default: DIR/report.html)",
        "--output",
        "-o",
        default=None,
        metavar="FILE",
    )


@options
class CompareOptions:
    """``compare``: two folders or more, the base first."""

    folders: tuple[Path, ...] = flag(
        "folders of runs, such as DIR/server/performance; the others are compared with the first",
        "folders",
        type=path,
        nargs="+",
        metavar="DIR",
    )
    output: Path = compare_page_flag()


@options
class WatchOptions:
    """``watch``: the folder of a run, or one above it."""

    folder: Path = flag(
        "the run's folder or one above, whose newest run is shown (default: %(default)s)",
        "folder",
        default=OUTPUT_DIR,
        nargs="?",
        metavar="DIR",
    )


@options
class ListOptions:
    """``list``: folders above runs."""

    folders: tuple[Path, ...] = flag(
        f"folders above runs, such as their --results (default: {OUTPUT_DIR})",
        "folders",
        type=path,
        nargs="*",
        metavar="DIR",
    )
    output: Path | None = flag(
        "also write a page of all runs, such as index.html", "--output", "-o", default=None, metavar="FILE"
    )
    csv: Path | None = flag("also write the table to a CSV file", default=None, metavar="FILE")
    json: Path | None = flag(
        "print JSON with numbers instead of the table, or write it to FILE",
        default=None,
        nargs="?",
        const=STDOUT,
        type=path,
        metavar="FILE",
    )


ReportOptions = HtmlOptions | CompareOptions | WatchOptions | ListOptions

_COMMANDS = {
    "show": Command(
        HtmlOptions, ("folders", "output"), "write report.html for runs of this or another harness"
    ),
    "compare": Command(CompareOptions, ("folders", "output"), "compare two or more runs"),
    "watch": Command(WatchOptions, ("folder",), "show the progress of a run, from a second shell"),
    "list": Command(
        ListOptions, ("folders", "output", "csv", "json"), "print a table of all runs below some folders"
    ),
}


def build_parser() -> argparse.ArgumentParser:
    """All flags of all commands."""
    parser = Parser(
        prog=called("report.py"),
        description="Show the results of runs.",
        epilog=f"Exit codes: 0 done, 2 input that cannot be used, {SIGNAL_CODES}.",
    )
    add_commands(parser, _COMMANDS)
    return parser


def parse_options(argv: list[str]) -> ReportOptions:
    """Parse the flags of one command; argparse exits with code 2 on wrong usage."""
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    command = given.pop("command")
    if command == "compare" and len(given["folders"]) < 2:
        parser.error(f"compare needs at least two folders, got {given['folders'][0]} alone")
    if command == "list":
        given |= _listed(given)
    cls: type[ReportOptions] = _COMMANDS[command].options
    return read(cls, given)


def _listed(given: dict[str, Any]) -> dict[str, Any]:
    """The folders of ``list``; one that stands behind --json is not taken for its file."""
    folders, file = given["folders"], given["json"]
    if file is not None and file.is_dir():
        folders, file = [file, *folders], STDOUT
    return {"folders": folders or [OUTPUT_DIR], "json": file}
