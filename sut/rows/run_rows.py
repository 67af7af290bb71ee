"""Rows of prompts through the client, without LoadGen: check, send, write the file of the answers."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from harness.analysis.encoded_answers import encoded_with, text_reasons, text_warnings, with_counts
from harness.analysis.finish_run import Observations
from harness.cli.signals import interruptible
from harness.config.protocol import prompts_of
from harness.dataset.samples import SampleSet
from harness.errors import ConfigError, unwritten
from harness.files import JOURNAL_DIR, require_other
from harness.progress.progress_files import ProgressLine
from harness.progress.progress_line import ProgressSnapshot
from harness.record.answer_log import SavedAnswer
from harness.record.journal import COUNT_ROW, read_journal
from harness.record.repeated import ANEW
from harness.record.resume import EarlierRun, saved_answers
from harness.record.run_record import EncodedAnswers
from harness.record.server_changes import counted_changes
from harness.record.settled import ServerInfo
from harness.rows import attempts
from harness.rows.attempts import EvalSettings
from harness.rows.eval_plan import EvalPlan
from harness.rows.eval_result import EvalResult
from sut.drive import DrivenRun, Serving, ask_servers, ended, preflight, serving_urls, tried_in_dry_run
from sut.issuers.rows import RowsInOrder
from sut.prepare import as_sent, place_workers, prepare_client
from sut.supervisor.placement import Load
from sut.supervisor.progress_meter import RunLength
from sut.supervisor.session import QuerySession


class RowsWatcher(Protocol):
    """Receives the progress of a run."""

    def earlier(self, first_line: str) -> None:
        """Called first, where an earlier run has left something."""

    def plan(
        self, plan: EvalPlan, samples: int, kept: int, servers: Sequence[ServerInfo], warnings: Sequence[str]
    ) -> None:
        """Everything is checked, nothing was sent yet."""

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Called about once a second."""

    def written(self, done: int, total: int) -> None:
        """Called after each row of the file."""


class RowFiles(Protocol):
    """The file of the prompts, and the one of their answers."""

    def read(self) -> SampleSet:
        """The prompts. Raises ConfigError and DatasetError, also where the answers could not be written."""

    def settings_in(self, path: Path) -> EvalSettings | None:
        """The settings that a complete file of answers names, None where it cannot. Raises ConfigError."""

    def warnings(self) -> Sequence[str]:
        """Warnings about the prompts, before anything is sent."""

    def write(self, result: EvalResult, settings: EvalSettings, on_row: Callable[[int], None]) -> EvalResult:
        """Write the answers once every row has one, or its failure; ``on_row`` gets the rows done."""


class _Rows(msgspec.Struct, frozen=True):
    """Prompts that are sent, and answers that an earlier attempt has left."""

    samples: SampleSet
    kept: Mapping[int, SavedAnswer]
    earlier: EarlierRun | None

    @property
    def is_continued(self) -> bool:
        """Whether they are the rows of an earlier run."""
        return self.earlier is not None and self.earlier.course == "continue"

    @property
    def left(self) -> list[int]:
        """The samples to send."""
        return [index for index in range(len(self.samples)) if index not in self.kept]


def run_rows(
    plan: EvalPlan,
    files: RowFiles,
    watcher: RowsWatcher,
    on_line: Callable[[ProgressLine], None] = lambda line: None,
    serving: Serving | None = None,
) -> EvalResult:
    """Answer the rows and write the file. Also returns for interrupted runs and failed rows.

    ``on_line`` is called with each line of progress.jsonl. ``serving``: servers that are there for several
    runs; None: the plan's.

    Raises HarnessError where the run cannot start.
    """
    rows = _read(plan, files)
    if rows.earlier is not None:
        watcher.earlier(rows.earlier.first_line)
        if rows.earlier.course == "complete":
            return replace(_unsent(plan, rows), was_complete=True)
    warnings = (*plan.client.warnings, *plan.client.deviations, *files.warnings())
    if rows.left:
        result, settings = _send(plan, files, rows, warnings, watcher, on_line, serving)
    else:  # killed while the file was written
        settings = _same_run(plan, rows, None)[0]
        unfit = _text_errors(_with_texts(_encoded_in(settings), rows.kept))
        result = replace(_unsent(plan, rows), errors=unfit, is_unfit=bool(unfit))
    if plan.client.dry_run or result.interrupted_by or not result.is_complete:
        return result
    with attempts.locked(plan.folder):
        try:
            result = files.write(result, settings, lambda done: watcher.written(done, result.samples))
        except OSError as error:  # every answer is kept: the same command writes the file
            return replace(result, errors=(*result.errors, unwritten(plan.output, error)))
        if not result.failures and not result.errors:
            attempts.remove(plan.folder)  # the file has all of it
    return result


def _unsent(plan: EvalPlan, rows: _Rows) -> EvalResult:
    """The answers of earlier attempts alone."""
    return EvalResult(
        plan=plan,
        samples=len(rows.samples),
        kept=len(rows.kept),
        answers=rows.kept,
        failures={},
        elapsed_s=attempts.elapsed_s(plan.folder),
    )


def _read(plan: EvalPlan, files: RowFiles) -> _Rows:
    """Check all that can be checked without a server. Raises ConfigError and DatasetError."""
    samples = files.read()
    require_other(plan.output, plan.client.input_file)
    attempts.require_writable(plan.output)
    earlier = _earlier(plan, files, samples)
    if earlier is None or earlier.course != "continue":
        return _Rows(samples, {}, earlier)
    return _Rows(samples, saved_answers(plan.folder, len(samples)), earlier)


def _earlier(plan: EvalPlan, files: RowFiles, samples: SampleSet) -> EarlierRun | None:
    settings = _settings(plan, samples, None)
    return attempts.earlier_rows(plan.output, plan.folder, settings, plan.client, files.settings_in)


def _check_unfinished(plan: EvalPlan, files: RowFiles, rows: _Rows) -> None:
    """Raise ConfigError if another run has written the file since ``_read``."""
    if _earlier(plan, files, rows.samples) != rows.earlier:
        raise ConfigError(
            f"another run has begun or written {plan.output} since this one began; repeat the command when "
            "it has ended"
        )
    if rows.earlier is not None and not rows.is_continued:
        attempts.move_aside(plan.output, plan.folder)


def _send(
    plan: EvalPlan,
    files: RowFiles,
    rows: _Rows,
    warnings: Sequence[str],
    watcher: RowsWatcher,
    on_line: Callable[[ProgressLine], None],
    serving: Serving | None,
) -> tuple[EvalResult, EvalSettings]:
    """Send the rows without an answer; the journal keeps every answer."""
    client, samples = plan.client, as_sent(plan.client, rows.samples, plan.skip)
    load = Load(open_at_most=client.max_concurrency, all_at_once=True, as_measured=plan.as_measured)
    placement = place_workers(client, load)
    there = serving_urls(client, samples) if serving is None else nullcontext(serving)
    with interruptible(), there as (urls, death):
        servers = ask_servers(client, urls)
        prepared = prepare_client(client, samples, load, placement, servers)
        settings, changes = _same_run(plan, rows, prepared.servers[0])
        warnings = (*warnings, *prepared.deviations, *prepared.warnings, *changes)
        watcher.plan(plan, len(samples), len(rows.kept), prepared.servers, warnings)
        if client.dry_run:
            tried_in_dry_run(prepared)
            return _unsent(plan, rows), settings
        began = time.monotonic()
        prepared, destination, more = preflight(prepared)
        warm_up_s = time.monotonic() - began
        encoded = encoded_with(destination.tokenizer)
        settings = attempts.answered(plan.folder, settings, destination.protocol.answers, encoded)
        _check_unfinished(plan, files, rows)  # the server may have taken minutes for the trial request
        with attempts.locked(plan.folder):
            attempts.write_settings(plan.folder, settings)
            attempt = attempts.next_attempt(plan.folder)
            journaled = replace(client, log_dir=attempt)
            prepared = replace(prepared, plan=journaled)
            with QuerySession(journaled, RowsInOrder(rows.left), prepared.placement) as session:
                length = RunLength(len(rows.left))
                driven = DrivenRun(
                    session,
                    prepared,
                    destination,
                    death,
                    length,
                    on_progress=watcher.progress,
                    on_line=on_line,
                )
                with ended(driven) as seen:
                    result = _ended_with(plan, rows, attempt, seen, encoded)
    warnings = (*more, *result.warnings)
    return replace(result, warnings=warnings, warm_up_s=warm_up_s), settings


def _ended_with(
    plan: EvalPlan, rows: _Rows, attempt: Path, seen: Observations, encoded: EncodedAnswers | None
) -> EvalResult:
    answers = saved_answers(plan.folder, len(rows.samples))
    encoded = _with_texts(encoded, answers)
    changes = counted_changes(read_journal(attempt / JOURNAL_DIR).rows, seen.changes)
    in_doubt = (
        f"{change.doubt}, then repeat the command, which sends them again"
        for change in changes
        if change.answers
    )
    unfit = _text_errors(encoded)
    return replace(
        _unsent(plan, rows),
        answers=answers,
        failures=attempts.failures(attempt, seen.lost, answers),
        errors=(*seen.errors, *in_doubt, *unfit),
        is_unfit=bool(unfit),
        warnings=(*seen.warnings, *text_warnings(encoded)),
        interrupted_by=seen.interrupted_by,
    )


def _encoded_in(settings: EvalSettings) -> EncodedAnswers | None:
    """What is known of texts without a server: the name of their tokenizer is not."""
    sha256 = settings.tokenizer_sha256
    return None if sha256 is None else EncodedAnswers(tokenizer="", tokenizer_sha256=sha256)


def _with_texts(encoded: EncodedAnswers | None, answers: Mapping[int, SavedAnswer]) -> EncodedAnswers | None:
    """With the figures of all texts, those of earlier attempts among them."""
    if encoded is None:
        return None
    counts = [
        (one.sample_index, one.count, one.counted) for one in answers.values() if one.counted is not None
    ]
    return with_counts(encoded, np.array(counts, COUNT_ROW))


def _text_errors(encoded: EncodedAnswers | None) -> tuple[str, ...]:
    """Why the file is not that of complete answers, although every row has one."""
    remedy = f"the answers are kept: mend the cause, then begin anew with {ANEW}"
    return tuple(f"{reason}; {remedy}" for reason in text_reasons(encoded))


def _same_run(plan: EvalPlan, rows: _Rows, server: ServerInfo | None) -> tuple[EvalSettings, Sequence[str]]:
    """The settings, compared with those of the run to resume, and warnings. Raises ConfigError.

    ``server`` None: no row is left to send, and the model is the one that answered.
    """
    earlier = attempts.read_settings(plan.folder) if rows.is_continued else None
    settings = _settings(plan, rows.samples, server or earlier)
    if earlier is None:
        return settings, ()
    settings = replace(settings, answers=earlier.answers, tokenizer_sha256=earlier.tokenizer_sha256)
    return settings, attempts.check_same(plan.folder, earlier, settings)


def _settings(plan: EvalPlan, samples: SampleSet, known: ServerInfo | EvalSettings | None) -> EvalSettings:
    client = plan.client
    return EvalSettings(
        benchmark=client.benchmark.name,
        dataset_sha256=samples.sha256,
        skip=plan.skip,
        samples=len(samples),
        parameters=client.parameters,
        backend=client.backend,
        prompts=prompts_of(client.api),
        model=known.model if known else None,
        weight_version=known.weight_version if known else None,
        version=known.version if known else None,
    )
