"""The end of a run: read its files, decide its verdict, write requests.parquet and run.json."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from harness.analysis.client_overhead import (
    ClientReadings,
    client_load,
    client_share,
    mean_schedule_lag,
)
from harness.analysis.diagnosis import diagnoses, waiting_part
from harness.analysis.encoded_answers import text_reasons, with_counts
from harness.analysis.outages import outage_reasons
from harness.analysis.plan_evidence import is_refuted
from harness.analysis.replicas import replica_balance
from harness.analysis.run_warnings import run_warnings
from harness.analysis.server_load import read_samples, server_load
from harness.analysis.statistics import completed, first_issue_ns, of_this_attempt, statistics, tokens
from harness.analysis.verdict import clock_reasons, hidden_misses, run_verdict
from harness.cli.commands import shown, start_of
from harness.cli.signals import SignalName
from harness.config.plans import RunPlan
from harness.defects import Defects
from harness.errors import DatasetError, machine_failure, unwritten
from harness.files import (
    ACCURACY_LOG,
    DETAIL,
    JOURNAL_DIR,
    REQUESTS,
    RUN_RECORD,
    SERVER_METRICS,
    SUMMARY,
    sha256_of,
    sync_to_disk,
)
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES
from harness.loadgen_logs.integrity import loadgen_file_errors, setting_errors, settings_in_force
from harness.loadgen_logs.summary_and_detail import LoadgenDetail, LoadgenSummary, read_detail, read_summary
from harness.record.journal import (
    COMPLETE,
    FAILED,
    FIRST_TOKEN,
    Journal,
    Rows,
    lost_rows,
    read_counts,
    read_journal,
    read_loadgen_calls,
)
from harness.record.outcome import FailureKind
from harness.record.output_dir import free_reserve
from harness.record.replica_figures import Straggler
from harness.record.requests_table import ByQuery, requests_table, write_requests
from harness.record.run_events import SeenEvent
from harness.record.run_record import EncodedAnswers, ReplicaNetwork, RunRecord, RunVerdict, ServerLoad
from harness.record.server_changes import ServerChange, counted_changes
from harness.text import counted

_EXAMPLES = 3


class Observations(msgspec.Struct, frozen=True):
    """The supervisor's observations while LoadGen ran, in addition to the run's files."""

    issued: int = 0
    """LoadGen's samples"""
    lost: Sequence[tuple[int, int]] = ()
    """queries lost with a worker: id and sample index"""
    errors: Sequence[str] = ()
    """reasons for which the run is INVALID"""
    warnings: Sequence[str] = ()
    interrupted_by: SignalName | None = None
    """the signal"""
    client: ClientReadings = ClientReadings()
    cpu_s: float | None = None
    """CPU time of its processes over the test"""
    clock_steps_ns: int = 0
    """the sum of the wall clock's steps while queries ran"""
    slewed_ns: int = 0
    """by how much this machine's corrected clocks were fast over the test; negative: slow"""
    network: Sequence[ReplicaNetwork] = ()
    """a value for each server"""
    without_metrics: Mapping[str, str] | None = None
    """servers that have no metrics, and why; None where they were not asked"""
    stragglers: tuple[Straggler, ...] | None = None
    """as in ReplicaBalance"""
    changes: tuple[ServerChange, ...] = ()
    """servers that were asked again and named another model or version"""
    events: Sequence[SeenEvent] = ()
    outages: Sequence[str] = ()
    """those of the warnings that are about servers out of use"""
    cannot_be_valid: str = ""
    """why the run was ended before its end: it could no longer become VALID"""


class _RunFiles(msgspec.Struct, frozen=True):
    """The journal and LoadGen's logs, as the run left them."""

    journal: Journal
    rows: Rows
    """rows of the journal, and of the queries that were lost"""
    calls: Rows
    loadgen: LoadgenSummary
    detail: LoadgenDetail
    counts: Rows
    """of answers that came as text"""

    @property
    def own_calls(self) -> Rows:
        """The calls without those for answers of an earlier attempt, which did not arrive in this one."""
        resumed = self.rows["query_id"][self.rows["resumed"] == 1]
        calls: Rows = self.calls[~np.isin(self.calls["query_id"], resumed)]
        return calls

    def calls_at_once(self, encoded: EncodedAnswers | None) -> Rows:
        """The calls that nothing but the client delays: not the ends of texts, which are encoded.

        Nor those of failures, which may have no bytes.
        """
        calls = self.own_calls
        kinds = calls["kind"]
        at_once: Rows = calls[kinds != FAILED if encoded is None else kinds == FIRST_TOKEN]
        return at_once


def finish(record: RunRecord, seen: Observations) -> RunRecord:
    """The record of a run that has ended; writes requests.parquet and run.json beside LoadGen's logs.

    A file that cannot be written is a reason of the verdict, but for requests.parquet: it can be made later.
    So is a machine that does not let the files be read: without a verdict the run would look killed.
    """
    plan, defects = record.plan, Defects()
    verdict: RunVerdict | None = None
    unsynced = _unsynced(plan.client.log_dir)
    files: _RunFiles | None = None
    without: tuple[str, ...] = ()
    written = False
    try:
        with defects.cost("verdict"):
            files = _read(plan.client.log_dir, seen.lost)
            with defects.cost(REQUESTS):
                without = _without_requests(record, files)
                written = not without
            record = _explained(_measured(record, seen, files), seen, files, defects)
            verdict = _verdict(record, seen, files, unsynced)
    except (OSError, MemoryError) as error:
        files = None
        why = f"no verdict: {machine_failure(error)}; LoadGen's logs are as it wrote them"
        verdict = RunVerdict("INVALID", (why,))
    verdict = verdict or RunVerdict("INVALID", defects.found[-1:])
    record = replace(
        record,
        ended=datetime.now(UTC),
        verdict=verdict,
        interrupted_by=seen.interrupted_by,
        files=_files(plan, without=() if written else (REQUESTS,)),
        warnings=(*record.warnings, *without),
    )
    record = replace(record, warnings=_warnings(record.warnings, seen, verdict.result))
    if files is not None:
        with defects.cost("warnings about its figures"):
            more = (files.journal.time_limit, *run_warnings(record, files.rows))
            record = replace(record, warnings=(*record.warnings, *filter(None, more)))
    record = replace(record, warnings=(*record.warnings, *defects.found))
    if errors := _unwritten(plan.client.log_dir / RUN_RECORD, lambda: _write(record)):
        record = replace(record, verdict=_without_record(verdict, errors))
    return record


def _without_requests(record: RunRecord, files: _RunFiles) -> tuple[str, ...]:
    """Write requests.parquet; the warning where that fails."""
    log_dir = record.plan.client.log_dir
    try:
        write_requests(log_dir / REQUESTS, _requests(record, files))
    except (OSError, MemoryError) as error:
        command = shlex.join((*start_of("report.py"), "show", str(shown(log_dir))))
        return (
            f"no {REQUESTS}, which no figure of the run needs: {machine_failure(error)}; then {command} "
            "makes it from the journal",
        )
    return ()


def add_requests(folder: Path, record: RunRecord) -> None:
    """Write the requests.parquet of an ended run that has none, where its journal has all rows.

    Raises OSError.
    """
    if record.statistics is None:
        return
    files = _read(folder, ())
    if 0 < len(files.rows) == record.statistics.queries:
        write_requests(folder / REQUESTS, _requests(record, files))


def _requests(record: RunRecord, files: _RunFiles) -> pa.Table:
    urls = [server.url for server in record.servers]
    tokenizer = None if record.encoded is None else record.encoded.tokenizer
    return requests_table(files.rows, urls, files.journal.details, _by_query(record, files), tokenizer)


def _by_query(record: RunRecord, files: _RunFiles) -> Iterator[ByQuery]:
    """When LoadGen got first tokens and ends, and the servers' own counts of texts."""
    if len(files.calls):
        for name, kinds in (("reported_first_ns", (FIRST_TOKEN,)), ("reported_done_ns", (COMPLETE, FAILED))):
            calls = files.calls[np.isin(files.calls["kind"], kinds)]
            yield ByQuery(calls["query_id"], {name: calls["reported_ns"]})
    if record.encoded is not None:
        yield ByQuery(files.counts["query_id"], {"counted": files.counts["counted"]})


def _warnings(until_now: Sequence[str], seen: Observations, result: str) -> tuple[str, ...]:
    """Those until now, but for those about servers out of use where the verdict names them, and for what
    the plan was said to miss and a VALID run did not.
    """
    before = (warning for warning in until_now if not (result == "VALID" and is_refuted(warning)))
    named = seen.outages if result == "INVALID" else ()
    kept = (warning for warning in seen.warnings if warning not in named)
    return (*before, *kept)


def _read(log_dir: Path, lost: Sequence[tuple[int, int]]) -> _RunFiles:
    journal = read_journal(log_dir / JOURNAL_DIR)
    return _RunFiles(
        journal,
        _with_lost(journal.rows, lost),
        read_loadgen_calls(log_dir / JOURNAL_DIR),
        read_summary(log_dir / SUMMARY),
        read_detail(log_dir / DETAIL),
        read_counts(log_dir / JOURNAL_DIR),
    )


def _measured(record: RunRecord, seen: Observations, files: _RunFiles) -> RunRecord:
    """The record with everything that its verdict is about."""
    rows, stats, start_ns = files.rows, statistics(files.rows), first_issue_ns(files.rows)
    return replace(
        record,
        events=tuple(event.since(start_ns) for event in seen.events),
        statistics=stats,
        unanswered=seen.issued - stats.queries,
        failure_examples=_examples(rows, files.journal.details),
        loadgen=files.loadgen,
        loadgen_messages=tuple(_messages(files.detail)),
        settings_in_force=settings_in_force(files.detail),
        client_cpu_s=seen.cpu_s,
        encoded=None
        if record.encoded is None
        else with_counts(record.encoded, files.counts, files.own_calls),
        changed=counted_changes(rows, seen.changes),
        accuracy_log_sha256=_digest_of_answers(record.plan.client.log_dir / ACCURACY_LOG),
    )


def _digest_of_answers(log: Path) -> str:
    """As in the record; "" for a log that cannot be read, which is a reason of the verdict."""
    with suppress(OSError):
        return sha256_of(log) if log.stat().st_size > EMPTY_LOG_BYTES else ""
    return ""


def _explained(record: RunRecord, seen: Observations, files: _RunFiles, defects: Defects) -> RunRecord:
    """The record with what explains its figures; a part that fails is missing."""
    rows, calls = files.rows, files.calls_at_once(record.encoded)
    urls = [server.url for server in record.servers]
    parts: dict[str, Callable[[], Any]] = {
        "client_load": lambda: client_load(
            seen.client, calls, first_issue_ns(rows), record.judged_limits_ns.get("TTFT")
        ),
        "client_share": lambda: client_share(calls),
        "schedule_lag_mean_ns": lambda: mean_schedule_lag(rows, files.calls, files.loadgen.figures),
        "network": lambda: dict(zip(urls, seen.network, strict=False)),
        "balance": lambda: replica_balance(rows, urls, seen.stragglers),
        "server_load": lambda: _server_load(record.plan, seen.without_metrics, rows),
        "diagnoses": lambda: tuple(diagnoses(rows)),
    }
    for name, find in parts.items():
        with defects.cost(f"{name} in {RUN_RECORD}"):
            record = replace(record, **{name: find()})
    return record


def _server_load(plan: RunPlan, without: Mapping[str, str] | None, rows: Rows) -> ServerLoad | None:
    if without is None:
        return None
    path = plan.client.log_dir / SERVER_METRICS
    try:
        samples = read_samples(path)
    except (FileNotFoundError, DatasetError):
        return ServerLoad(rounds=0, servers=0, without=dict(without))
    # The energy of answers of an earlier attempt was not measured in this one.
    own_tokens = tokens(of_this_attempt(completed(rows)))
    return server_load(samples, without, plan.scenario, own_tokens, waiting=waiting_part(rows))


def _verdict(
    record: RunRecord, seen: Observations, files: _RunFiles, unsynced: tuple[str, ...]
) -> RunVerdict:
    if seen.interrupted_by:
        reason = f"ended by {seen.interrupted_by} before LoadGen was done"
        return RunVerdict("INTERRUPTED", (reason, *unsynced))
    plan = record.plan
    changed = (change.doubt for change in record.changed if change.answers)
    errors = (*seen.errors, *changed, *_broken(files.journal), *text_reasons(record.encoded), *unsynced)
    lost = (f"lost: {seen.cannot_be_valid}",) if seen.cannot_be_valid else ()
    logs = (
        *setting_errors(files.detail, record.settled.loadgen_settings, accuracy=plan.accuracy),
        *loadgen_file_errors(
            plan.client.log_dir,
            files.detail,
            accuracy=plan.accuracy,
            samples=record.settled.samples,
            cause_known=bool(errors or lost),
        ),
    )
    clock = (
        *clock_reasons(files.detail, files.calls, first_issue_ns(files.rows), seen.slewed_ns),
        *hidden_misses(record, files.rows, seen.clock_steps_ns),
    )
    verdict = run_verdict(record, files.rows, seen.issued, (*lost, *errors), clock, logs)
    if verdict.result == "VALID":
        return verdict
    # Why the run was ended comes before the outages, and these before what followed from them.
    others = verdict.reasons[len(verdict.ended_by) :]
    return replace(verdict, reasons=(*verdict.ended_by, *outage_reasons(record.events), *others))


def _with_lost(rows: Rows, lost: Sequence[tuple[int, int]]) -> Rows:
    """The rows with those of lost queries in place of their own: LoadGen got a failure for each of them."""
    if not lost:
        return rows
    gone = lost_rows(lost)
    return np.concatenate([rows[~np.isin(rows["query_id"], gone["query_id"])], gone])


def _broken(journal: Journal) -> tuple[str, ...]:
    if not journal.broken:
        return ()
    return (f"{counted(journal.broken, 'row')} of the journal damaged",)


def _unwritten(path: Path, write: Callable[[], None]) -> tuple[str, ...]:
    """The reason why a file of the run could not be written; the other files are still written."""
    try:
        write()
    except OSError as error:
        return (unwritten(path, error),)
    return ()


def _unsynced(log_dir: Path) -> tuple[str, ...]:
    """Why the disk has not taken LoadGen's files: what is read of them can be the kernel's copy alone."""
    paths = [log_dir / name for name in (SUMMARY, DETAIL, ACCURACY_LOG)]
    there = [path for path in paths if path.is_file()]  # missing ones are another reason
    return tuple(reason for path in there for reason in _unwritten(path, partial(sync_to_disk, path)))


def _write(record: RunRecord) -> None:
    free_reserve(record.plan.client.log_dir)
    record.write(record.plan.client.log_dir / RUN_RECORD)


def _without_record(verdict: RunVerdict, errors: tuple[str, ...]) -> RunVerdict:
    """The verdict on a run whose record is not on disk, which is never VALID."""
    result = "INVALID" if verdict.result == "VALID" else verdict.result
    return RunVerdict(result, (*verdict.reasons, *errors))


def _examples(rows: Rows, details: Mapping[int, str]) -> dict[str, tuple[str, ...]]:
    """Some details of each kind of failure."""
    found: dict[str, tuple[str, ...]] = {}
    failed = rows[rows["failure"] > 0]
    for kind in FailureKind:
        ids = failed["query_id"][failed["failure"] == kind].tolist()
        shown = [details[query_id] for query_id in ids[: 10 * _EXAMPLES] if query_id in details]
        if shown:
            found[kind.label] = tuple(dict.fromkeys(shown))[:_EXAMPLES]
    return found


def _messages(detail: LoadgenDetail) -> Iterator[str]:
    """``12 x message``, errors before warnings."""
    for messages in (detail.errors, detail.warnings):
        most = sorted(messages.items(), key=lambda item: -item[1])[:_EXAMPLES]
        for text, count in most:
            yield text if count == 1 else f"{count:,} x {text}"


def _files(plan: RunPlan, without: Sequence[str]) -> dict[str, str]:
    names = {"run record": RUN_RECORD, "requests": REQUESTS, "LoadGen": SUMMARY}
    if plan.accuracy:
        names["accuracy log"] = ACCURACY_LOG
    return {label: str(plan.client.log_dir / name) for label, name in names.items() if name not in without}
