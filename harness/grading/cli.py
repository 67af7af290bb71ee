"""The command line of eval_mlperf_accuracy.py. Imports stay light: ``--help`` answers at once."""

import argparse
from pathlib import Path

from harness.cli.main import exit_code_of
from harness.cli.parser import Parser
from harness.cli.signals import InterruptedRun, interruptible
from harness.errors import EXIT_THRESHOLD, EXIT_VALID

_ROOT = Path(__file__).resolve().parents[2]
_LCB_FOLDER = "livecodebench"  # where datasets/download.sh puts the release, below its --to
_DATA = _ROOT / "data"
_MODES = ("official", "strict", "both")


def build_parser() -> argparse.ArgumentParser:
    """All flags with their defaults, each written here once."""
    parser = Parser(
        prog="eval_mlperf_accuracy.py",
        description="Score mlperf_log_accuracy.json against the AIME, GPQA and LiveCodeBench references.",
        epilog="Exit codes: 0 target met, 5 target not met, 2 input that cannot be graded,"
        " 129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM.",
    )
    _add_input(parser.add_argument_group("input"))
    _add_output(parser.add_argument_group("output"))
    _add_grading(parser.add_argument_group("grading"))
    return parser


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--mlperf-log", type=Path, required=True, help="mlperf_log_accuracy.json, complete")
    group.add_argument(
        "--reference-data",
        type=Path,
        required=True,
        help="parquet, pickle or JSON file with dataset and ground_truth",
    )
    group.add_argument(
        "--tokenizer",
        help="name or folder of the model's tokenizer; it must be the benchmark's (default: the benchmark's)",
    )
    group.add_argument(
        "--lcb-data",
        type=Path,
        help="LiveCodeBench release file, folder or prepared index (default: the folder livecodebench of the"
        " download that holds --reference-data, else data/livecodebench)",
    )
    group.add_argument(
        "--benchmark",
        choices=sorted(path.stem for path in (_ROOT / "configs").glob("*.toml")),
        default="gpt-oss-120b",
        help="benchmark definition in configs/ (default: %(default)s)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--output-file", type=Path, help="write the result as JSON")
    group.add_argument(
        "--save-outputs",
        type=Path,
        help="write decoded outputs by qsl_idx: parquet, or a pickle if named .pkl",
    )
    group.add_argument(
        "--report", type=Path, help="write the samples to look at, wrong ones and disagreements: .md or .html"
    )
    group.add_argument("--verbose", action="store_true", help="put every sample's grade into --output-file")


def _add_grading(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mode",
        choices=_MODES,
        default="both",
        help="rules to grade by, exact_match is official (%(default)s)",
    )
    group.add_argument(
        "--num-lcb-workers", type=int, help="programs to run at once (default: the cores that are there)"
    )
    group.add_argument(
        "--restart",
        action="store_true",
        help="grade every program again (default: grades in the journal of an earlier call are reused)",
    )
    group.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)  # the default
    group.add_argument(
        "--allow-unsandboxed",
        action="store_true",
        help="run model-written code without a sandbox where none works: it has all your permissions",
    )


def main(argv: list[str] | None = None) -> int:
    """Parse flags, score the log, and return the exit code."""
    arguments = build_parser().parse_args(argv)
    if arguments.num_lcb_workers is not None and arguments.num_lcb_workers < 1:
        build_parser().error(f"--num-lcb-workers {arguments.num_lcb_workers}: expected at least 1")
    return exit_code_of("eval_mlperf_accuracy.py", "info", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    # Everything heavy is imported only when there is something to score.
    from harness.grading.command import run

    try:
        with interruptible():
            return EXIT_VALID if run(arguments, lcb_data(arguments)) else EXIT_THRESHOLD
    except InterruptedRun as interruption:
        interruption.add_note(_kept(arguments))
        raise


def lcb_data(arguments: argparse.Namespace) -> Path | None:
    """The LiveCodeBench release to use: the one named, else where datasets/download.sh puts it.

    That is the download that holds the reference, or the default one. None where nothing is there.
    """
    chosen: Path | None = arguments.lcb_data
    if chosen is not None:
        return chosen
    download: Path = arguments.reference_data.absolute().parent.parent  # the reference lies in acc/
    candidates = (download / _LCB_FOLDER, Path("data") / _LCB_FOLDER, _DATA / _LCB_FOLDER)
    return next((folder for folder in candidates if folder.exists()), None)


def _kept(arguments: argparse.Namespace) -> str:
    """What an interrupted call leaves for the next one."""
    from harness.grading.livecodebench.journal import journal_path

    journal = journal_path(arguments.output_file, arguments.mlperf_log)
    try:
        grades = journal.read_bytes().count(b"\n")
    except OSError:
        return "nothing was graded yet"
    return f"{journal} keeps {grades} grades on programs, and the same command continues from there"
