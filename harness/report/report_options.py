"""The options of report.py's commands and its command line. Imports stay light for a fast ``--help``."""

import argparse
import sys
from pathlib import Path

from harness.cli.flags import Command, add_commands, flag, options, path, read
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.choices import OUTPUT_DIR


@options
class HtmlOptions:
    """``html``. ``output`` None writes report.html into each folder."""

    folders: tuple[Path, ...] = flag(
        "a folder with LoadGen's logs, or one above such folders",
        "folders",
        type=path,
        nargs="+",
        metavar="DIR",
    )
    output: Path | None = flag(
        "write the page of one run here (default: DIR/report.html)", default=None, metavar="FILE"
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
    output: Path = flag("the page (%(default)s)", default=Path("compare.html"), metavar="FILE")


@options
class WatchOptions:
    """``watch``: the folder of a run, or one above it."""

    folder: Path = flag(
        "the run's folder or one above, whose newest run is shown (%(default)s)",
        "folder",
        default=OUTPUT_DIR,
        nargs="?",
        metavar="DIR",
    )


@options
class ListOptions:
    """``list``: folders above runs."""

    folders: tuple[Path, ...] = flag(
        "folders above runs, such as their --results (%(default)s)",
        "folders",
        default=(OUTPUT_DIR,),
        untyped=[OUTPUT_DIR],
        type=path,
        nargs="*",
        metavar="DIR",
    )
    output: Path | None = flag(
        "also write a page of all runs, such as index.html", "--output", "-o", default=None, metavar="FILE"
    )
    csv: Path | None = flag("also write the table to a CSV file", default=None, metavar="FILE")
    json: bool = flag("print JSON with numbers instead of the table", default=False)


ReportOptions = HtmlOptions | CompareOptions | WatchOptions | ListOptions

_COMMANDS = {
    "html": Command(
        HtmlOptions, ("folders", "output"), "write report.html for runs of this or another harness"
    ),
    "compare": Command(CompareOptions, ("folders", "output"), "compare two or more runs"),
    "watch": Command(WatchOptions, ("folder",), "show the progress of a run, from a second shell"),
    "list": Command(
        ListOptions,
        ("folders", "output", "csv", "json"),
        "print a table of all runs below some folders, and write their overview",
    ),
}

_EARLIER = {"results": "list"}  # earlier names of commands


def build_parser() -> argparse.ArgumentParser:
    """All flags of all commands."""
    parser = Parser(
        prog="report.py",
        description="Show the results of runs.",
        epilog=f"Exit codes: 0 done, 2 input that cannot be used, {SIGNAL_CODES}.",
    )
    add_commands(parser, _COMMANDS)
    return parser


def parse_options(argv: list[str] | None = None) -> ReportOptions:
    """Parse the flags of one command; argparse exits with code 2 on wrong usage."""
    parser = build_parser()
    words = sys.argv[1:] if argv is None else argv
    words = [_EARLIER.get(word, word) for word in words[:1]] + words[1:]
    given = vars(parser.parse_args(words))
    command = given.pop("command")
    if command == "compare" and len(given["folders"]) < 2:
        parser.error(f"compare needs at least two folders, got {given['folders'][0]} alone")
    cls: type[ReportOptions] = _COMMANDS[command].options
    return read(cls, given)
