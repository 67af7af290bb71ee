"""The options of eval_mlperf_accuracy.py and eval_accuracy.py, and their command lines.

Imports stay light: ``--help`` answers at once.
"""

import argparse
from pathlib import Path
from typing import Any, Literal

from harness.cli.door import called
from harness.cli.flags import add_groups, flag, options, read
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.choices import DEFAULT_BENCHMARK, benchmark_flag, round_flag
from harness.config.other_flags import SCORE_ELSEWHERE, SCORE_SYNONYMS
from harness.config.run_options import tokenizer_flag
from harness.files import ACCURACY_LOG, PARQUET_SUFFIXES, PICKLE_SUFFIXES

Rules = Literal["official", "strict", "both"]

_EXIT_CODES = (
    "Exit codes: 0 target met, 5 target not met, 4 graded, but the run is not VALID, or log or references are"
    f" not the run's, 2 input that cannot be graded, {SIGNAL_CODES}."
)
_NEEDLESS = {"--resume": "the same command always continues where the one before it ended"}
_NO_OUTPUT = "--verbose has no effect without --output FILE, into which it writes the grade of every sample"
_GROUPS = {
    "input": ("mlperf_log", "reference_data", "tokenizer", "lcb_data", "benchmark", "round"),
    "output": ("output_file", "evaluated_file", "save_outputs", "disagreements", "verbose"),
    "grading": ("mode", "num_lcb_workers", "restart", "allow_unsandboxed"),
}
_ACCURACY_GROUPS = _GROUPS | {"output": ("evaluated_file",)}
_UPSTREAM = "deepseek-r1"  # whose program eval_accuracy.py is
_TABLES = (*PICKLE_SUFFIXES, *PARQUET_SUFFIXES)


def lcb_data_flag() -> Any:
    """The field for the tests of LiveCodeBench."""
    return flag(
        "LiveCodeBench release file, folder or prepared index (default: livecodebench in the download"
        " that holds the true answers, else data/livecodebench)",
        default=None,
        metavar="PATH",
    )


def allow_unsandboxed_flag() -> Any:
    """The field that gives up the sandbox."""
    return flag(
        "run model-written code without a sandbox where none works: it has all your permissions",
        default=False,
    )


@options
class EvaluationOptions:
    """What is scored, by which rules, and the files to write.

    ``mlperf_log`` may be a table of outputs, which is its own ``reference_data`` where that is None.
    """

    mlperf_log: Path = flag(
        "mlperf_log_accuracy.json of a complete run, or its folder; or a table of outputs (parquet, pickle),"
        " as './mlperf eval' writes it",
        old=("--input-file",),
        metavar="FILE",
    )
    reference_data: Path | None = flag(
        "parquet, pickle or JSON file with the true answers, and the data set of each (default: the run's"
        " dataset, else the benchmark's, which datasets/download.sh puts into data/; a table of outputs has"
        " them itself)",
        default=None,
        old=("--dataset-file",),
        metavar="FILE",
    )
    tokenizer: str | None = tokenizer_flag()
    lcb_data: Path | None = lcb_data_flag()
    benchmark: str | None = benchmark_flag(None, f"that of the run, else {DEFAULT_BENCHMARK}")
    other_benchmark: str = DEFAULT_BENCHMARK
    """whose outputs they are where neither a flag nor the outputs name it"""
    round: str | None = round_flag(of_run=True)
    output_file: Path | None = flag(
        "write the result as JSON", "--output", "-o", "--output-file", default=None, metavar="FILE"
    )
    evaluated_file: Path | None = flag(
        "write the rows with extracted_answer and prompt_accuracy, as upstream's eval_accuracy.py does:"
        " parquet, or a pickle if named .pkl",
        "--graded-rows",
        default=None,
        metavar="FILE",
    )
    save_outputs: Path | None = flag(
        "write decoded outputs by qsl_idx: parquet, or a pickle if named .pkl", default=None, metavar="FILE"
    )
    disagreements: Path | None = flag(
        "write the wrong samples, and those on which the modes disagree, to a .md or .html file",
        "--disagreements",
        "--report",
        default=None,
        metavar="FILE",
    )
    verbose: bool = flag("include the grade of every sample in --output", default=False)
    mode: Rules = flag(
        "rules to grade by; strict alone makes no score of a submission (default: %(default)s)",
        default="both",
    )
    num_lcb_workers: int | None = flag(
        "number of processes for programs, or for comparing texts (default: cores of this process)",
        "--num-workers",
        "--num-lcb-workers",
        default=None,
        metavar="N",
    )
    restart: bool = flag(
        "grade every program again (default: grades of an earlier call with the same --output are reused)",
        default=False,
    )
    allow_unsandboxed: bool = allow_unsandboxed_flag()

    first_rows: int | None = None
    """of the true answers, which are those of a part of the dataset; None: all"""
    warnings: tuple[str, ...] = ()
    """about the command line"""

    @property
    def references(self) -> Path:
        """The file of the true answers."""
        return self.reference_data or self.mlperf_log


@options
class _AccuracyOptions(EvaluationOptions):
    """The same as upstream's eval_accuracy.py names it."""

    mlperf_log: Path = flag(
        "table of outputs (parquet or pickle) as of run_eval.py, or mlperf_log_accuracy.json",
        "--input-file",
        old=("--mlperf-log", "--mlperf-accuracy-file"),
        metavar="FILE",
    )
    reference_data: Path | None = flag(
        "file with the true answers (default for a log: the run's dataset, else the benchmark's in data/; a"
        " table has them)",
        "--dataset-file",
        default=None,
        old=("--reference-data",),
        metavar="FILE",
    )
    benchmark: str | None = benchmark_flag(None, f"that of the run, else {_UPSTREAM}")
    other_benchmark: str = _UPSTREAM
    evaluated_file: Path | None = flag(
        "the rows with their grades, .parquet or .pkl (default: NAME_evaluated beside --input-file, in"
        " its format, .pkl for a log)",
        "--output-file",
        default=None,
        old=("--output", "-o", "--graded-rows"),
        metavar="FILE",
    )


def build_parser() -> Parser:
    """All flags of eval_mlperf_accuracy.py."""
    parser = Parser(
        prog=called("eval_mlperf_accuracy.py"),
        synonyms=SCORE_SYNONYMS,
        elsewhere=SCORE_ELSEWHERE,
        needless=_NEEDLESS,
        description="Score mlperf_log_accuracy.json against the references of an accuracy dataset.",
        epilog=_EXIT_CODES,
    )
    add_groups(parser, EvaluationOptions, _GROUPS)
    return parser


def build_accuracy_parser() -> Parser:
    """All flags of eval_accuracy.py: those of upstream's program, and further ones of ours."""
    parser = Parser(
        prog="eval_accuracy.py",
        elsewhere=SCORE_ELSEWHERE,
        needless=_NEEDLESS | {"--verbose": "every row is written with its grade"},
        description="Score outputs like upstream's eval_accuracy.py: a table of outputs, or an "
        "accuracy log with its dataset. Writes the rows with extracted_answer and prompt_accuracy.",
        epilog=_EXIT_CODES,
    )
    add_groups(parser, _AccuracyOptions, _ACCURACY_GROUPS)
    return parser


def parse_options(argv: list[str]) -> EvaluationOptions:
    """Parse the flags of eval_mlperf_accuracy.py; argparse exits with code 2 on wrong usage."""
    parser = build_parser()
    given = _parsed(parser, argv)
    for flag_name, field in (("--graded-rows", "evaluated_file"), ("--save-outputs", "save_outputs")):
        if given[field] is not None:
            _check_table(parser, flag_name, given[field])
    if given["verbose"] and given["output_file"] is None:
        given["warnings"] = (*given["warnings"], _NO_OUTPUT)
    return read(EvaluationOptions, given)


def parse_accuracy_options(argv: list[str]) -> EvaluationOptions:
    """Parse the flags of eval_accuracy.py; argparse exits with code 2 on wrong usage."""
    parser = build_accuracy_parser()
    given = _parsed(parser, argv)
    file = _evaluated_file(parser, given["mlperf_log"], given["evaluated_file"])
    return read(_AccuracyOptions, given | {"evaluated_file": file})


def _parsed(parser: Parser, argv: list[str]) -> dict[str, Any]:
    given = vars(parser.parse_args(argv))
    workers = given["num_lcb_workers"]
    if workers is not None and workers < 1:
        parser.error(f"--num-workers {workers}: expected at least 1")
    log = given["mlperf_log"]
    folder = {"mlperf_log": log / ACCURACY_LOG} if log.is_dir() else {}
    return given | folder | {"warnings": parser.warnings}


def _evaluated_file(parser: argparse.ArgumentParser, source: Path, asked: Path | None) -> Path:
    suffix = source.suffix if source.suffix.lower() in _TABLES else _TABLES[0]
    path = asked or source.with_name(f"{source.stem}_evaluated{suffix}")
    _check_table(parser, "--output-file", path)
    return path


def _check_table(parser: argparse.ArgumentParser, typed: str, path: Path) -> None:
    if path.suffix.lower() not in _TABLES:
        parser.error(f"{typed} {path}: expected {' or '.join(_TABLES)}")
