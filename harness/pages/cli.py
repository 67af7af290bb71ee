"""The command line of report.py and its options. Imports stay light for a fast ``--help``."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from harness.cli.main import exit_code_of
from harness.cli.parser import Parser, path
from harness.cli.signals import interruptible
from harness.errors import EXIT_VALID


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


Options = HtmlOptions | CompareOptions


def build_parser() -> argparse.ArgumentParser:
    """All flags."""
    parser = Parser(
        prog="report.py",
        description="Show runs that lie on disk.",
        epilog="Exit codes: 0 done, 2 input that cannot be used,"
        " 129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_html(commands.add_parser("html", help="write report.html for runs of this or another harness"))
    _add_compare(commands.add_parser("compare", help="show two runs or more beside each other"))
    return parser


def _add_html(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        type=path,
        nargs="+",
        metavar="DIR",
        help="a folder with LoadGen's logs, or one above such folders",
    )
    parser.add_argument(
        "--output",
        type=path,
        metavar="FILE",
        help="write the page of one run here (default: DIR/report.html)",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        type=path,
        nargs="+",
        metavar="DIR",
        help="folders of runs, such as DIR/server/performance; the others are compared with the first",
    )
    parser.add_argument("--output", type=path, metavar="FILE", help="the page (%(default)s)")
    parser.set_defaults(output=CompareOptions.output)


def parse_options(argv: list[str] | None = None) -> Options:
    """Parse the flags of one command; argparse exits with code 2 on wrong usage."""
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    command, folders = given.pop("command"), tuple(given.pop("folders"))
    if command == "html":
        return HtmlOptions(folders=folders, **given)
    if len(folders) < 2:
        parser.error(f"compare needs two folders or more, got {folders[0]} alone")
    return CompareOptions(folders=folders, **given)


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run one command, and return the exit code."""
    options = parse_options(argv)
    return exit_code_of("report.py", "info", lambda: _run(options))


def _run(options: Options) -> int:
    # Heavy modules are imported only when a command runs.
    from harness.pages import command

    with interruptible():
        if isinstance(options, HtmlOptions):
            command.html(options)
        else:
            command.compare(options)
    return EXIT_VALID
