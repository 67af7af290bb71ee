"""The command line of prepare_submission.py. Imports stay light: ``--help`` answers at once."""

import argparse
from pathlib import Path

from harness.cli.main import guarded
from harness.cli.parser import Parser
from harness.cli.signals import interruptible
from harness.errors import EXIT_THRESHOLD, EXIT_VALID

_CONFIGS = Path(__file__).resolve().parents[2] / "configs"
_SCENARIOS = ("offline", "server", "interactive", "single-stream")


def build_parser() -> argparse.ArgumentParser:
    """All flags with their defaults, each written here once."""
    parser = Parser(
        prog="prepare_submission.py",
        description="Make the folder that MLCommons accepts from finished runs, and check such folders.",
        epilog="Exit codes: 0 no issues, 5 issues, 2 input that cannot be used,"
        " 129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_build(commands.add_parser("build", help="make the folder from the runs' results, then check it"))
    _add_check(commands.add_parser("check", help="check a folder, of this harness or another"))
    _add_system(commands.add_parser("system", help="print the system description of this machine, as TOML"))
    return parser


def _add_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", type=Path, default=Path("mlperf_results"), help="--output-dir of the runs (%(default)s)"
    )
    parser.add_argument(
        "--submission", type=Path, required=True, help="TOML with what only you know: names, system, weights"
    )
    parser.add_argument("--output", type=Path, default=Path("submission"), help="the folder (%(default)s)")
    parser.add_argument("--division", choices=("closed", "open"), help="(default: the TOML's)")
    parser.add_argument(
        "--scenario", action="append", choices=_SCENARIOS, default=[], help="repeatable (default: all found)"
    )
    parser.add_argument(
        "--benchmark",
        choices=sorted(path.stem for path in _CONFIGS.glob("*.toml")),
        default="gpt-oss-120b",
        help="benchmark definition in configs/ (%(default)s)",
    )
    parser.add_argument("--user-conf", type=Path, help="(default: the file that each run used)")
    parser.add_argument("--force", action="store_true", help="replace results that are there already")
    _add_summary(parser)
    parser.add_argument(
        "--servers-moved",
        action="store_true",
        help="runs of one scenario may name their servers by different addresses: they are the same servers",
    )


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tree", type=Path, help="the folder that holds closed/ or open/")
    parser.add_argument("--round", help="whose seeds the runs must have (default: the current round)")
    _add_summary(parser)
    parser.add_argument(
        "--kept", type=Path, help="full accuracy logs and run.json (default: TREE.kept, where it exists)"
    )


def _add_summary(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table of results as CSV too")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="TREE",
        help="compare the results with those of an earlier round's tree, one's own or the published one",
    )


def _add_system(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--submission", type=Path, help="a TOML to complete: only what it lacks is printed")


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run one command, and return the exit code."""
    arguments = build_parser().parse_args(argv)
    return guarded("prepare_submission.py", "info", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    # Everything heavy is imported only when there is something to do.
    from harness.submission import command

    run = {"build": command.build, "check": command.check, "system": command.system}[arguments.command]
    with interruptible():
        return EXIT_VALID if run(arguments) else EXIT_THRESHOLD
