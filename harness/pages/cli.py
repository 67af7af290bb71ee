"""The command line of report.py and its options. Imports stay light for a fast ``--help``."""

import argparse
from collections.abc import Mapping
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


def parse_options(argv: list[str] | None = None) -> HtmlOptions:
    """Parse the flags of one command; argparse exits with code 2 on wrong usage."""
    given: Mapping[str, object] = vars(build_parser().parse_args(argv))
    folders, output = given["folders"], given["output"]
    assert isinstance(folders, list)
    assert output is None or isinstance(output, Path)
    return HtmlOptions(folders=tuple(folders), output=output)


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run one command, and return the exit code."""
    options = parse_options(argv)
    return exit_code_of("report.py", "info", lambda: _run(options))


def _run(options: HtmlOptions) -> int:
    # Heavy modules are imported only when a command runs.
    from harness.pages.command import html

    with interruptible():
        html(options)
    return EXIT_VALID
