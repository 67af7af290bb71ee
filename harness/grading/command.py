"""What one call of the evaluator does, from its flags to files, printout and verdict."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.config.benchmark import Benchmark, load_benchmark
from harness.errors import ConfigError, GradingError
from harness.grading.evaluate import Programs, evaluate
from harness.grading.grade import Mode
from harness.grading.livecodebench.index import ProblemIndex, prepared
from harness.grading.livecodebench.journal import journal_path
from harness.grading.livecodebench.runner import ExecutionConfig, require_problems, usable_cores
from harness.grading.output_decoder import OutputDecoder, RunFacts, require_own_tokenizer, run_facts
from harness.grading.references import DatasetKind, Reference, load_references
from harness.grading.reports import console, disagreements, outputs, result_file
from harness.grading.reports.progress import ProgressBar
from harness.grading.sandbox.probe import choose_sandbox
from harness.grading.sandbox.tiers import Sandbox
from harness.grading.target import check_target
from harness.loadgen_logs.accuracy_log import AccuracyLog
from harness.text import legible

METRIC = "exact_match"
_MODES = {"official": (Mode.OFFICIAL,), "strict": (Mode.STRICT,), "both": (Mode.OFFICIAL, Mode.STRICT)}


def run(arguments: argparse.Namespace, lcb_data: Path | None) -> bool:
    """Grade, print, write the files that were asked for; whether the target is met.

    Raises HarnessError for whatever cannot be graded.
    """
    _require_places((arguments.output_file, arguments.save_outputs, arguments.report))
    benchmark = load_benchmark(arguments.benchmark)
    target = _target(benchmark)
    require_own_tokenizer(benchmark, arguments.tokenizer)
    rule = benchmark.dataset(accuracy=True)
    facts = _run_of(benchmark, arguments.mlperf_log)
    references = load_references(arguments.reference_data)
    log = AccuracyLog(arguments.mlperf_log)
    decoder = OutputDecoder(facts.max_new_tokens or rule.max_new_tokens)
    modes = _MODES[arguments.mode]
    programs = _programs(arguments, references, lcb_data)
    with ProgressBar(sys.stderr) as progress:
        evaluation = evaluate(log, references, decoder, modes, rule.repeats, programs, progress.show)
    sandbox = programs.execution.sandbox if programs else None
    published = benchmark.accuracy.published if benchmark.accuracy else None
    result = check_target(evaluation, target, rule, published, sandbox)
    if arguments.save_outputs:
        outputs.save_outputs(arguments.save_outputs, evaluation.graded, log, decoder)
    tests = ProblemIndex(programs.execution.index) if programs else None
    if arguments.report:
        disagreements.write_report(arguments.report, evaluation.graded, log, decoder, result.line, tests)
    if arguments.output_file:
        details = result_file.details(evaluation.graded, log, decoder) if arguments.verbose else None
        whole = result_file.result(evaluation, result, sandbox, details)
        result_file.write_result(arguments.output_file, whole)
    print(legible(console.scorecard(evaluation, result, _difficulties(references, tests))))
    return result.is_met


def _difficulties(references: Sequence[Reference], tests: ProblemIndex | None) -> dict[str, str]:
    """Difficulty of each programming problem by question_id, where the release says it."""
    names = {row.truth for row in references if row.kind is DatasetKind.LIVECODEBENCH}
    found = {name: tests.find(name) for name in sorted(names)} if tests else {}
    return {name: facts.difficulty for name, facts in found.items() if facts and facts.difficulty}


def _require_places(files: Sequence[Path | None]) -> None:
    """Grading takes long; that a file cannot be written must show before it."""
    for file in filter(None, files):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=file.parent):
                pass
        except OSError as error:
            raise GradingError(
                f"{file}: cannot be written ({error.strerror}); choose another place"
            ) from error


def _target(benchmark: Benchmark) -> float:
    targets = benchmark.accuracy.targets if benchmark.accuracy else {}
    if METRIC not in targets:
        raise ConfigError(
            f"--benchmark {benchmark.name}: its accuracy is {', '.join(targets) or 'not defined'}, "
            f"this evaluator computes {METRIC}"
        )
    return targets[METRIC]


def _run_of(benchmark: Benchmark, log: Path) -> RunFacts:
    """Facts of the run that wrote the log; GradingError where it was of another benchmark."""
    facts = run_facts(log)
    if facts.benchmark not in (None, benchmark.name):
        raise GradingError(
            f"{log}: of a {facts.benchmark} run, says its run.json, but --benchmark is {benchmark.name}; "
            f"pass --benchmark {facts.benchmark}"
        )
    return facts


def _programs(
    arguments: argparse.Namespace, references: Sequence[Reference], lcb_data: Path | None
) -> Programs | None:
    """The execution for the programming problems; GradingError when something that they need is missing."""
    question_ids = [row.truth for row in references if row.kind is DatasetKind.LIVECODEBENCH]
    if not question_ids:
        return None
    if lcb_data is None:
        raise GradingError(
            f"{arguments.reference_data}: {len(question_ids)} LiveCodeBench samples, but no tests; "
            "pass --lcb-data (datasets/download.sh --what livecodebench fetches them)"
        )
    sandbox = _sandbox(arguments.allow_unsandboxed)
    index = prepared(lcb_data, _cache_folder(), lambda text: print(text, file=sys.stderr))
    require_problems(index, question_ids)
    execution = ExecutionConfig(index, sandbox, arguments.num_lcb_workers or usable_cores())
    return Programs(execution, journal_path(arguments.output_file, arguments.mlperf_log), arguments.restart)


def _sandbox(allow_unsandboxed: bool) -> Sandbox:
    chosen = choose_sandbox(allow_unsandboxed)
    print(f"sandbox: {chosen.tier}", file=sys.stderr)
    return chosen


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "mlperf-llm-harness"
