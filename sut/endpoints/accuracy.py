"""The accuracy run of a point: its dataset once, in a closed loop at the point's concurrency, scored.

The answers are kept as a table in the run folder, which the evaluator reads as it does LoadGen's log. Calling
it again continues: what is answered is not asked again, and what is scored is not scored again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow.parquet as pq
from msgspec import structs

from harness.cli.signals import InterruptedRun, interruptible, require_no_signal, signals_kept
from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.client_plan import resolve_client
from harness.config.deadlines import resolve_policy
from harness.config.generation import official_parameters, resolve_generation
from harness.config.rule_checks import round_deviations
from harness.config.run_options import FAILURES_OF_ACCURACY, ClientOptions
from harness.dataset.extended_table import NewColumn, write_extended
from harness.dataset.samples import SampleSet, load_samples
from harness.dataset.table import Table, open_table
from harness.endpoints.accuracy import PointAccuracy, as_shares, read_accuracy, write_accuracy
from harness.endpoints.curve import Point
from harness.endpoints.endpoints_options import RehearsalOptions
from harness.endpoints.point_run import read_point_run
from harness.errors import ConfigError, RunError
from harness.files import sha256_of
from harness.grading.decoding.output_decoder import tokenizer_beside
from harness.grading.decoding.output_sources import IDS, LENGTH, METADATA, TEXT
from harness.grading.evaluation_options import EvaluationOptions
from harness.grading.evaluator import ScoredLog, kept_verdicts, require_gradable, score
from harness.grading.scoring.grade import Progress, Reason
from harness.progress.progress_line import ProgressSnapshot
from harness.record.resume import differences
from harness.record.settled import ServerInfo
from harness.rows.attempts import EvalSettings
from harness.rows.eval_plan import EvalPlan, run_folder
from harness.rows.eval_result import EvalResult, OutputTable
from harness.text import by_kind
from sut.drive import Serving
from sut.rows.run_rows import RowsWatcher, run_rows

ANSWERS = "accuracy/answers.parquet"  # in a run folder: rows of the dataset with the ids of their answers
_FACTS = b"mlperf_accuracy_run"  # key in its schema: _Facts as JSON
_TRIAL = ("trial_s", "repeats_ids")  # of a trial request; they differ each time


class AccuracyWatcher(RowsWatcher, Protocol):
    """Receives the progress of an accuracy run."""

    def graded(self, done: int, total: int, what: str) -> None:
        """Called after each output, and after each program that was run."""


class AccuracyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the accuracy runs of all points share: everything is read and checked before the first."""

    options: ClientOptions
    """``max_concurrency`` is of a run with all rows at once"""
    benchmark: Benchmark
    samples: SampleSet
    """all that are sent: fewer than the dataset has in a rehearsal of the forms"""
    table: Table
    """the dataset's rows"""
    grading: EvaluationOptions
    """of any point; ``mlperf_log`` is that of none"""

    def first(self, rows: int) -> "AccuracyPlan":
        """The same with the first rows only, for a rehearsal of the forms."""
        samples, grading = self.samples.part(0, rows), replace(self.grading, first_rows=rows)
        return structs.replace(self, samples=samples, grading=grading)

    def held(self, most: int) -> "AccuracyPlan":
        """The same for a client that holds this number of requests in flight."""
        return structs.replace(self, options=replace(self.options, max_concurrency=most))

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and answer, which the embedded engine must be able to hold."""
        official = official_parameters(self.benchmark, accuracy=True)
        generation = resolve_generation(self.options, official, timed=True)
        return self.samples.longest(generation.parameters.max_new_tokens)


def plan_accuracy(options: RehearsalOptions) -> AccuracyPlan | None:
    """Read the accuracy dataset and its references, and check that outputs of it can be graded here.

    None without an accuracy dataset. Raises ConfigError, DatasetError and GradingError.
    """
    if (dataset := options.accuracy_file) is None:
        return None
    benchmark = load_benchmark(options.benchmark, options.round)
    samples = load_samples(dataset, vocabulary_size=benchmark.vocabulary_size)
    grading = EvaluationOptions(
        mlperf_log=dataset,
        reference_data=options.reference_data or dataset,
        tokenizer=options.tokenizer or tokenizer_beside(dataset, benchmark),
        lcb_data=options.lcb_data,
        allow_unsandboxed=options.allow_unsandboxed,
        benchmark=benchmark.name,
        round=options.round,
    )
    require_gradable(grading, len(samples))
    options = replace(options, resume=False, restart=False, warnings=())
    return AccuracyPlan(
        options=options, benchmark=benchmark, samples=samples, table=open_table(dataset), grading=grading
    )


def run_accuracy(
    plan: AccuracyPlan, point: Point, folder: Path, serving: Serving, watcher: AccuracyWatcher
) -> PointAccuracy:
    """Answer the accuracy dataset, score it and write accuracy_results.json into the point's run folder.

    ``serving``: the servers of the performance run, still running. Raises RunError where samples are left
    without an answer and InterruptedRun on a signal, after which the same call continues; HarnessError for
    whatever keeps it from starting or from being scored.
    """
    rows = _rows_of(plan, point, folder)
    answers = _AnswerTable(rows, plan, _servers_of_point(folder))
    with signals_kept():
        result = run_rows(rows, answers, _Watched(watcher, answers), serving=serving)
    _require_answers(result, point)
    before = _scored_before(folder, rows.output, plan) if result.was_complete else None
    if before is not None:
        return before
    scored = _scored(replace(plan.grading, mlperf_log=rows.output), watcher.graded)
    write_accuracy(folder, _entry(plan, rows.output, scored))
    found = read_accuracy(folder, plan.benchmark)
    assert found is not None  # it was just written
    return found


def _rows_of(plan: AccuracyPlan, point: Point, folder: Path) -> EvalPlan:
    """The rows as run_eval.py would send them, with the concurrency and the streaming of the point."""
    at_once, rows = point.offline == "dedicated", len(plan.samples)
    held = min(rows, plan.options.max_concurrency or rows) if at_once else point.concurrency
    options = replace(plan.options, max_concurrency=held)
    official = official_parameters(plan.benchmark, accuracy=True)
    generation = resolve_generation(options, official, timed=not at_once)
    streams = generation.parameters.stream
    output = (folder / ANSWERS).absolute()
    client = resolve_client(
        options,
        plan.benchmark,
        plan.samples.path,
        generation.parameters,
        resolve_policy(options, streams=streams, most_failures=FAILURES_OF_ACCURACY),
        run_folder(output),
        deviations=(*round_deviations(plan.benchmark), *generation.deviations),
        warnings=generation.warnings,
    )
    return EvalPlan(client=client, output=output, as_measured=not at_once)


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the table of answers says of the run that made them."""

    concurrency: int | None
    elapsed_s: float
    """from the first request to the last answer, of all attempts"""
    deviations: tuple[str, ...]


def _facts(answers: Path) -> _Facts:
    """Raises OSError and ValueError for a table that no accuracy run has written."""
    return msgspec.json.decode((pq.read_schema(answers).metadata or {}).get(_FACTS, b""), type=_Facts)


class _AnswerTable(OutputTable):
    """The ids of all answers beside the dataset's rows; it is written once every row has its answer."""

    def __init__(self, rows: EvalPlan, plan: AccuracyPlan, of_point: Sequence[ServerInfo]) -> None:
        super().__init__(rows)
        self._concurrency = rows.client.max_concurrency
        self._of_point, self._samples, self._table = of_point, plan.samples, plan.table
        self._others: tuple[str, ...] = ()

    def read(self) -> SampleSet:
        """The prompts, which are read once for all points."""
        return self._samples

    def settings_in(self, path: Path) -> EvalSettings | None:
        """The settings of an accuracy run; None for a table that none has written.

        Raises ConfigError for a damaged file, and for one of another concurrency.
        """
        settings = super().settings_in(path)
        try:
            facts = _facts(path)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if facts.concurrency != self._concurrency:
            raise ConfigError(
                f"{path}: answers at {facts.concurrency} requests in flight, expected {self._concurrency}; "
                "move it to another folder and repeat the command, which asks for them again"
            )
        return settings

    def warnings(self) -> tuple[str, ...]:
        """None: no texts are written."""
        return ()

    def served_by(self, servers: Sequence[ServerInfo]) -> tuple[str, ...]:
        """A line for each server that is not as it was in the performance run."""
        before = {server.url: server for server in self._of_point}
        self._others = tuple(
            f"accuracy at other servers than the point's: {text}"
            for server in servers
            if before
            for text in _differences(before.get(server.url), server)
        )
        return self._others

    def write(self, result: EvalResult, settings: EvalSettings, on_row: Callable[[int], None]) -> EvalResult:
        """Write every row with its answer; nothing where one has none. Raises OSError."""
        if result.failures:
            return result
        deviations = (*result.plan.client.deviations, *self._others)
        facts = _Facts(concurrency=self._concurrency, elapsed_s=result.elapsed_s, deviations=deviations)

        def length(index: int) -> int:
            on_row(index + 1)
            return result.answers[index].count

        columns = (
            NewColumn(TEXT, "string", lambda index: None),
            NewColumn(IDS, "ids", lambda index: result.answers[index].output_ids()),
            NewColumn(LENGTH, "int32", length),
        )
        metadata = {
            METADATA: msgspec.json.encode(settings).decode(),
            _FACTS.decode(): msgspec.json.encode(facts).decode(),
        }
        write_extended(result.plan.output, self._table, range(result.samples), columns, metadata)
        return structs.replace(result, written=True)


def _differences(before: ServerInfo | None, now: ServerInfo) -> list[str]:
    if before is None:
        return [now.url]
    was, is_now = (msgspec.to_builtins(server) for server in (before, now))
    names = [name for name in ServerInfo.__struct_fields__ if name not in _TRIAL]
    return [f"{now.url}: {text}" for name in names for text in differences(name, was[name], is_now[name])]


class _Watched(msgspec.Struct, frozen=True):
    """Shows the caller's watcher what differs from the performance run, too."""

    watcher: AccuracyWatcher
    answers: _AnswerTable

    def earlier(self, first_line: str) -> None:
        self.watcher.earlier(first_line)

    def plan(
        self, plan: EvalPlan, samples: int, kept: int, servers: Sequence[ServerInfo], warnings: Sequence[str]
    ) -> None:
        others = self.answers.served_by(servers)
        self.watcher.plan(plan, samples, kept, servers, (*warnings, *others))

    def progress(self, snapshot: ProgressSnapshot) -> None:
        self.watcher.progress(snapshot)

    def written(self, done: int, total: int) -> None:
        self.watcher.written(done, total)


def _servers_of_point(folder: Path) -> tuple[ServerInfo, ...]:
    """The servers of the performance run; none where it left no record that can be read."""
    try:
        run = read_point_run(folder)
    except ConfigError:
        return ()
    return () if run is None else run.servers


def _require_answers(result: EvalResult, point: Point) -> None:
    """Raise RunError or InterruptedRun where a sample has no answer."""
    require_no_signal(result.interrupted_by)
    if result.was_complete or (result.is_complete and not result.failures):
        return
    left = result.samples - len(result.answers)
    kinds = by_kind(result.failure_kinds)
    why = "; ".join(filter(None, (*result.errors, kinds and f"failed: {kinds}")))
    raise RunError(
        f"accuracy of {point.name}: {left} of {result.samples} samples have no answer ({why}); the same "
        "command sends them again and keeps the others"
    )


def _scored(grading: EvaluationOptions, progress: Progress) -> ScoredLog:
    """Grade the answers; a signal leaves the verdicts on programs for the next call."""
    try:
        with signals_kept(), interruptible():
            return score(grading, progress)
    except InterruptedRun as interruption:
        interruption.add_note(kept_verdicts(grading))
        raise


def _scored_before(folder: Path, answers: Path, plan: AccuracyPlan) -> PointAccuracy | None:
    """The score of these answers by these references, where an earlier call has written it."""
    try:
        found = read_accuracy(folder, plan.benchmark)
    except ConfigError:
        return None
    if found is None or found.reference_data != str(plan.grading.references):
        return None
    return found if found.answers_sha256 == sha256_of(answers) else None


def _entry(plan: AccuracyPlan, answers: Path, scored: ScoredLog) -> dict[str, Any]:
    """The entry of accuracy_results.json.

    One for all data sets: their rows were sent in one run, which has one duration, and the repeats are rows.
    """
    facts, evaluation, target, samples = _facts(answers), scored.evaluation, scored.result, len(plan.samples)
    empty = sum(one.logged is not None and one.logged.defect is Reason.EMPTY for one in evaluation.graded)
    rule, lengths = plan.benchmark.dataset(accuracy=True), evaluation.lengths
    return {
        "dataset_name": plan.samples.path.stem,
        "extractor": f"{plan.benchmark.name}, {target.mode} rules",
        "ground_truth_column": open_table(plan.grading.references).first_column(rule.truth_columns),
        "reference_data": str(plan.grading.references),
        "answers_sha256": sha256_of(answers),
        "score": as_shares({metric.name: metric.value for metric in target.metrics}, plan.benchmark),
        "unit_samples": samples,
        "num_repeats": 1,
        "total_samples": samples,
        "duration_s": round(facts.elapsed_s, 3),
        "complete": samples >= rule.samples,
        "dataset_type": "accuracy",
        "response_counts": {"issued": samples, "scored": samples - empty, "empty": empty, "missing": 0},
        "breakdown": {
            "subset_scores": {name: part.accuracy for name, part in target.score.datasets.items()},
            "total_samples": samples,
        },
        "concurrency": facts.concurrency,
        "output_tokens": {"mean": lengths.mean, "min": lengths.shortest, "max": lengths.longest},
        "warnings": list(target.warnings),
        "deviations": list(facts.deviations),
    }
