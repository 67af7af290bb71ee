"""One call of the evaluator, from its options to printout, files and result."""

import sys
import tempfile
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path

from harness.config.benchmark import Benchmark, load_benchmark
from harness.dataset.table import is_binary_table
from harness.errors import ConfigError, GradingError
from harness.files import RUN_RECORD
from harness.grading.evaluate import Evaluation, evaluate
from harness.grading.evaluation_options import EvaluationOptions, Rules
from harness.grading.grade import BOTH_MODES, Mode, Progress
from harness.grading.graders import (
    LIVECODEBENCH,
    Batch,
    BatchGrader,
    DatasetKind,
    Grader,
    SandboxedBatch,
    graders_of,
)
from harness.grading.graders.livecodebench import Programs
from harness.grading.livecodebench import packages
from harness.grading.livecodebench.index import ProblemIndex
from harness.grading.livecodebench.journal import journal_path
from harness.grading.outputs import Outputs, open_outputs
from harness.grading.references import Reference, load_references
from harness.grading.reports import console, disagreements, evaluated, outputs, result_file
from harness.grading.target import absent_modules, check_target, require_metrics
from harness.progress.progress_files import ProgressFile
from harness.progress.progress_line import ProgressBar
from harness.report.command import add_result
from harness.text import legible, show

_MODES: Mapping[Rules, Sequence[Mode]] = {
    "official": (Mode.OFFICIAL,),
    "strict": (Mode.STRICT,),
    "both": BOTH_MODES,
}


def run(options: EvaluationOptions) -> bool:
    """Grade, print, write the requested files; returns whether the target is met.

    Raises HarnessError for whatever cannot be graded.
    """
    _require_writable(
        (options.output_file, options.evaluated_file, options.save_outputs, options.disagreements)
    )
    with ProgressFile(_run_folder(options)) as watched:
        return _run(options, watched.show)


def kept_verdicts(options: EvaluationOptions) -> str:
    """What an interrupted call keeps for the next one."""
    journal = journal_path(options.output_file, options.mlperf_log)
    verdicts = journal.read_bytes().count(b"\n") if journal.is_file() else 0
    if not verdicts:
        return "no program was graded yet"
    return f"{journal} keeps {verdicts} verdicts on programs, and the same command continues from there"


def _run_folder(options: EvaluationOptions) -> Path | None:
    """The folder of the run that is graded, where ``report.py watch`` looks."""
    files = filter(None, (options.mlperf_log, options.output_file))
    return next((file.parent for file in files if (file.parent / RUN_RECORD).is_file()), None)


def _run(options: EvaluationOptions, watched: Progress) -> bool:
    benchmark = load_benchmark(options.benchmark, options.round)
    graders = graders_of(benchmark.name)
    require_metrics(benchmark, graders)
    modes = _modes(options, graders)
    found, references = _read(options, benchmark)
    batches = _batches(references, graders, options)
    repeats = benchmark.dataset(accuracy=True).repeats
    with ProgressBar(sys.stderr) as bar:

        def progress(done: int, total: int, what: str) -> None:
            bar.show(done, total, what)
            watched(done, total, what)

        evaluation = evaluate(found, references, graders, modes, repeats, progress, batches)
    programs = batches.get(LIVECODEBENCH)
    execution = programs.execution if isinstance(programs, Programs) else None
    sandbox = next((batch.sandbox for batch in batches.values() if isinstance(batch, SandboxedBatch)), None)
    result = check_target(evaluation, benchmark, sandbox)
    for warning in result.foremost:  # on stderr, too: seen where the scorecard goes to a file
        print(legible(f"WARNING: {warning}"), file=sys.stderr)
    tests = ProblemIndex(execution.index) if execution else None
    _write_tables(options, evaluation, found, result.line, tests)
    summary = result_file.result(evaluation, result, sandbox, details=None)
    if execution:
        summary["programs"] = {
            "packages": packages.versions(),
            "absent_modules": dict(absent_modules(evaluation)),
        }
    if options.output_file:
        details = result_file.details(evaluation.graded, found) if options.verbose else None
        result_file.write_result(options.output_file, summary | {"detailed_results": details})
    add_result(options.mlperf_log.parent, summary)
    difficulties = _difficulties(references, tests)
    print(legible(console.scorecard(evaluation, result, difficulties, options.disagreements)))
    return result.is_met


def _read(options: EvaluationOptions, benchmark: Benchmark) -> tuple[Outputs, Sequence[Reference]]:
    """The outputs and their references; notes on the outputs go to stderr. Raises HarnessError."""
    source = options.mlperf_log
    if not source.is_file():
        raise GradingError(f"{source}: no such file; pass mlperf_log_accuracy.json or a table of outputs")
    if options.reference_data is None and not is_binary_table(source):
        raise ConfigError(
            f"{source}: a log has no true answers; add --reference-data (eval_accuracy.py: --dataset-file) "
            "with the dataset of the run"
        )
    found, notes = open_outputs(source, benchmark, options.tokenizer)
    for note in notes:
        show(f"{source}: {note}", file=sys.stderr)
    references = load_references(options.references, benchmark)
    if isinstance(found, Sized) and len(found) != len(references):
        raise GradingError(
            f"{source}: {len(found)} rows, {options.references} has {len(references)}; omit "
            "--reference-data where the table has the true answers itself"
        )
    return found, references


def _write_tables(
    options: EvaluationOptions,
    evaluation: Evaluation,
    found: Outputs,
    line: str,
    tests: ProblemIndex | None,
) -> None:
    """The requested files of single outputs; ``line`` is the result's."""
    if options.save_outputs:
        outputs.save_outputs(options.save_outputs, evaluation.graded, found)
    if options.disagreements:
        disagreements.write_report(
            options.disagreements, evaluation.graded, found, line, tests, evaluation.remarks
        )
    if options.evaluated_file:
        evaluated.write_evaluated(options.evaluated_file, options.references, evaluation.graded, found)
        show(f"{options.evaluated_file}: the rows with their grades", file=sys.stderr)


def _modes(options: EvaluationOptions, graders: Mapping[DatasetKind, Grader]) -> Sequence[Mode]:
    """The requested modes that all graders have. Raises ConfigError where there is none."""
    modes = [
        mode for mode in _MODES[options.mode] if all(mode in grader.MODES for grader in graders.values())
    ]
    if not modes:
        raise ConfigError(
            f"--mode {options.mode}: --benchmark {options.benchmark} has official rules only; omit --mode"
        )
    return modes


def _batches(
    references: Sequence[Reference], graders: Mapping[DatasetKind, Grader], options: EvaluationOptions
) -> dict[DatasetKind, Batch]:
    """The batch of each kind that has references and needs one."""
    truths: dict[DatasetKind, list[str]] = {}
    for reference in references:
        truths.setdefault(reference.kind, []).append(reference.truth)
    return {
        kind: grader.prepare(truths[kind], options)
        for kind, grader in graders.items()
        if kind in truths and isinstance(grader, BatchGrader)
    }


def _difficulties(references: Sequence[Reference], tests: ProblemIndex | None) -> dict[str, str]:
    """Difficulty of each programming problem by question_id, where the release states it."""
    names = {row.truth for row in references if row.kind == LIVECODEBENCH}
    found = {name: tests.find(name) for name in sorted(names)} if tests else {}
    return {name: facts.difficulty for name, facts in found.items() if facts and facts.difficulty}


def _require_writable(files: Sequence[Path | None]) -> None:
    """Raises GradingError for a file that cannot be written, before the time for grading is spent."""
    for file in filter(None, files):
        if not file.parent.is_dir():
            raise GradingError(
                f"{file}: there is no folder {file.parent}; create it, or choose another place"
            )
        try:
            with tempfile.TemporaryFile(dir=file.parent):
                pass
        except OSError as error:
            raise GradingError(
                f"{file}: cannot be written ({error.strerror}); choose another place"
            ) from error
