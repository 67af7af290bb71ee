"""The options of run_endpoints.py's commands and its command line. Imports stay light for ``--help``."""

from pathlib import Path
from typing import ClassVar, Literal

from harness.cli.door import called
from harness.cli.flags import Command, add_commands, flag, options, path, read, shared_options
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.other_flags import ELSEWHERE, EVERY_REPLICA, SYNONYMS
from harness.config.run_options import (
    FAILURES,
    SERVER,
    ClientOptions,
    parsed,
    restart_flag,
    results_flag,
)
from harness.grading.evaluation_options import allow_unsandboxed_flag, lcb_data_flag
from harness.peak.peak_options import concurrencies
from harness.report.report_options import compare_page_flag

FOLDER = "endpoints"  # of a rehearsal, below the folder of runs
_CODES = (
    "Exit codes: 0 done, 2 usage, config or dataset, 3 server, 4 failed requests or ended early, "
    f"5 a check or a score not passed, {SIGNAL_CODES}."
)
_GROUPS = {
    "curve": (
        "benchmark",
        "input_file",
        "c_max",
        "c_min",
        "concurrency",
        "offline",
        "with_replacement",
        "short",
        "restart",
    ),
    "accuracy": ("accuracy_file", "reference_data", "lcb_data", "allow_unsandboxed"),
    "submission": ("system", "target_cohort", "seed_sets", "seed_set"),
    "generation": ("generation_config", "max_new_tokens"),
    "server": tuple(name for name in SERVER if name not in ("min_replicas", "max_concurrency")),
    "deadlines and failures": FAILURES,
    "run": ("output_dir", "dry_run", "log_level"),
}


@shared_options
class TreeOptions:
    """What a tree holds besides what the run folders show."""

    system: Path | None = flag(
        "TOML with the facts that only the submitter knows: organisation, system, power "
        "(default: placeholders, which keep the tree from being a submission)",
        default=None,
        metavar="FILE",
    )
    target_cohort: str | None = flag(
        "cohort of the submission, such as 2026-12-C0 (default: the TOML's)",
        default=None,
        metavar="COHORT",
    )
    seed_sets: Path | None = flag(
        "YAML file of published sets of seeds in the official form (default: the built-in sets)",
        default=None,
        metavar="FILE",
    )


@options
class RehearsalOptions(ClientOptions, TreeOptions):
    """``run``. ``c_max`` None: the largest of ``concurrency``, else found by a short ladder."""

    has_stream_flag: ClassVar[bool] = False
    accuracy_file: Path | None = flag(
        "accuracy dataset (default: no accuracy runs, which keeps the tree from being a submission)",
        default=None,
        metavar="FILE",
    )
    reference_data: Path | None = flag(
        "file with the true answers (default: --accuracy-file, which has them)", default=None, metavar="FILE"
    )
    lcb_data: Path | None = lcb_data_flag()
    allow_unsandboxed: bool = allow_unsandboxed_flag()
    c_max: int | None = flag(
        "most requests in flight of the curve (default: the largest of --concurrency, else found by a short "
        "ladder)",
        default=None,
        metavar="N",
    )
    c_min: int | None = flag(
        "requests in flight at the lower end, 1 to 32 (default: the least of --concurrency, else one for "
        "each data-parallel rank, at least a 64th of C_max)",
        default=None,
        metavar="N",
    )
    concurrency: tuple[int, ...] = flag(
        "requests in flight of every point, over all replicas (default: C_min, and two points in each third "
        "from there to C_max)",
        default=(),
        type=concurrencies,
        metavar="N,N,...",
    )
    offline: Literal["dedicated", "elected"] = flag(
        "Offline point: a run of its own with all samples at once, or that at C_max (default: %(default)s)",
        default="dedicated",
    )
    with_replacement: bool = flag(
        "draw every sample anew, as the text of the rules says (default: a permutation in each pass, as the "
        "official client does)",
        default=False,
    )
    short: bool = flag(
        "rehearse the forms only: one pass over the first samples, no least time, C_max 40", default=False
    )
    seed_set: str | None = flag(
        "set of seeds, of the built-in ones or of --seed-sets (default: the first)",
        default=None,
        metavar="ID",
    )
    restart: bool = restart_flag("rehearsal")
    output_dir: Path | None = results_flag(f"the rehearsal is written to DIR/{FOLDER}/")

    @property
    def folder(self) -> Path:
        """The rehearsal's folder."""
        return self.results / FOLDER


@options
class BuildOptions(TreeOptions):
    """``build``. ``output`` None: the folder ``tree`` beside the run folders."""

    folders: tuple[Path, ...] = flag(
        "run folders, or folders of such: runs/ of a rehearsal, or those of the official client",
        "folders",
        type=path,
        nargs="+",
        metavar="DIR",
    )
    output: Path | None = flag(
        "the tree to write (default: tree/ beside the run folders)",
        "--output",
        "-o",
        default=None,
        metavar="DIR",
    )


@options
class CheckOptions:
    """``check``."""

    tree: Path = flag(
        "a rehearsal's folder, run folders, or a tree to submit", "tree", type=path, metavar="DIR"
    )
    json: bool = flag("print the findings as JSON instead", default=False)


@options
class CompareOptions:
    """``compare``: the base first."""

    left: Path = flag(
        "a rehearsal's folder, run folders, or a published tree: the base", "left", type=path, metavar="BASE"
    )
    right: Path = flag("what is compared with it", "right", type=path, metavar="DIR")
    output: Path = compare_page_flag()


EndpointsOptions = RehearsalOptions | BuildOptions | CheckOptions | CompareOptions
_COMMANDS = {
    "run": Command(
        RehearsalOptions,
        _GROUPS,
        "Rehearse a curve of MLPerf Endpoints: the points, their scores, the tree and its check.",
        {"synonyms": SYNONYMS, "elsewhere": ELSEWHERE | EVERY_REPLICA, "epilog": _CODES},
    ),
    "build": Command(
        BuildOptions,
        ("folders", "system", "target_cohort", "seed_sets", "output"),
        "Build the tree that would be submitted, from run folders, also of the official client.",
    ),
    "check": Command(
        CheckOptions,
        ("tree", "json"),
        "Check a tree with the official checker, where it is installed, and more strictly than it.",
    ),
    "compare": Command(
        CompareOptions,
        ("left", "right", "output"),
        "Compare two curves: rehearsals, run folders or published trees.",
    ),
}


def build_parser() -> Parser:
    """All flags of all commands."""
    parser = Parser(
        prog=called("run_endpoints.py"),
        description="MLPerf Endpoints, rehearsed: never an MLPerf result.",
        epilog=_CODES,
    )
    add_commands(parser, _COMMANDS)
    return parser


def parse_options(argv: list[str]) -> EndpointsOptions:
    """Parse the flags of one command; argparse exits with code 2 and one line on wrong usage."""
    given = parsed(build_parser(), argv)
    cls: type[EndpointsOptions] = _COMMANDS[given["command"]].options
    return read(cls, given)
