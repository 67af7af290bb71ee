"""The files of a run in a folder."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np

from harness.analysis.queries import Queries, read_queries
from harness.config.loadgen_settings import SERVER_PERCENTILE
from harness.files import REQUESTS, RUN_RECORD, SUMMARY
from harness.loadgen_logs.summary_and_detail import LoadgenSummary, read_summary
from harness.record.run_record import RunRecord

_NS = 1e9
_NO_VERDICT = "without a verdict"


class RunFiles(msgspec.Struct, frozen=True):
    """What a run's folder holds. That of another harness has LoadGen's summary only."""

    folder: Path
    summary: LoadgenSummary
    record: RunRecord | None
    queries: Queries | None
    notes: tuple[str, ...] = ()
    """what the folder lacks"""
    mixed: tuple[str, ...] = ()
    """the files that are not of the run in run.json"""

    @property
    def limits(self) -> dict[str, float]:
        """LoadGen's p99 limits in seconds, where the scenario has any and the summary both."""
        ttft_ns, tpot_ns = self.summary.limit_ns("TTFT"), self.summary.limit_ns("TPOT")
        if self.summary.scenario != "Server" or ttft_ns is None or tpot_ns is None:
            return {}
        return {"TTFT": ttft_ns / _NS, "TPOT": tpot_ns / _NS}

    @property
    def latency_percentile(self) -> float:
        """The part of the queries that the limits are for."""
        return SERVER_PERCENTILE if self.record is None else self.record.latency_percentile

    @property
    def result(self) -> str:
        """The verdict: LoadGen's where there is no run.json."""
        if self.record is not None:
            return _NO_VERDICT if self.record.verdict is None else self.record.verdict.result
        return {True: "VALID", False: "INVALID", None: _NO_VERDICT}[self.summary.result_valid]

    def since_first_issue(self, moment: datetime) -> float | None:
        """Seconds from the first issue to a moment in UTC; None where the clocks cannot be compared."""
        if self.record is None or self.record.clock is None or self.queries is None:
            return None
        clock = self.record.clock
        if not self.queries.start_ns:
            return None
        return (moment - clock.utc).total_seconds() + (clock.monotonic_ns - self.queries.start_ns) / _NS

    @property
    def until(self) -> float:
        """Where time axes end: with the run where queries were never answered, else with the last event."""
        if self.record is None or not self.record.unanswered or self.record.ended is None:
            return 0.0
        return self.since_first_issue(self.record.ended) or 0.0


def read_run(folder: Path) -> RunFiles:
    """Read a run's folder. Raises ConfigError for a damaged run.json, DatasetError for a damaged table."""
    record = queries = None
    notes = []
    try:
        record = RunRecord.read(folder / RUN_RECORD)
    except FileNotFoundError:
        notes.append(f"There is no {RUN_RECORD}: this shows what LoadGen's own logs hold.")
    try:
        queries = read_queries(folder / REQUESTS)
    except FileNotFoundError:
        notes.append(f"There is no {REQUESTS}: views over time and of single queries are left out.")
    summary = read_summary(folder / SUMMARY)
    if summary.problem:
        notes.append(f"LoadGen's summary is {summary.problem}.")
    mixed = () if record is None else tuple(_of_another_run(record, summary, queries))
    return RunFiles(folder, summary, record, queries, tuple(notes), mixed)


def _of_another_run(record: RunRecord, summary: LoadgenSummary, queries: Queries | None) -> Iterator[str]:
    """The files that are not of the run in run.json."""
    if not summary.problem and record.loadgen is not None and (what := summary.difference(record.loadgen)):
        yield f"{SUMMARY} is of another run: {what}. Copy the logs of this run again."
    statistics = record.statistics
    if queries is None or statistics is None or statistics.resumed:  # which are not among the queries
        return
    found = len(queries), int(queries.osl[queries.completed].sum(dtype=np.int64))
    recorded = statistics.queries, statistics.output_tokens
    if found != recorded:
        yield (
            f"{REQUESTS} is of another run: it has {found[0]} queries and {found[1]} output tokens, the "
            f"{RUN_RECORD} of this run has {recorded[0]} and {recorded[1]}. Copy it again, or remove it: "
            "it is made from the journal."
        )
