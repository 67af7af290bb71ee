"""One call of the evaluator, from its options to printout, files and result."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.config.benchmark import Benchmark, load_benchmark
from harness.errors import ConfigError, GradingError
from harness.grading.evaluate import evaluate
from harness.grading.grade import BOTH_MODES, Mode
from harness.grading.graders import LIVECODEBENCH, Batch, BatchGrader, DatasetKind, Grader, graders_of
from harness.grading.graders.livecodebench import Programs
from harness.grading.livecodebench.index import ProblemIndex
from harness.grading.options import EvaluationOptions, Rules
from harness.grading.output_decoder import RunFacts, open_decoder, run_facts
from harness.grading.references import Reference, load_references
from harness.grading.reports import console, disagreements, outputs, result_file
from harness.grading.reports.progress import ProgressBar
from harness.grading.target import check_target, require_metrics
from harness.loadgen_logs.accuracy_log import AccuracyLog
from harness.text import legible

_MODES: Mapping[Rules, Sequence[Mode]] = {
    "official": (Mode.OFFICIAL,),
    "strict": (Mode.STRICT,),
    "both": BOTH_MODES,
}


def run(options: EvaluationOptions) -> bool:
    """Grade, print, write the files that were asked for; whether the target is met.

    Raises HarnessError for whatever cannot be graded.
    """
    _require_writable((options.output_file, options.save_outputs, options.disagreements))
    benchmark = load_benchmark(options.benchmark)
    graders = graders_of(benchmark.name)
    require_metrics(benchmark, graders)
    modes = _modes(options, graders)
    rule = benchmark.dataset(accuracy=True)
    facts = _run_of(benchmark, options.mlperf_log)
    decoder = open_decoder(benchmark, options.tokenizer, facts.max_new_tokens or rule.max_new_tokens)
    references = load_references(options.reference_data, benchmark)
    log = AccuracyLog(options.mlperf_log)
    batches = _batches(references, graders, options)
    with ProgressBar(sys.stderr) as progress:
        evaluation = evaluate(log, references, decoder, graders, modes, rule.repeats, progress.show, batches)
    programs = batches.get(LIVECODEBENCH)
    execution = programs.execution if isinstance(programs, Programs) else None
    sandbox = execution.sandbox if execution else None
    result = check_target(evaluation, benchmark, sandbox)
    tests = ProblemIndex(execution.index) if execution else None
    if options.save_outputs:
        outputs.save_outputs(options.save_outputs, evaluation.graded, log, decoder)
    if options.disagreements:
        disagreements.write_report(options.disagreements, evaluation.graded, log, decoder, result.line, tests)
    if options.output_file:
        details = result_file.details(evaluation.graded, log, decoder) if options.verbose else None
        complete = result_file.result(evaluation, result, sandbox, details)
        result_file.write_result(options.output_file, complete)
    print(legible(console.scorecard(evaluation, result, _difficulties(references, tests))))
    return result.is_met


def _modes(options: EvaluationOptions, graders: Mapping[DatasetKind, Grader]) -> Sequence[Mode]:
    """The modes that were asked for and that all graders have. Raises ConfigError where there is none."""
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
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=file.parent):
                pass
        except OSError as error:
            raise GradingError(
                f"{file}: cannot be written ({error.strerror}); choose another place"
            ) from error


def _run_of(benchmark: Benchmark, log: Path) -> RunFacts:
    """Facts of the run that wrote the log; GradingError where it was of another benchmark."""
    facts = run_facts(log)
    if facts.benchmark not in (None, benchmark.name):
        raise GradingError(
            f"{log}: of a {facts.benchmark} run according to its run.json, but --benchmark is "
            f"{benchmark.name}; pass --benchmark {facts.benchmark}"
        )
    return facts
