"""The command line of eval_mlperf_accuracy.py. Imports stay light: ``--help`` answers at once."""

import argparse
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from harness.cli.main import exit_code_of
from harness.cli.parser import SIGNAL_CODES, Parser, Synonym, add_benchmark
from harness.cli.signals import InterruptedRun, interruptible
from harness.errors import EXIT_THRESHOLD, EXIT_VALID
from harness.files import PARQUET_SUFFIXES, PICKLE_SUFFIXES
from harness.grading.evaluation_options import RULES, EvaluationOptions

Publish = Callable[[Path, dict[str, Any]], None]
_DEFAULTS = {field.name: field.default for field in fields(EvaluationOptions) if field.default is not MISSING}
_EXIT_CODES = f"Exit codes: 0 target met, 5 target not met, 2 input that cannot be graded, {SIGNAL_CODES}."
# Of both programs:
_SHARED = (
    "benchmark",
    "round",
    "tokenizer",
    "lcb_data",
    "mode",
    "num_lcb_workers",
    "restart",
    "allow_unsandboxed",
)
_ACCURACY_BENCHMARK = "deepseek-r1"  # whose upstream program it is
_TABLES = (*PICKLE_SUFFIXES, *PARQUET_SUFFIXES)


def build_parser() -> argparse.ArgumentParser:
    """All flags; their defaults are those of EvaluationOptions."""
    parser = Parser(
        prog="eval_mlperf_accuracy.py",
        description="Score mlperf_log_accuracy.json against the references of an accuracy dataset.",
        epilog=_EXIT_CODES,
    )
    _add_input(parser.add_argument_group("input"))
    _add_output(parser.add_argument_group("output"))
    _add_grading(parser.add_argument_group("grading"))
    parser.set_defaults(**_DEFAULTS)
    return parser


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mlperf-log",
        type=Path,
        required=True,
        help="mlperf_log_accuracy.json, complete, or a table of outputs (parquet, pickle) as of run_eval.py",
    )
    group.add_argument(
        "--reference-data",
        type=Path,
        help="parquet, pickle or JSON file with the true answers, and the data set of each (required for a"
        " log; a table of outputs has them itself)",
    )
    _add_facts(group)


def _add_facts(group: argparse._ArgumentGroup) -> None:
    """The inputs of grading besides outputs and true answers."""
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
        help="write the wrong samples, and those on which the modes disagree, to a .md or .html file",
    )
    group.add_argument(
        "--verbose", action="store_true", help="include the grade of every sample in --output-file"
    )


def _add_grading(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mode",
        choices=RULES,
        help="rules to grade by, exact_match is official (%(default)s)",
    )
    group.add_argument(
        "--num-lcb-workers",
        type=int,
        help="number of processors for programs, or for comparing texts (default: cores of this process)",
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


def build_accuracy_parser() -> Parser:
    """The command line of upstream's eval_accuracy.py, and further flags of build_parser."""
    parser = Parser(
        prog="eval_accuracy.py",
        synonyms={"--mlperf-log": Synonym("--input-file"), "--reference-data": Synonym("--dataset-file")},
        description="Score outputs like upstream's eval_accuracy.py: a table of outputs, or an "
        "accuracy log with its dataset. Writes the rows with extracted_answer and prompt_accuracy.",
        epilog=_EXIT_CODES,
    )
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input-file",
        type=Path,
        required=True,
        help="table of outputs (parquet or pickle) as of run_eval.py, or mlperf_log_accuracy.json",
    )
    group.add_argument(
        "--dataset-file", type=Path, help="file with the true answers (required for a log; a table has them)"
    )
    _add_facts(group)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output-file",
        type=Path,
        help="the rows with their grades, .parquet or .pkl (default: NAME_evaluated beside --input-file, in"
        " its format, .pkl for a log)",
    )
    group.add_argument("--verbose", action="store_true", help=argparse.SUPPRESS)  # without effect
    _add_grading(parser.add_argument_group("grading"))
    parser.set_defaults(**{name: value for name, value in _DEFAULTS.items() if name in _SHARED})
    parser.set_defaults(benchmark=_ACCURACY_BENCHMARK)
    return parser


def parse_accuracy_options(argv: list[str] | None = None) -> EvaluationOptions:
    """Parse the flags of eval_accuracy.py; argparse exits with code 2 on wrong usage."""
    parser = build_accuracy_parser()
    given = parser.parse_args(argv)
    _require_workers(parser, given.num_lcb_workers)
    return EvaluationOptions(
        mlperf_log=given.input_file,
        reference_data=given.dataset_file,
        evaluated_file=_evaluated_file(parser, given.input_file, given.output_file),
        **{name: getattr(given, name) for name in _SHARED},
    )


def _evaluated_file(parser: argparse.ArgumentParser, source: Path, asked: Path | None) -> Path:
    suffix = source.suffix if source.suffix.lower() in _TABLES else _TABLES[0]
    path = asked or source.with_name(f"{source.stem}_evaluated{suffix}")
    if path.suffix.lower() not in _TABLES:
        parser.error(f"--output-file {path}: expected {' or '.join(_TABLES)}")
    if path.resolve() == source.resolve():
        parser.error(f"--output-file {path}: is the input file; choose another")
    return path


def parse_options(argv: list[str] | None = None) -> EvaluationOptions:
    """Parse flags; argparse exits with code 2 on wrong usage."""
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    del given["resume"]  # the default
    _require_workers(parser, given["num_lcb_workers"])
    return EvaluationOptions(**given)


def _require_workers(parser: argparse.ArgumentParser, workers: int | None) -> None:
    if workers is not None and workers < 1:
        parser.error(f"--num-lcb-workers {workers}: expected at least 1")


def main(argv: list[str] | None = None, publish: Publish = lambda folder, result: None) -> int:
    """Parse flags, score the outputs, and return the exit code; ``publish`` as in evaluator.py."""
    options = parse_options(argv)
    return exit_code_of("eval_mlperf_accuracy.py", "info", lambda: _run(options, publish))


def accuracy_main(argv: list[str] | None = None, publish: Publish = lambda folder, result: None) -> int:
    """The same for eval_accuracy.py."""
    options = parse_accuracy_options(argv)
    return exit_code_of("eval_accuracy.py", "info", lambda: _run(options, publish))


def _run(options: EvaluationOptions, publish: Publish) -> int:
    try:
        with interruptible():
            # Everything heavy is imported only when there is something to score.
            from harness.grading.evaluator import run

            return EXIT_VALID if run(options, publish) else EXIT_THRESHOLD
    except InterruptedRun as interruption:
        interruption.add_note(_kept(options))
        raise


def _kept(options: EvaluationOptions) -> str:
    """The note on what an interrupted call keeps for the next one."""
    from harness.grading.livecodebench.program_journal import journal_path

    journal = journal_path(options.output_file, options.mlperf_log)
    verdicts = journal.read_bytes().count(b"\n") if journal.is_file() else 0
    if not verdicts:
        return "no program was graded yet"
    return f"{journal} keeps {verdicts} verdicts on programs, and the same command continues from there"
