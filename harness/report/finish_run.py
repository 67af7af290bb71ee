"""Closes a run: reads what it left, judges it, writes run.json and requests.parquet, and tells the result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.errors import EXIT_INVALID, EXIT_VALID, machine_failure
from harness.loadgen_logs.integrity import ACCURACY as _ACCURACY
from harness.loadgen_logs.integrity import DETAIL, loadgen_file_problems, setting_problems, settings_in_force
from harness.loadgen_logs.summary_and_detail import read_detail, read_summary, result_lines
from harness.record.journal import (
    COMPLETE,
    FIRST_TOKEN,
    JOURNAL_DIR,
    REPORT_ROW,
    Journal,
    lost_rows,
    read_journal,
    read_reports,
)
from harness.record.outcome import FailureKind
from harness.record.output_dir import release_reserve
from harness.record.requests_table import Reported, requests_table, write_requests
from harness.record.run_record import RunRecord, write_run_record
from harness.record.verdict import Verdict
from harness.report.client_overhead import (
    client_load,
    client_share,
    lag_doubts,
    load_doubts,
    mean_schedule_lag,
    share_doubts,
)
from harness.report.console import RunSummary, render_summary
from harness.report.next_step import resuming_command, scoring_command
from harness.report.statistics import Rows, Statistics, completed, statistics
from harness.report.verdict import Evidence, judge

RUN_RECORD = "run.json"
REQUESTS = "requests.parquet"
_SUMMARY = "mlperf_log_summary.txt"
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Ending:
    """How the test ended: ``lost`` as in harness.record.journal.lost_rows; ``interrupted`` names a signal.

    ``cpu_s`` is the CPU time of LoadGen's process and the workers during the test; ``cpu``, ``loop_lag_ns``
    and ``gc_runs`` as in harness.report.client_overhead.
    """

    issued: int
    lost: Sequence[tuple[int, int]] = ()
    problems: Sequence[str] = ()
    interrupted: str | None = None
    doubts: Sequence[str] = ()
    cpu: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 1), dtype=np.int64))
    loop_lag_ns: int = 0
    gc_runs: int = 0
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Closing:
    """The text for stdout, and the program's exit code."""

    text: str
    exit_code: int


def close_run(
    record: RunRecord,
    ending: Ending,
    *,
    title: str,
    log_dir: Path,
    replicas: Sequence[str],
    samples: int,
    accuracy: bool,
    ttft_limit_ns: int | None,
    dataset: Path,
    settings: Mapping[str, int | float | bool],
    benchmark: str = "gpt-oss-120b",
    tpot_limit_ns: int | None = None,
    arguments: Sequence[str] = (),
    width: int | None = None,
) -> Closing:
    """Write the run's files beside LoadGen's logs and return the closing summary.

    The limits are the scenario's at p99, None where it has none. ``arguments``: the program's, if it can be
    resumed. ``width``: the terminal's columns, None for a file or a pipe. ``settings`` are LoadGen's as they
    were read back before the run, by TestSettings' names.
    """
    journal = read_journal(log_dir / JOURNAL_DIR)
    rows = _with_lost(journal.rows, ending.lost)
    stats = statistics(rows)
    loadgen, detail = read_summary(log_dir / _SUMMARY), read_detail(log_dir / DETAIL)
    reports = read_reports(log_dir / JOURNAL_DIR)
    share = client_share(reports)
    load = client_load(
        ending.cpu,
        reports,
        _first_issue(rows),
        ttft_limit_ns,
        loop_lag_ns=ending.loop_lag_ns,
        gc_runs=ending.gc_runs,
    )
    lag = mean_schedule_lag(rows, reports, loadgen.figures)
    table = requests_table(rows, replicas, journal.details, _reported(reports))
    unwritten = _unwritten(REQUESTS, lambda: write_requests(log_dir / REQUESTS, table))
    problems = (*ending.problems, *_broken(journal), *unwritten)
    if ending.interrupted:
        verdict = _interrupted(ending.interrupted, unwritten)
    else:
        cause_known = bool(problems)
        problems += setting_problems(detail, settings, accuracy=accuracy)
        problems += loadgen_file_problems(
            log_dir, detail, accuracy=accuracy, samples=samples, cause_known=cause_known
        )
        verdict = judge(Evidence(accuracy, samples, ending.issued, rows, stats, loadgen, problems))
    record = replace(
        record,
        ended=datetime.now(UTC),
        verdict=verdict,
        statistics=stats,
        unanswered=ending.issued - stats.queries,
        failure_examples=_examples(rows, journal.details),
        loadgen=loadgen,
        settings_in_force=settings_in_force(detail),
        client_share=share,
        client_cpu_s=ending.cpu_s,
        client_load=load,
        schedule_lag_mean_ns=lag,
        doubts=(
            *record.doubts,
            *ending.doubts,
            *repeat_doubts(stats),
            *stream_doubts(rows, stats, measured=ttft_limit_ns is not None and not accuracy),
            *share_doubts(share, ttft_limit_ns),
            *load_doubts(load),
            *lag_doubts(lag, ttft_limit_ns),
        ),
        files=_files(log_dir, accuracy=accuracy),
    )
    if unwritten := _unwritten(RUN_RECORD, lambda: _write_record(log_dir, record)):
        verdict = _worsened(verdict, unwritten)
    summary = RunSummary(
        title,
        verdict,
        stats,
        loadgen,
        record.deviations,
        record.doubts,
        record.files,
        client_share=share,
        schedule_lag_mean_ns=lag,
        loadgen_lines=result_lines(log_dir / _SUMMARY),
        limits={} if accuracy else {"TTFT": ttft_limit_ns, "TPOT": tpot_limit_ns},
        next_step=_next_step(verdict, stats, log_dir, dataset, benchmark, arguments) if accuracy else "",
    )
    return Closing(render_summary(summary, width), EXIT_VALID if verdict.result == "VALID" else EXIT_INVALID)


def _with_lost(rows: Rows, lost: Sequence[tuple[int, int]]) -> Rows:
    """LoadGen's view decides: a query that it saw fail is failed, whatever the journal has of it."""
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


def repeat_doubts(stats: Statistics) -> tuple[str, ...]:
    """What was not answered at the first attempt."""
    lines = []
    if stats.retries:
        lines.append(f"{stats.retries} requests failed and were sent again; their queries' times hold that")
    if stats.resumed:
        lines.append(f"resumed: {stats.resumed} of {stats.queries} answers are of an earlier attempt")
    return tuple(lines)


def stream_doubts(rows: Rows, stats: Statistics, *, measured: bool) -> tuple[str, ...]:
    """Where a scenario with limits for tokens got answers that show no token's time."""
    if not measured or not stats.completed:
        return ()
    if stats.ttft is None:
        return (
            "answers were not streamed: what LoadGen took for TTFT is their latency, its TPOT has no meaning",
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


def _interrupted(signal: str, problems: tuple[str, ...]) -> Verdict:
    return Verdict("INTERRUPTED", (f"ended by {signal} before LoadGen was done", *problems))


def _unwritten(name: str, write: Callable[[], None]) -> tuple[str, ...]:
    """Why a file of the run could not be written: the rest of the report is not given up for it."""
    try:
        write()
    except OSError as error:
        return (f"{name} could not be written: {machine_failure(error)}",)
    return ()


def _write_record(log_dir: Path, record: RunRecord) -> None:
    release_reserve(log_dir)
    write_run_record(log_dir / RUN_RECORD, record)


def _worsened(verdict: Verdict, reasons: tuple[str, ...]) -> Verdict:
    """A run without its record is no result."""
    result = "INVALID" if verdict.result == "VALID" else verdict.result
    return Verdict(result, (*verdict.reasons, *reasons))


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
    assert calls.dtype == REPORT_ROW
    chosen: Rows = calls[calls["kind"] == kind]
    return chosen


def _examples(rows: Rows, details: Mapping[int, str]) -> dict[str, list[str]]:
    """A few details of each kind of failure."""
    found: dict[str, list[str]] = {}
    for kind in FailureKind:
        ids = rows["query_id"][rows["failure"] == kind].tolist()
        shown = [details[query_id] for query_id in ids[: 10 * _EXAMPLES] if query_id in details]
        if shown:
            found[kind.label] = list(dict.fromkeys(shown))[:_EXAMPLES]
    return found


def _next_step(
    verdict: Verdict,
    stats: Statistics,
    log_dir: Path,
    dataset: Path,
    benchmark: str,
    arguments: Sequence[str],
) -> str:
    """What to do after an accuracy run, with the command."""
    if verdict.result == "VALID":
        return f"Score it with: {scoring_command(log_dir / _ACCURACY, dataset, benchmark)}"
    if arguments and stats.completed:
        return f"Resume it with: {resuming_command(arguments)}"
    return ""


def _files(log_dir: Path, *, accuracy: bool) -> dict[str, str]:
    names = {"run record": RUN_RECORD, "requests": REQUESTS, "LoadGen": _SUMMARY}
    if accuracy:
        names["accuracy log"] = _ACCURACY
    return {label: str(log_dir / name) for label, name in names.items()}
