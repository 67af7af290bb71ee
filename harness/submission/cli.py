"""The command line of prepare_submission.py and its options. Imports stay light for a fast ``--help``."""

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from harness.cli.main import exit_code_of
from harness.cli.parser import SIGNAL_CODES, Parser, add_benchmark, add_round, path
from harness.cli.signals import interruptible
from harness.config.run_options import RunOptions
from harness.config.scenario import Scenario
from harness.errors import EXIT_THRESHOLD, EXIT_VALID

_RUN: dict[str, Any] = {field.name: field.default for field in fields(RunOptions)}


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The table of results: a CSV file to write, and an earlier round's tree to compare with."""

    csv: Path | None = None
    against: Path | None = None


@dataclass(frozen=True, kw_only=True)
class BuildOptions(TableOptions):
    """``build``. ``scenario`` is empty for all that are found; ``division`` None takes that of the TOML."""

    submission: Path
    results: Path = _RUN["output_dir"]
    output: Path = Path("submission")
    division: Literal["closed", "open"] | None = None
    scenario: tuple[Scenario, ...] = ()
    benchmark: str = _RUN["benchmark"]
    round: str = _RUN["round"]
    user_conf: Path | None = None
    force: bool = False
    servers_moved: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckOptions(TableOptions):
    """``check``. ``kept`` None takes the folder beside the tree."""

    tree: Path
    round: str = _RUN["round"]
    kept: Path | None = None


@dataclass(frozen=True, kw_only=True)
class SystemOptions:
    """``system``."""

    submission: Path | None = None


def build_parser() -> argparse.ArgumentParser:
    """All flags; their defaults are those of the options."""
    parser = Parser(
        prog="prepare_submission.py",
        description="Build the folder that MLCommons accepts from finished runs, and check such folders.",
        epilog=f"Exit codes: 0 no issues, 5 issues, 2 input that cannot be used, {SIGNAL_CODES}.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_build(commands.add_parser("build", help="build the folder from the results of runs, then check it"))
    _add_check(commands.add_parser("check", help="check a folder, built by this harness or another"))
    _add_system(commands.add_parser("system", help="print the system description of this machine as TOML"))
    return parser


def _add_build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=path, help="--output-dir of the runs (%(default)s)")
    parser.add_argument(
        "--submission",
        type=path,
        required=True,
        help="TOML with the facts that only the submitter knows: names, system, weights",
    )
    parser.add_argument("--output", type=path, help="the folder to build (%(default)s)")
    parser.add_argument(
        "--division",
        choices=("closed", "open"),
        help="division of the submission (default: that of the TOML)",
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=tuple(Scenario),
        help="scenario to submit; repeat it for several (default: all that are found)",
    )
    add_benchmark(parser)
    parser.add_argument(
        "--user-conf", type=path, help="user.conf to submit (default: the file that each run used)"
    )
    parser.add_argument("--force", action="store_true", help="replace results that exist already")
    _add_table(parser)
    parser.add_argument(
        "--servers-moved",
        action="store_true",
        help="accept runs of one scenario that name the same servers by different addresses",
    )
    parser.set_defaults(**_defaults(BuildOptions) | {"scenario": None})


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tree", type=path, help="the folder that holds closed/ or open/")
    add_round(parser)
    _add_table(parser)
    parser.add_argument(
        "--kept", type=path, help="full accuracy logs and run.json (default: TREE.kept, if it exists)"
    )
    parser.set_defaults(**_defaults(CheckOptions))


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--csv", type=path, metavar="FILE", help="write the table of results to a CSV file")
    parser.add_argument(
        "--against",
        type=path,
        metavar="TREE",
        help="compare the results with those of an earlier round's tree, your own or a published one",
    )


def _add_system(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--submission", type=path, help="TOML to complete: only missing fields are printed")
    parser.set_defaults(**_defaults(SystemOptions))


def _defaults(options: type) -> dict[str, object]:
    return {
        field.name: getattr(options, field.name) for field in fields(options) if hasattr(options, field.name)
    }


def parse_options(argv: list[str] | None = None) -> BuildOptions | CheckOptions | SystemOptions:
    """Parse the flags of one command; argparse exits with code 2 on wrong usage."""
    given = vars(build_parser().parse_args(argv))
    match given.pop("command"):
        case "build":
            chosen = map(Scenario.parse, given["scenario"] or ())
            return BuildOptions(**given | {"scenario": tuple(dict.fromkeys(chosen))})
        case "check":
            return CheckOptions(**given)
    return SystemOptions(**given)


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run one command, and return the exit code."""
    options = parse_options(argv)
    return exit_code_of("prepare_submission.py", "info", lambda: _run(options))


def _run(options: BuildOptions | CheckOptions | SystemOptions) -> int:
    # Heavy modules are imported only when a command runs.
    from harness.submission import submission_command as command

    with interruptible():
        match options:
            case BuildOptions():
                passed = command.build(options)
            case CheckOptions():
                passed = command.check(options)
            case SystemOptions():
                passed = command.system(options)
    return EXIT_VALID if passed else EXIT_THRESHOLD
