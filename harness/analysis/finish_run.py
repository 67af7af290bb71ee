"""The end of a run: reads its files, decides its verdict, writes requests.parquet and run.json."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from harness.analysis.client_overhead import (
    client_load,
    client_share,
    lag_warnings,
    load_warnings,
    mean_schedule_lag,
    share_warnings,
)
from harness.analysis.replicas import replica_balance, straggler_warnings
from harness.analysis.server_load import cache_warnings, read_samples, server_load
from harness.analysis.statistics import completed, statistics
from harness.analysis.verdict import run_verdict
from harness.config.plans import RunPlan
from harness.errors import DatasetError, machine_failure
from harness.files import ACCURACY_LOG, DETAIL, JOURNAL_DIR, REQUESTS, RUN_RECORD, SERVER_METRICS, SUMMARY
from harness.loadgen_logs.integrity import loadgen_file_errors, setting_errors, settings_in_force
from harness.loadgen_logs.summary_and_detail import LoadgenDetail, LoadgenSummary, read_detail, read_summary
from harness.record.journal import (
    COMPLETE,
    FIRST_TOKEN,
    LOADGEN_CALL_ROW,
    Journal,
    Rows,
    lost_rows,
    read_journal,
    read_loadgen_calls,
)
from harness.record.outcome import FailureKind
from harness.record.output_dir import free_reserve
from harness.record.replica_figures import Straggler
from harness.record.requests_table import Reported, requests_table, write_requests
from harness.record.run_record import ReplicaNetwork, RunRecord, RunVerdict, ServerLoad, Statistics
from harness.record.server_changes import ServerChange, counted_changes
from harness.report.network import network_warnings

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Observations:
    """The supervisor's observations while LoadGen ran, in addition to the run's files.

    ``issued``: LoadGen's samples. ``lost``: queries lost with a worker, as in journal.lost_rows. ``errors``
    make the run INVALID, ``warnings`` do not; ``interrupted_by`` names a signal. ``cpu`` has a row for each
    second: CLOCK_MONOTONIC ns, then the CPU ns of LoadGen's process and of each worker; ``cpu_s`` is their
    sum over the test. ``loop_lag_ns`` and ``gc_runs`` as in ClientLoad. ``network``: a value for each server.
    ``without_metrics``: servers that have none, and why; None where they were not asked. ``stragglers`` as in
    ReplicaBalance. ``changes``: servers that were asked again and named another model or version.
    """

    issued: int = 0
    lost: Sequence[tuple[int, int]] = ()
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    interrupted_by: str | None = None
    cpu: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 1), dtype=np.int64))
    cpu_s: float | None = None
    loop_lag_ns: int = 0
    gc_runs: int = 0
    network: Sequence[ReplicaNetwork] = ()
    without_metrics: Mapping[str, str] | None = None
    stragglers: tuple[Straggler, ...] | None = None
    changes: tuple[ServerChange, ...] = ()


@dataclass(frozen=True, slots=True)
class _RunFiles:
    """The journal and LoadGen's logs, as the run left them. ``rows`` include the queries that were lost."""

    journal: Journal
    rows: Rows
    calls: Rows
    loadgen: LoadgenSummary
    detail: LoadgenDetail


def finish(record: RunRecord, seen: Observations) -> RunRecord:
    """The record of a run that has ended; writes requests.parquet and run.json beside LoadGen's logs.

    A file that cannot be written is a reason of the verdict.
    """
    plan, files = record.plan, _read(record.plan.client.log_dir, seen.lost)
    table = requests_table(
        files.rows, [server.url for server in record.servers], files.journal.details, _reported(files.calls)
    )
    unwritten = _unwritten(REQUESTS, lambda: write_requests(plan.client.log_dir / REQUESTS, table))
    record = _measured(record, seen, files)
    record = replace(
        record,
        ended=datetime.now(UTC),
        verdict=_verdict(record, seen, files, unwritten),
        interrupted_by=seen.interrupted_by,
        warnings=(*record.warnings, *seen.warnings, *_warnings(record, files.rows)),
        files=_files(plan),
    )
    if errors := _unwritten(RUN_RECORD, lambda: _write(record)):
        record = replace(record, verdict=_without_record(record.verdict, errors))
    return record


def _read(log_dir: Path, lost: Sequence[tuple[int, int]]) -> _RunFiles:
    journal = read_journal(log_dir / JOURNAL_DIR)
    return _RunFiles(
        journal,
        _with_lost(journal.rows, lost),
        read_loadgen_calls(log_dir / JOURNAL_DIR),
        read_summary(log_dir / SUMMARY),
        read_detail(log_dir / DETAIL),
    )


def _measured(record: RunRecord, seen: Observations, files: _RunFiles) -> RunRecord:
    """The record with everything that was counted and timed."""
    rows, stats = files.rows, statistics(files.rows)
    return replace(
        record,
        statistics=stats,
        unanswered=seen.issued - stats.queries,
        failure_examples=_examples(rows, files.journal.details),
        loadgen=files.loadgen,
        settings_in_force=settings_in_force(files.detail),
        client_cpu_s=seen.cpu_s,
        client_load=client_load(
            seen.cpu,
            files.calls,
            _first_issue(rows),
            record.limits_ns.get("TTFT"),
            loop_lag_ns=seen.loop_lag_ns,
            gc_runs=seen.gc_runs,
        ),
        client_share=client_share(files.calls),
        schedule_lag_mean_ns=mean_schedule_lag(rows, files.calls, files.loadgen.figures),
        network=dict(zip((server.url for server in record.servers), seen.network, strict=False)),
        changed=counted_changes(rows, seen.changes),
        balance=replica_balance(rows, [server.url for server in record.servers], seen.stragglers),
        server_load=_server_load(record.plan, seen.without_metrics, stats.output_tokens),
    )


def _server_load(plan: RunPlan, without: Mapping[str, str] | None, output_tokens: int) -> ServerLoad | None:
    if without is None:
        return None
    try:
        samples = read_samples(plan.client.log_dir / SERVER_METRICS)
    except (FileNotFoundError, DatasetError):
        return ServerLoad(rounds=0, servers=0, without=dict(without))
    return server_load(samples, without, plan.scenario, output_tokens)


def _verdict(
    record: RunRecord, seen: Observations, files: _RunFiles, unwritten: tuple[str, ...]
) -> RunVerdict:
    if seen.interrupted_by:
        reason = f"ended by {seen.interrupted_by} before LoadGen was done"
        return RunVerdict("INTERRUPTED", (reason, *unwritten))
    plan = record.plan
    changed = (change.doubt for change in record.changed if change.answers)
    errors = (*seen.errors, *changed, *_broken(files.journal), *unwritten)
    logs = (
        *setting_errors(files.detail, record.settled.loadgen_settings, accuracy=plan.accuracy),
        *loadgen_file_errors(
            plan.client.log_dir,
            files.detail,
            accuracy=plan.accuracy,
            samples=record.settled.samples,
            cause_known=bool(errors),
        ),
    )
    return run_verdict(record, files.rows, seen.issued, (*errors, *logs))


def _warnings(record: RunRecord, rows: Rows) -> Iterator[str]:
    """Reasons not to rely on the figures of ``record``."""
    limit_ns = record.limits_ns.get("TTFT")
    if record.statistics is not None:
        yield from repeat_warnings(record.statistics)
        measured = limit_ns is not None and not record.plan.accuracy
        yield from stream_warnings(rows, record.statistics, measured=measured)
    yield from share_warnings(record.client_share, limit_ns)
    if record.balance is not None:
        yield from straggler_warnings(record.balance.stragglers or (), len(record.balance.replicas))
    if record.client_load is not None:
        yield from load_warnings(record.client_load)
    yield from lag_warnings(record.schedule_lag_mean_ns, limit_ns)
    yield from network_warnings(record.network)
    if record.server_load is not None:
        yield from cache_warnings(record.server_load)


def _with_lost(rows: Rows, lost: Sequence[tuple[int, int]]) -> Rows:
    """LoadGen's view decides: a query that it logged as failed is failed, whatever the journal has."""
    gone = lost_rows(lost)
    kept: Rows = rows[~np.isin(rows["query_id"], gone["query_id"])]
    return np.concatenate([kept, gone])


def _broken(journal: Journal) -> tuple[str, ...]:
    if not journal.broken:
        return ()
    return (f"{journal.broken} {'row' if journal.broken == 1 else 'rows'} of the journal damaged",)


def _first_issue(rows: Rows) -> int:
    issued = rows["issued_ns"][rows["issued_ns"] > 0]
    return int(issued.min()) if len(issued) else 0


def repeat_warnings(stats: Statistics) -> tuple[str, ...]:
    """Queries that were not answered at the first attempt."""
    lines = []
    if stats.retries:
        lines.append(
            f"{stats.retries} requests were retried; "
            "the latencies of their queries include the failed attempts"
        )
    if stats.resumed:
        lines.append(f"resumed: {stats.resumed} of {stats.queries} answers are of an earlier attempt")
    return tuple(lines)


def stream_warnings(rows: Rows, stats: Statistics, *, measured: bool) -> tuple[str, ...]:
    """A warning where a scenario with limits for tokens got answers that show no token's time."""
    if not measured or not stats.completed:
        return ()
    if stats.ttft is None:
        return (
            "answers were not streamed: LoadGen's TTFT is the latency of the complete answer, and its TPOT "
            "has no meaning",
        )
    good = completed(rows)
    good = good[(good["osl"] >= 2) & (good["resumed"] == 0)]
    at_once = int((good["first_event_tokens"] == good["osl"]).sum())
    if 2 * at_once <= len(good):
        return ()
    return (
        f"{at_once} of {len(good)} answers came in one event (a proxy or the server's stream interval holds "
        "tokens back): their TPOT is 0 and shows no token's time",
    )


def _unwritten(name: str, write: Callable[[], None]) -> tuple[str, ...]:
    """The reason why a file of the run could not be written; the other files are still written."""
    try:
        write()
    except OSError as error:
        return (f"{name} could not be written: {machine_failure(error)}",)
    return ()


def _write(record: RunRecord) -> None:
    free_reserve(record.plan.client.log_dir)
    record.write(record.plan.client.log_dir / RUN_RECORD)


def _without_record(verdict: RunVerdict | None, errors: tuple[str, ...]) -> RunVerdict:
    """A run whose record is not on disk is no valid result."""
    assert verdict is not None
    result = "INVALID" if verdict.result == "VALID" else verdict.result
    return RunVerdict(result, (*verdict.reasons, *errors))


def _reported(calls: Rows) -> Reported | None:
    if not len(calls):
        return None
    first, done = (_by_query(calls, kind) for kind in (FIRST_TOKEN, COMPLETE))
    ids = np.union1d(first["query_id"], done["query_id"])
    times = [np.zeros(len(ids), dtype=np.int64) for _ in range(2)]
    for column, part in zip(times, (first, done), strict=True):
        column[np.searchsorted(ids, part["query_id"])] = part["reported_ns"]
    return Reported(ids, *times)


def _by_query(calls: Rows, kind: int) -> Rows:
    assert calls.dtype == LOADGEN_CALL_ROW
    chosen: Rows = calls[calls["kind"] == kind]
    return chosen


def _examples(rows: Rows, details: Mapping[int, str]) -> dict[str, tuple[str, ...]]:
    """A few details of each kind of failure."""
    found: dict[str, tuple[str, ...]] = {}
    for kind in FailureKind:
        ids = rows["query_id"][rows["failure"] == kind].tolist()
        shown = [details[query_id] for query_id in ids[: 10 * _EXAMPLES] if query_id in details]
        if shown:
            found[kind.label] = tuple(dict.fromkeys(shown))[:_EXAMPLES]
    return found


def _files(plan: RunPlan) -> dict[str, str]:
    names = {"run record": RUN_RECORD, "requests": REQUESTS, "LoadGen": SUMMARY}
    if plan.accuracy:
        names["accuracy log"] = ACCURACY_LOG
    return {label: str(plan.client.log_dir / name) for label, name in names.items()}
