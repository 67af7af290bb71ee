"""The command line of eval_mlperf_accuracy.py. Imports stay light: ``--help`` answers at once."""

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from harness.cli.parser import Parser
from harness.errors import EXIT_THRESHOLD, EXIT_VALID, HarnessError, explained
from harness.files import keep_others_from_writing
from harness.text import printable

_ROOT = Path(__file__).resolve().parents[2]
_LCB_FOLDER = "livecodebench"  # where datasets/download.sh puts the release, below its --to
_DATA = _ROOT / "data"
_MODES = ("official", "strict", "both")
_MOST_CHARACTERS = 2000  # of an error: some hold what the log said


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
        help="parquet or pickle with dataset and ground_truth",
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
    group.add_argument(
        "--restart",
        action="store_true",
        help="grade every program again (default: verdicts in the journal of an earlier call are reused)",
    )
    group.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)  # the default
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
        with _ended_by_signals():
            from harness.grading.command import run

            return EXIT_VALID if run(arguments, lcb_data(arguments)) else EXIT_THRESHOLD
    except (HarnessError, ImportError) as error:
        if (known := explained(error)) is None:
            raise
        print(f"error: {printable(str(known), _MOST_CHARACTERS)}", file=sys.stderr)
        return known.exit_code
    except _EndedBySignal as ending:
        print(f"ended by {signal.Signals(ending.signum).name}; {_kept(arguments)}", file=sys.stderr)
        return 128 + ending.signum


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


class _EndedBySignal(BaseException):
    """The user or the system asked the program to end."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise _EndedBySignal in the main thread; a signal that was ignored before stays ignored."""
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ours = [signum for signum in wanted if signal.getsignal(signum) is not signal.SIG_IGN]
    before = {signum: signal.signal(signum, _end) for signum in ours}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _end(signum: int, frame: FrameType | None) -> None:
    raise _EndedBySignal(signum)


def _kept(arguments: argparse.Namespace) -> str:
    """What an interrupted call leaves for the next one."""
    from harness.grading.livecodebench.journal import journal_path

    journal = journal_path(arguments.output_file, arguments.mlperf_log)
    try:
        verdicts = journal.read_bytes().count(b"\n")
    except OSError:
        return "nothing was graded yet"
    return f"{journal} keeps {verdicts} verdicts on programs, and the same command continues from there"
