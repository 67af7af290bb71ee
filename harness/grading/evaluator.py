"""One call of the evaluator, from its options to printout, files and result."""

import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import structs

from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.choices import available_benchmarks
from harness.config.official_data import downloaded, fetching
from harness.dataset.table import is_binary_table
from harness.errors import EXIT_INVALID, EXIT_THRESHOLD, EXIT_VALID, ConfigError, EntryError, GradingError
from harness.files import (
    ACCURACY_LOG,
    ACCURACY_TEXT,
    RUN_RECORD,
    atomic_write,
    explained_write,
    is_device,
    require_other,
    require_own,
    unofficial,
)
from harness.grading.decoding.output_decoder import open_decoder, tokenizer_beside
from harness.grading.decoding.output_sources import Outputs, open_outputs, settings_of
from harness.grading.evaluation.evaluate import Evaluation, evaluate
from harness.grading.evaluation.pass_criteria import (
    TargetResult,
    absent_modules,
    check_target,
    require_metrics,
)
from harness.grading.evaluation.references import Reference, load_references
from harness.grading.evaluation.run_dataset import other_dataset, other_rows, true_answers
from harness.grading.evaluation_options import EvaluationOptions
from harness.grading.graders.grader import (
    LIVECODEBENCH,
    DatasetKind,
    GraderWithTasks,
    SandboxedTaskRunner,
    TaskOptions,
    TaskRunner,
)
from harness.grading.graders.grader_sets import GraderSet, graders_of
from harness.grading.graders.programs import ProgramRunner
from harness.grading.livecodebench import packages
from harness.grading.livecodebench.index import ProblemIndex
from harness.grading.livecodebench.program_journal import journal_path
from harness.grading.reports import result_file
from harness.grading.reports.disagreements import begin_of, write_report
from harness.grading.reports.samples_report import Heading
from harness.grading.reports.saved_outputs import (
    ACCURACY,
    INDEX,
    require_own_table,
    save_outputs,
    write_evaluated,
)
from harness.grading.reports.scorecard import scorecard
from harness.grading.sandbox.tiers import Sandbox
from harness.grading.scoring.grade import BOTH_MODES, GradingMode, Progress
from harness.grouping import by_key
from harness.json_files import Json
from harness.machine import usable_cores
from harness.progress.progress_files import ProgressFile
from harness.progress.progress_line import ProgressBar
from harness.record.repeated import FirstLine
from harness.record.resume import other_log, readable_run, unfinished
from harness.record.run_record import RunRecord
from harness.text import counted, legible, show


def run(
    options: EvaluationOptions, publish: Callable[[Path, Json], None] = lambda folder, result: None
) -> int:
    """Grade, print, then write the requested files; returns the exit code, 4 where the score does not count.

    ``publish`` takes the folder of the log and the result, before the scorecard is printed. It is not called
    for a log or references of another run: this one then counts as not scored.
    Raises HarnessError for whatever cannot be graded.
    """
    _warn(options.warnings)
    to_write = (
        options.output_file,
        options.evaluated_file,
        options.save_outputs,
        options.disagreements,
    )
    _require_writable(to_write)
    _show_earlier(options)
    folder = options.mlperf_log.parent
    record = readable_run(folder)
    incomplete = "" if record is None else unfinished(folder, record)
    if incomplete:
        show(f"INCOMPLETE: {incomplete}", file=sys.stderr)
    options = _with_references(options, record)
    for file in filter(None, to_write):
        require_other(file, *_read_files(options))
    _require_own_files(options)
    others = _of_another_run(options, record)
    _warn(others)
    with ProgressFile(_run_folder(options)) as watched, ProgressBar(sys.stderr) as bar:

        def progress(done: int, total: int, what: str) -> None:
            bar.show(done, total, what)
            watched.show(done, total, what)

        with _same_log(options.mlperf_log):
            scored = score(options, progress)
        bar.end()
        _warn([*_unused(options, scored)])
        _warn(scored.result.foremost)  # they are seen on stderr if the scorecard goes to a file
        scored = scored.with_foremost(others)
        summary = _summary(scored)
        if not others:
            publish(folder, summary)
        card = scorecard(scored.evaluation, scored.result, _difficulties(scored), options.disagreements)
        text = legible(card) + "\n"
        written = _write_text(options, text, official=not (incomplete or others))
        print(text, end="", flush=True)
        if not sys.stdout.isatty():  # the score is seen, wherever the scorecard goes
            show(legible(scored.result.line), file=sys.stderr)
        if written is not None:
            show(f"Written to {written}", file=sys.stderr)
        _write_tables(options, scored)  # a disk that is full costs one of these, and not the score
        if options.output_file:
            details = (
                result_file.details(scored.evaluation.graded, scored.outputs) if options.verbose else None
            )
            result_file.write_result(options.output_file, summary | {"detailed_results": details})
    if incomplete or others:
        return EXIT_INVALID
    return EXIT_VALID if scored.result.is_met else EXIT_THRESHOLD


def _with_references(options: EvaluationOptions, record: RunRecord | None) -> EvaluationOptions:
    """The options with the true answers of a log where no flag names them. Raises ConfigError without."""
    log = options.mlperf_log
    if options.reference_data is not None or not log.is_file() or is_binary_table(log):
        return options
    benchmark = _benchmark(options)
    rule = benchmark.dataset(accuracy=True)
    if (found := true_answers(record, rule)) is None:
        missing = downloaded(rule.file, Path()) if record is None else record.plan.client.input_file
        raise ConfigError(
            f"{log}: a log has no true answers, and {missing} is not here; add --reference-data "
            "(eval_accuracy.py: --dataset-file) with the dataset of the run, or run "
            f"{fetching(benchmark.name)}"
        )
    show(f"true answers: {found}", file=sys.stderr)
    return dataclasses.replace(options, reference_data=found)


def _read_files(options: EvaluationOptions) -> Iterator[Path]:
    """The files that are read, and must stay as they are."""
    yield from (options.mlperf_log, options.mlperf_log.with_name(RUN_RECORD), options.references)
    yield from (Path(one) for one in (options.tokenizer, options.lcb_data) if one)


def _require_own_files(options: EvaluationOptions) -> None:
    """Raise ConfigError where a file to write would replace one that is nothing of this kind."""
    if options.output_file:
        require_own(options.output_file, result_file.RESULT_BEGIN, "score", "--output")
    if options.disagreements:
        begin = begin_of(options.disagreements)
        require_own(options.disagreements, begin, "report on samples", "--disagreements")
    if options.save_outputs:
        require_own_table(options.save_outputs, INDEX, "--save-outputs")
    if options.evaluated_file:
        require_own_table(options.evaluated_file, ACCURACY, "name")


@contextmanager
def _same_log(path: Path) -> Iterator[None]:
    """Raise GradingError where the block ends with another log: a run moves an earlier one's folder aside.

    Otherwise the score would be written beside the log of that run.
    """
    before = _stamp(path)
    yield
    if _stamp(path) != before:
        raise GradingError(
            f"{path} was moved or replaced while it was scored, so nothing is written: the score would stand "
            "beside another log; pass --mlperf-log with the place where the scored log is now, or repeat the "
            "command for the new one"
        )


def _stamp(path: Path) -> tuple[int, int] | None:
    """The second of its last change and its size; None where it is not there."""
    try:
        state = path.stat()
    except OSError:
        return None
    return int(state.st_mtime), state.st_size  # network file systems round parts of a second later


def _show_earlier(options: EvaluationOptions) -> None:
    """What an earlier call has left: the first line, on stderr, as stdout is the scorecard."""
    kept = 0 if options.restart else _verdicts(options)
    if kept:
        counts = f"{counted(kept, 'verdict')} on programs are kept"
        show(FirstLine().continues(f"the evaluation of {options.mlperf_log}", counts), file=sys.stderr)


def _of_another_run(options: EvaluationOptions, record: RunRecord | None) -> tuple[str, ...]:
    """Warnings where log or references are not those of the run that made the outputs."""
    outputs, references = options.mlperf_log, options.reference_data
    is_table, found = is_binary_table(outputs), list[str]()
    if not is_table and record is not None:
        found.append(other_log(outputs, record))
    if references is not None:
        benchmark = _benchmark(options)
        if is_table:
            found.append(other_rows(outputs, references, benchmark))
        elif record is not None:
            found.append(other_dataset(record, references, benchmark))
    return tuple(filter(None, found))


def _write_text(options: EvaluationOptions, text: str, *, official: bool) -> Path | None:
    """Write what stdout holds to a file; returns it. Where the score does not count its name says so."""
    if options.mlperf_log.name != ACCURACY_LOG:
        return None
    beside = options.mlperf_log.with_name(ACCURACY_TEXT)
    path = beside if official else unofficial(beside)
    try:
        if path.is_file() and b"\nhash=" in path.read_bytes():
            _warn([f"{path} has the hash of a submission's log and is not replaced"])
            return None
        with atomic_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        _warn([f"{path}: cannot be written ({error.strerror}); keep what stdout prints"])
        return None
    return path


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(legible(f"WARNING: {warning}"), file=sys.stderr)


def kept_verdicts(options: EvaluationOptions) -> str:
    """What an interrupted call keeps for the next one."""
    verdicts = _verdicts(options)
    if not verdicts:
        return "no grade is kept; repeat the command"
    command = "the same command without --restart" if options.restart else "the same command"
    kept = counted(verdicts, "verdict")
    return f"{_journal(options)} keeps {kept} on programs, and {command} continues from there"


def _verdicts(options: EvaluationOptions) -> int:
    journal = _journal(options)
    return journal.read_bytes().count(b"\n") if journal.is_file() else 0


def _journal(options: EvaluationOptions) -> Path:
    """eval_accuracy.py has no other result than the graded rows."""
    return journal_path(options.output_file or options.evaluated_file, options.mlperf_log)


def _run_folder(options: EvaluationOptions) -> Path | None:
    """The folder of the run that is graded, where ``report.py watch`` looks."""
    files = filter(None, (options.mlperf_log, options.output_file))
    return next((file.parent for file in files if (file.parent / RUN_RECORD).is_file()), None)


class ScoredLog(msgspec.Struct, frozen=True):
    """A scored log, and what its reports show beside the score."""

    outputs: Outputs
    references: Sequence[Reference]
    evaluation: Evaluation
    result: TargetResult
    sandbox: Sandbox | None
    tests: ProblemIndex | None
    """The tests of the programs, where programs ran."""

    def with_foremost(self, warnings: tuple[str, ...]) -> "ScoredLog":
        """The same with these warnings before all others."""
        foremost, every = (*warnings, *self.result.foremost), (*warnings, *self.result.warnings)
        return structs.replace(self, result=structs.replace(self.result, foremost=foremost, warnings=every))


def _unused(options: EvaluationOptions, scored: ScoredLog) -> Iterator[str]:
    """A warning for each flag of programs, or of a sandbox, where there is none."""
    given = {
        f"--lcb-data {options.lcb_data}": options.lcb_data is not None and scored.tests is None,
        "--allow-unsandboxed": options.allow_unsandboxed and scored.sandbox is None,
    }
    for flag, is_unused in given.items():
        if is_unused:
            yield f"{flag} has no effect: there is no program to grade"


def score(options: EvaluationOptions, progress: Progress) -> ScoredLog:
    """Grade without printing the result or writing a file. Raises HarnessError."""
    benchmark = _benchmark(options)
    graders = graders_of(benchmark.name)
    require_metrics(benchmark, graders)
    modes = _modes(options, benchmark, graders)
    outputs, references = _read(options, benchmark)
    runners = _runners(references, graders, options, benchmark)
    repeats = benchmark.dataset(accuracy=True).repeats
    try:
        evaluation = evaluate(outputs, references, graders, modes, repeats, progress, runners)
    except EntryError as error:
        raise GradingError(f"{options.mlperf_log}: {error}") from error
    sandbox = next((one.sandbox for one in runners.values() if isinstance(one, SandboxedTaskRunner)), None)
    programs = runners.get(LIVECODEBENCH)
    tests = ProblemIndex(programs.execution.index) if isinstance(programs, ProgramRunner) else None
    result = check_target(evaluation, benchmark, sandbox)
    return ScoredLog(outputs, references, evaluation, result, sandbox, tests)


def require_gradable(options: EvaluationOptions, outputs: int) -> None:
    """Raise HarnessError for what keeps a number of outputs from being graded, before they are asked for.

    ``mlperf_log`` need not be there yet.
    """
    benchmark = _benchmark(options)
    graders = graders_of(benchmark.name)
    require_metrics(benchmark, graders)
    remedy = ""
    if options.references == options.mlperf_log:
        remedy = f"; pass the accuracy dataset of {benchmark.name} as --accuracy-file, or another --benchmark"
    references = load_references(options.references, benchmark, remedy)
    if len(references) != outputs:
        raise GradingError(
            f"--reference-data {options.references}: {counted(len(references), 'row')}, the accuracy dataset "
            f"has {outputs}; pass the references of this dataset, with its rows in their order"
        )
    tokenizer = options.tokenizer or tokenizer_beside(options.references, benchmark)
    open_decoder(benchmark, tokenizer, benchmark.dataset(accuracy=True).max_new_tokens)
    _runners(references, graders, options, benchmark)


def _benchmark(options: EvaluationOptions) -> Benchmark:
    """The flag's benchmark and round, or those that the outputs name."""
    of_run = settings_of(options.mlperf_log)
    found = options.benchmark or of_run.benchmark
    named = options.other_benchmark if found not in available_benchmarks() else found
    return load_benchmark(named, options.round or of_run.round)


def _summary(scored: ScoredLog) -> Json:
    """The result without the details of samples."""
    summary = result_file.result(scored.evaluation, scored.result, scored.sandbox)
    if scored.tests is None:
        return summary
    absent = dict(absent_modules(scored.evaluation))
    return summary | {"programs": {"packages": packages.versions(), "absent_modules": absent}}


def _read(options: EvaluationOptions, benchmark: Benchmark) -> tuple[Outputs, Sequence[Reference]]:
    """The outputs and their references; notes on the outputs go to stderr. Raises HarnessError."""
    source = options.mlperf_log
    if not source.is_file():
        # The reference has RESULTS/SCENARIO/accuracy/FILE; ours has the benchmark's folder below RESULTS.
        below = Path("*", *source.parts[-3:])
        near = sorted(source.parents[2].glob(str(below))) if len(source.parts) > 3 else []
        remedy = f"pass {' or '.join(map(str, near)) or 'mlperf_log_accuracy.json or a table of outputs'}"
        raise GradingError(f"{source}: no such file; {remedy}")
    tokenizer = options.tokenizer or tokenizer_beside(options.references, benchmark)
    found, notes = open_outputs(source, benchmark, tokenizer)
    for note in notes:
        show(f"{source}: {note}", file=sys.stderr)
    references = load_references(options.references, benchmark)[: options.first_rows]
    if isinstance(found, Sized) and len(found) != len(references):
        raise GradingError(
            f"{source}: {counted(len(found), 'row')}, {options.references} has {len(references)}; omit "
            "--reference-data where the table has the true answers itself"
        )
    return found, references


def _write_tables(options: EvaluationOptions, scored: ScoredLog) -> None:
    """The requested files of single outputs."""
    graded, outputs = scored.evaluation.graded, scored.outputs
    if options.save_outputs:
        save_outputs(options.save_outputs, graded, outputs)
    if options.disagreements:
        heading = Heading(_benchmark(options).name, options.mlperf_log, scored.result)
        write_report(options.disagreements, graded, outputs, heading, scored.tests, scored.evaluation.remarks)
    if options.evaluated_file:
        write_evaluated(options.evaluated_file, options.references, graded, outputs)
        show(f"{options.evaluated_file}: the rows with their grades", file=sys.stderr)


def _modes(options: EvaluationOptions, benchmark: Benchmark, graders: GraderSet) -> Sequence[GradingMode]:
    """The requested modes that the graders have. Raises ConfigError where there is none."""
    asked = BOTH_MODES if options.mode == "both" else (GradingMode(options.mode),)
    modes = [mode for mode in asked if mode in graders.modes]
    if not modes:
        raise ConfigError(
            f"--mode {options.mode}: --benchmark {benchmark.name} has official rules only; omit --mode"
        )
    return modes


def _runners(
    references: Sequence[Reference], graders: GraderSet, options: EvaluationOptions, benchmark: Benchmark
) -> dict[DatasetKind, TaskRunner]:
    """The runner of each kind that has references and needs one."""
    truths = by_key((reference.kind, reference.truth) for reference in references)
    task_options = TaskOptions(
        references=options.references,
        benchmark=benchmark.name,
        dataset=benchmark.dataset(accuracy=True),
        journal=_journal(options),
        lcb_data=options.lcb_data,
        workers=options.num_lcb_workers or usable_cores(),
        restart=options.restart,
        allow_unsandboxed=options.allow_unsandboxed,
    )
    return {
        kind: grader.prepare(truths[kind], task_options)
        for kind, grader in graders.by_kind.items()
        if kind in truths and isinstance(grader, GraderWithTasks)
    }


def _difficulties(scored: ScoredLog) -> dict[str, str]:
    """Difficulty of each programming problem by question_id, where the release states it."""
    if scored.tests is None:
        return {}
    names = {row.truth for row in scored.references if row.kind == LIVECODEBENCH}
    found = {name: scored.tests.find(name) for name in sorted(names)}
    return {name: facts.difficulty for name, facts in found.items() if facts and facts.difficulty}


def _require_writable(files: Sequence[Path | None]) -> None:
    """Raises HarnessError for a file that cannot be written, before the time for grading is spent."""
    for file in filter(None, files):
        if not file.parent.is_dir():
            raise GradingError(
                f"{file}: there is no folder {file.parent}; create it, or choose another place"
            )
        if file.is_dir():
            raise GradingError(f"{file}: is a folder, expected the name of a file; add one")
        with explained_write(file, "place"):
            if not is_device(file):
                tempfile.TemporaryFile(dir=file.parent).close()
