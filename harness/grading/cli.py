"""The command line of eval_mlperf_accuracy.py. Imports stay light: ``--help`` answers at once."""

import argparse
import sys
from pathlib import Path

from harness.errors import EXIT_SIGINT, EXIT_THRESHOLD, EXIT_VALID, HarnessError
from harness.new_file import keep_others_from_writing
from harness.report.printable import printable

_ROOT = Path(__file__).resolve().parents[2]
_DEFAULT_LCB_DATA = _ROOT / "datasets" / "livecodebench"
_MODES = ("official", "strict", "both")
_MOST_CHARACTERS = 2000  # of an error: some hold what the log said


def build_parser() -> argparse.ArgumentParser:
    """All flags with their defaults, each written here once."""
    parser = argparse.ArgumentParser(
        prog="eval_mlperf_accuracy.py",
        description="Score mlperf_log_accuracy.json against the AIME, GPQA and LiveCodeBench references.",
        epilog="Exit codes: 0 target met, 5 target not met, 2 input that cannot be graded, 130 interrupted.",
    )
    _add_input(parser.add_argument_group("input"))
    _add_output(parser.add_argument_group("output"))
    _add_grading(parser.add_argument_group("grading"))
    return parser


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--mlperf-log", type=Path, required=True, help="mlperf_log_accuracy.json, whole")
    group.add_argument(
        "--reference-data",
        type=Path,
        required=True,
        help="parquet or pickle with dataset and ground_truth",
    )
    group.add_argument(
        "--tokenizer",
        default="o200k_harmony",
        help="a name or path for transformers, or %(default)s, which is built in (default: %(default)s)",
    )
    group.add_argument(
        "--lcb-data",
        type=Path,
        help="LiveCodeBench release file, folder or prepared index (default: datasets/livecodebench)",
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
    group.add_argument("--report", type=Path, help="write every disagreement of the two modes: .md or .html")
    group.add_argument("--verbose", action="store_true", help="put every sample's verdict into --output-file")


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
    group.add_argument("--resume", action="store_true", help="go on after an interrupted grading of programs")
    group.add_argument(
        "--allow-unsandboxed",
        action="store_true",
        help="where no sandbox works, run model-written code without: it can do all that you can",
    )


def main(argv: list[str] | None = None) -> int:
    """Run the evaluator; returns the exit code and prints errors in one line."""
    arguments = build_parser().parse_args(argv)
    if arguments.num_lcb_workers is not None and arguments.num_lcb_workers < 1:
        build_parser().error(f"--num-lcb-workers {arguments.num_lcb_workers}: expected at least 1")
    keep_others_from_writing()
    try:
        from harness.grading.command import run

        return EXIT_VALID if run(arguments, lcb_data(arguments.lcb_data)) else EXIT_THRESHOLD
    except HarnessError as error:
        print(f"error: {printable(str(error), _MOST_CHARACTERS)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; the same command with --resume goes on", file=sys.stderr)
        return EXIT_SIGINT


def lcb_data(chosen: Path | None) -> Path | None:
    """The LiveCodeBench release to use: the one named, else the downloaded one if it is there."""
    if chosen is not None or not _DEFAULT_LCB_DATA.exists():
        return chosen
    return _DEFAULT_LCB_DATA
