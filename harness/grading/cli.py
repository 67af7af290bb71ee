"""The command line of eval_mlperf_accuracy.py. Imports stay light: ``--help`` answers at once."""

import argparse
from dataclasses import MISSING, fields
from pathlib import Path

from harness.cli.main import exit_code_of
from harness.cli.parser import Parser, add_benchmark
from harness.cli.signals import InterruptedRun, interruptible
from harness.errors import EXIT_THRESHOLD, EXIT_VALID
from harness.grading.options import RULES, EvaluationOptions

_DEFAULTS = {field.name: field.default for field in fields(EvaluationOptions) if field.default is not MISSING}


def build_parser() -> argparse.ArgumentParser:
    """All flags; their defaults are those of EvaluationOptions."""
    parser = Parser(
        prog="eval_mlperf_accuracy.py",
        description="Score mlperf_log_accuracy.json against the references of an accuracy dataset.",
        epilog="Exit codes: 0 target met, 5 target not met, 2 input that cannot be graded,"
        " 129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM.",
    )
    _add_input(parser.add_argument_group("input"))
    _add_output(parser.add_argument_group("output"))
    _add_grading(parser.add_argument_group("grading"))
    parser.set_defaults(**_DEFAULTS)
    return parser


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--mlperf-log", type=Path, required=True, help="mlperf_log_accuracy.json, complete")
    group.add_argument(
        "--reference-data",
        type=Path,
        required=True,
        help="parquet, pickle or JSON file with the true answers, and the data set of each",
    )
    group.add_argument(
        "--tokenizer",
        help="tokenizer.json or folder of the model, or its name in the Hugging Face cache; it must be the"
        " benchmark's model (default: the benchmark's tokenizer, built in or from that cache)",
    )
    group.add_argument(
        "--lcb-data",
        type=Path,
        help="LiveCodeBench release file, folder or prepared index (default: livecodebench in the download"
        " that holds --reference-data, else data/livecodebench)",
    )
    add_benchmark(group)


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--output-file", type=Path, help="write the result as JSON")
    group.add_argument(
        "--save-outputs",
        type=Path,
        help="write decoded outputs by qsl_idx: parquet, or a pickle if named .pkl",
    )
    group.add_argument(
        "--disagreements",
        "--report",
        type=Path,
        help="write the samples to look at, wrong ones and those on which the modes disagree: .md or .html",
    )
    group.add_argument("--verbose", action="store_true", help="put all grades into --output-file")


def _add_grading(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mode",
        choices=RULES,
        help="rules to grade by, exact_match is official (%(default)s)",
    )
    group.add_argument(
        "--num-lcb-workers",
        type=int,
        help="programs to run, or texts to compare, at once (default: the cores of this process)",
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


def parse_options(argv: list[str] | None = None) -> EvaluationOptions:
    """Parse flags; argparse exits with code 2 on wrong usage."""
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    if given["num_lcb_workers"] is not None and given["num_lcb_workers"] < 1:
        parser.error(f"--num-lcb-workers {given['num_lcb_workers']}: expected at least 1")
    del given["resume"]  # the default
    return EvaluationOptions(**given)


def main(argv: list[str] | None = None) -> int:
    """Parse flags, score the log, and return the exit code."""
    options = parse_options(argv)
    return exit_code_of("eval_mlperf_accuracy.py", "info", lambda: _run(options))


def _run(options: EvaluationOptions) -> int:
    # Everything heavy is imported only when there is something to score.
    from harness.grading.command import run

    try:
        with interruptible():
            return EXIT_VALID if run(options) else EXIT_THRESHOLD
    except InterruptedRun as interruption:
        interruption.add_note(_kept(options))
        raise


def _kept(options: EvaluationOptions) -> str:
    """The note on what an interrupted call keeps for the next one."""
    from harness.grading.livecodebench.journal import journal_path

    journal = journal_path(options.output_file, options.mlperf_log)
    try:
        verdicts = journal.read_bytes().count(b"\n")
    except OSError:
        return "nothing was graded yet"
    return f"{journal} keeps {verdicts} verdicts on programs, and the same command continues from there"
