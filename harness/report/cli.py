"""The command line of report.py and its options. Imports stay light for a fast ``--help``."""

import argparse
from dataclasses import dataclass, fields
from pathlib import Path

from harness.cli.main import exit_code_of
from harness.cli.parser import SIGNAL_CODES, Parser, path
from harness.cli.signals import interruptible
from harness.config.run_options import RunOptions
from harness.errors import EXIT_VALID

_OUTPUT_DIR = next(field.default for field in fields(RunOptions) if field.name == "output_dir")


@dataclass(frozen=True, kw_only=True)
class HtmlOptions:
    """``html``. ``output`` None writes report.html into each folder."""

    folders: tuple[Path, ...]
    output: Path | None = None


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """``compare``: two folders or more, the base first."""

    folders: tuple[Path, ...]
    output: Path = Path("compare.html")


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """``watch``: the folder of a run, or one above it."""

    folder: Path


@dataclass(frozen=True, kw_only=True)
class ResultsOptions:
    """``results``: folders above runs."""

    folders: tuple[Path, ...]
    csv: Path | None = None
    json: bool = False


Options = HtmlOptions | CompareOptions | WatchOptions | ResultsOptions


def build_parser() -> argparse.ArgumentParser:
    """All flags."""
    parser = Parser(
        prog="report.py",
        description="Show the results of runs.",
        epilog=f"Exit codes: 0 done, 2 input that cannot be used, {SIGNAL_CODES}.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_html(commands.add_parser("html", help="write report.html for runs of this or another harness"))
    _add_compare(commands.add_parser("compare", help="compare two or more runs"))
    _add_watch(commands.add_parser("watch", help="show the progress of a run, from a second shell"))
    _add_results(commands.add_parser("results", help="print a table of all runs below some folders"))
    return parser


def _add_folders(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("folders", type=path, nargs="+", metavar="DIR", help=what)


def _add_html(parser: argparse.ArgumentParser) -> None:
    _add_folders(parser, "a folder with LoadGen's logs, or one above such folders")
    parser.add_argument(
        "--output",
        type=path,
        metavar="FILE",
        help="write the page of one run here (default: DIR/report.html)",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    _add_folders(
        parser, "folders of runs, such as DIR/server/performance; the others are compared with the first"
    )
    parser.add_argument("--output", type=path, metavar="FILE", help="the page (%(default)s)")
    parser.set_defaults(output=CompareOptions.output)


def _add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=path,
        nargs="?",
        metavar="DIR",
        help="the run's folder or one above, whose newest run is shown (%(default)s)",
    )
    parser.set_defaults(folder=_OUTPUT_DIR)


def _add_results(parser: argparse.ArgumentParser) -> None:
    _add_folders(parser, "folders above runs, such as their --output-dir")
    parser.add_argument("--csv", type=path, metavar="FILE", help="also write the table to a CSV file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")


def parse_options(argv: list[str] | None = None) -> Options:
    """Parse the flags of one command; argparse exits with code 2 on wrong usage."""
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    match given.pop("command"):
        case "html":
            return HtmlOptions(folders=tuple(given.pop("folders")), **given)
        case "watch":
            return WatchOptions(**given)
        case "results":
            return ResultsOptions(folders=tuple(given.pop("folders")), **given)
    folders = tuple(given.pop("folders"))
    if len(folders) < 2:
        parser.error(f"compare needs at least two folders, got {folders[0]} alone")
    return CompareOptions(folders=folders, **given)


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run one command, and return the exit code."""
    options = parse_options(argv)
    return exit_code_of("report.py", "info", lambda: _run(options))


def _run(options: Options) -> int:
    # Heavy modules are imported only when a command runs.
    from harness.report import command

    with interruptible():
        match options:
            case HtmlOptions():
                command.html(options)
            case CompareOptions():
                command.compare(options)
            case WatchOptions():
                command.watch(options)
            case ResultsOptions():
                command.results(options)
    return EXIT_VALID
