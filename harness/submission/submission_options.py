"""The options of prepare_submission.py's commands and its command line. Imports stay light for ``--help``."""

import argparse
from pathlib import Path
from typing import Literal

from harness.cli.door import called
from harness.cli.flags import Command, add_commands, flag, options, path, read
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.choices import OUTPUT_DIR, available_benchmarks, round_flag
from harness.config.scenario import Scenario

BUILT = Path("submission")  # the folder that is built and checked where none is named


@options
class TableOptions:
    """The table of results: a CSV file to write, and an earlier round's tree to compare with."""

    csv: Path | None = flag("write the table of results to a CSV file", default=None, metavar="FILE")
    against: Path | None = flag(
        "compare the results with those of an earlier round's tree, your own or a published one",
        default=None,
        metavar="TREE",
    )


@options
class BuildOptions(TableOptions):
    """``build``. ``scenario`` and ``benchmark`` are empty for all; ``division`` None: that of the TOML."""

    submission: Path = flag(
        "TOML with the facts that only the submitter knows: names, system, weights", metavar="FILE"
    )
    results: Path = flag(
        "folder of the runs of all benchmarks, or of one (default: %(default)s)",
        "--results",
        "--output-dir",
        default=OUTPUT_DIR,
        metavar="DIR",
    )
    output: Path | None = flag(
        "the folder to build (default: submission, or rehearsal)",
        "--output",
        "-o",
        default=None,
        metavar="DIR",
    )
    rehearsal: bool = flag(
        "take runs that are not official, such as those of the embedded engine, and build a folder that "
        "nobody can take for a submission",
        default=False,
    )
    division: Literal["closed", "open"] | None = flag(
        "division of the submission (default: that of the TOML)", default=None
    )
    scenario: tuple[Scenario, ...] = flag(
        "scenario to submit; repeat it for several (default: all that are found)",
        default=(),
        choices=tuple(Scenario),
    )
    benchmark: tuple[str, ...] = flag(
        "benchmark to submit; repeat it for several (default: all that are found)",
        default=(),
        choices=available_benchmarks,
    )
    round: str = round_flag()
    user_conf: Path | None = flag(
        "user.conf to submit (default: the file that each run used)", default=None, metavar="FILE"
    )
    force: bool = flag("also replace files that were not built here, or were changed since", default=False)
    servers_moved: bool = flag(
        "accept runs of one scenario that name the same servers by different addresses", default=False
    )

    def __post_init__(self) -> None:
        chosen = tuple(dict.fromkeys(map(Scenario.parse, self.scenario)))
        object.__setattr__(self, "scenario", chosen)

    @property
    def tree(self) -> Path:
        """The folder to build."""
        return self.output or (Path("rehearsal") if self.rehearsal else BUILT)


@options
class CheckOptions(TableOptions):
    """``check``. ``kept`` None takes the folder beside the tree."""

    tree: Path = flag(
        "the folder that holds closed/ or open/ (default: %(default)s)",
        "tree",
        default=BUILT,
        nargs="?",
        metavar="TREE",
    )
    round: str = round_flag()
    kept: Path | None = flag(
        "full accuracy logs and run.json (default: TREE.kept, if it exists)", default=None, metavar="DIR"
    )
    json: bool = flag("print results and issues as JSON instead", default=False)


@options
class SystemOptions:
    """``system``."""

    submission: Path | None = flag(
        "TOML to complete: only missing fields are printed", default=None, metavar="FILE"
    )
    endpoints: tuple[Path, ...] | None = flag(
        "print the TOML of ./mlperf endpoints build instead, with what these run folders show",
        default=None,
        type=path,
        nargs="*",
        metavar="DIR",
    )


SubmissionOptions = BuildOptions | CheckOptions | SystemOptions

_TABLE = ("csv", "against")
_COMMANDS = {
    "build": Command(
        BuildOptions,
        (
            "results",
            "submission",
            "output",
            "rehearsal",
            "division",
            "scenario",
            "benchmark",
            "round",
            "user_conf",
            "force",
            *_TABLE,
            "servers_moved",
        ),
        "build the folder from the results of runs, then check it",
    ),
    "check": Command(
        CheckOptions,
        ("tree", "round", *_TABLE, "kept", "json"),
        "check a folder, built by this harness or another",
    ),
    "system": Command(
        SystemOptions, ("submission", "endpoints"), "print the system description of this machine as TOML"
    ),
}


def build_parser() -> argparse.ArgumentParser:
    """All flags of all commands."""
    parser = Parser(
        prog=called("prepare_submission.py"),
        description="Build the folder to submit from finished runs, and check it or another.",
        epilog=f"Exit codes: 0 no issues, 5 issues, 2 input that cannot be used, {SIGNAL_CODES}.",
    )
    add_commands(parser, _COMMANDS)
    return parser


def parse_options(argv: list[str]) -> SubmissionOptions:
    """Parse the flags of one command; argparse exits with code 2 on wrong usage."""
    given = vars(build_parser().parse_args(argv))
    cls: type[SubmissionOptions] = _COMMANDS[given.pop("command")].options
    return read(cls, given)
