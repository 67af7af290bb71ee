"""The page of one run: its verdict with reasons, charts over time, distributions, and its settings."""

from collections.abc import Iterator, Mapping

import numpy as np

from harness.analysis.diagnosis import diagnosis_text
from harness.analysis.early_stopping import at_most_text, least_queries, most_over_limit
from harness.analysis.queries import Queries, known_over, metric
from harness.analysis.run_files import RunFiles
from harness.analysis.run_outcome import RunOutcome, Status
from harness.config.loadgen_settings import SERVER_PERCENTILE
from harness.files import DETAIL
from harness.loadgen_logs.summary_and_detail import LoadgenSummary, printed, read_detail
from harness.report.html.headline import (
    clock,
    deviation_reasons,
    outcome_badges,
    outcome_tiles,
    score_reasons,
)
from harness.report.html.page import Badge, Gauge, Page, Section, Tile
from harness.report.html.run_charts import distributions, over_time
from harness.report.html.run_events import events_table, with_marks
from harness.report.html.run_sections import (
    accuracy_section,
    client_section,
    doubts_sections,
    endings,
    loadgen_percentiles,
    network_section,
    parameters_section,
    percentile_tables,
    provenance_section,
    replicas_section,
)
from harness.report.html.run_server import server_section
from harness.text import counted, milliseconds, utc

_NS = 1e9


def run_page(run: RunFiles, outcome: RunOutcome | None = None, next_step: str = "") -> Page:
    """The page of a run; ``next_step`` names the command that follows it, such as the one that scores it.

    ``outcome`` is that of its record. Raises ConfigError for a damaged result of the evaluator.
    """
    doubts = [] if run.record is None else doubts_sections(run.record)
    sections = [_verdict(run), *accuracy_section(run.folder), *doubts, *_measured(run)]
    if (record := run.record) is not None:
        sections += [
            client_section(record),
            network_section(record),
            provenance_section(record),
        ]
    return Page(
        _title(run),
        _subtitle(run),
        tuple(_badges(run) if outcome is None else outcome_badges(outcome)),
        tuple(_page_reasons(run, outcome, next_step)),
        (*(() if outcome is None else outcome_tiles(outcome)), *_headline(run)),
        with_marks([*sections, parameters_section(run.summary)], run.record),
        footer=f"Made from the files in {run.folder}. Percentiles are LoadGen's: the sorted values' element "
        "floor(p * n). LoadGen's times count from the scheduled time of a query, those of single queries "
        "from the call of its issue callback.",
    )


def _measured(run: RunFiles) -> Iterator[Section]:
    """Sections from single queries, or from LoadGen's summary and the servers where there are none."""
    queries = run.queries
    events = [events_table(() if run.record is None else run.record.events)]
    if queries is None or not queries.span:
        yield Section("time", "Events", tables=events)
        yield Section("distributions", "Latencies", tables=[loadgen_percentiles(run)])
        if run.record is not None:
            yield server_section(run)
        return
    yield Section("time", "Over time", charts=over_time(run, queries), tables=events)
    tables = (*percentile_tables(run), endings(queries))
    yield Section("distributions", "Distributions", charts=distributions(run, queries), tables=tables)
    yield replicas_section(run, queries)
    yield server_section(run)


def _title(run: RunFiles) -> str:
    if run.record is not None:
        return run.record.plan.title
    return " / ".join(part for part in run.folder.absolute().parts[-5:] if part != "performance")


def _subtitle(run: RunFiles) -> str:
    if run.record is None:
        scenario, mode = run.summary.scenario, run.summary.mode
        if not (scenario and mode):  # a summary of an accuracy run has neither
            found = read_detail(run.folder / DETAIL).effective
            scenario, mode = scenario or found.get("scenario"), mode or found.get("test_mode")
        return f"{scenario or 'unknown scenario'}, {mode or 'unknown mode'}, from LoadGen's logs"
    record = run.record
    times = f"started {utc(record.started)}"
    if record.ended is not None:
        times += f", ended {utc(record.ended)}"
    served = dict.fromkeys(server.names for server in record.servers)
    return f"{times}. {counted(len(record.servers), 'server')}: {', '.join(served)}"


def _badges(run: RunFiles) -> Iterator[Badge]:
    """Of LoadGen's logs alone."""
    status: Mapping[str, Status] = {"VALID": "good", "INVALID": "bad"}
    yield Badge(run.result, status.get(run.result, "plain"))


def _page_reasons(run: RunFiles, outcome: RunOutcome | None, next_step: str) -> Iterator[str]:
    """What decides the verdict first, what to do next last."""
    if outcome is not None:
        yield from score_reasons(outcome)
    verdict = None if run.record is None else run.record.verdict
    reasons = () if verdict is None else verdict.reasons
    yield from reasons
    if reasons and run.record is not None:
        yield from map(diagnosis_text, run.record.diagnoses)
    yield from (note for note in run.notes if note.removesuffix(".") not in reasons)
    yield from run.mixed
    if outcome is not None:
        yield from deviation_reasons(outcome)
    if next_step:
        yield next_step


def _headline(run: RunFiles) -> Iterator[Tile]:
    figures, stats = run.summary.figures, None if run.record is None else run.record.statistics
    for name in (
        "Completed tokens per second",
        "Tokens per second",
        "Completed samples per second",
        "Samples per second",
    ):
        if (value := figures.get(name)) is not None:
            counts_failed = "samples" in name and stats is not None and stats.failed
            yield Tile(printed(value), name.lower() + (", failed ones too" if counts_failed else ""))
    if run.summary.scenario == "SingleStream" and (p90 := run.summary.percentile_ns("latency", "90.00")):
        yield Tile(f"{milliseconds(p90)} ms", "90th percentile latency")
    if run.record is not None and stats is not None:
        yield Tile(f"{stats.completed:,}", "queries completed")
        if stats.failed:
            yield Tile(f"{stats.failed:,}", "queries failed", "bad")
        if run.record.unanswered:
            yield Tile(f"{run.record.unanswered:,}", "queries without an answer", "bad")
    if run.record is not None and run.record.lasted_s is not None:
        yield Tile(clock(run.record.lasted_s), "duration, from start to end")


def _verdict(run: RunFiles) -> Section:
    """LoadGen's constraints, the limits, early stopping, the effect of the last query."""
    lines = []
    if run.summary.constraints:
        met = (
            f"{name}: {'met' if is_met else 'NOT met'}" for name, is_met in run.summary.constraints.items()
        )
        lines.append(f"LoadGen's constraints: {', '.join(met)}.")
    lines += _early_stopping_lines(run)
    lines += _last_query_effect(run.summary)
    if run.record is not None and run.record.verdict is not None and not run.record.verdict.reasons:
        lines += [f"Diagnosis: {diagnosis_text(one)}." for one in run.record.diagnoses]
    return Section("verdict", "Verdict", tuple(lines), tuple(_gauges(run)))


def _gauges(run: RunFiles) -> Iterator[Gauge]:
    for name, limit in run.limits.items() if run.latency_percentile == SERVER_PERCENTILE else ():
        if (p99 := run.summary.percentile_ns(name)) is not None:
            text = f"{milliseconds(p99)} ms, {p99 / _NS / limit:.1%} of {milliseconds(limit * _NS)} ms"
            yield Gauge(f"{name} p99", p99 / _NS / limit, text)


def _early_stopping_lines(run: RunFiles) -> Iterator[str]:
    for name, limit in run.limits.items():
        if run.queries is None:
            said = " ".join(run.summary.early_stopping.get(name, ()))
            if said:
                yield f"{name} early stopping, as LoadGen reports it: {said}"
            continue
        yield f"{name} early stopping: {_budget_line(run, run.queries, name, limit)}"


def _budget_line(run: RunFiles, queries: Queries, name: str, limit: float) -> str:
    total, over = len(queries), int((metric(queries, name) > limit).sum())
    most = most_over_limit(total, run.latency_percentile)
    if most < 0:
        least = least_queries(run.latency_percentile)
        return f"{counted(total, 'query', 'is')} too few to pass, {least:,} are needed."
    lost = "" if over <= most else _lost_at(run, queries, name, limit, most)
    return f"{over:,} of {total:,} queries over the limit, {at_most_text(most)}.{lost}"


def _lost_at(run: RunFiles, queries: Queries, name: str, limit: float, most: int) -> str:
    if run.result == "VALID":
        # LoadGen takes a first token a little later than this client: its TPOT can be less.
        return " LoadGen counted fewer."
    moment = float(np.sort(known_over(queries, name, limit))[most])
    return f" The run could no longer become VALID from {clock(moment)} on."


def _last_query_effect(summary: LoadgenSummary) -> Iterator[str]:
    scheduled = summary.figures.get("Scheduled samples per second")
    completed = summary.figures.get("Completed samples per second")
    if scheduled and completed:
        yield (
            f"Scheduled {printed(scheduled)} samples/s, completed {printed(completed)}: LoadGen counts until "
            "the query issued last has ended, which costs "
            f"{1 - completed / scheduled:.1%} of the scheduled rate."
        )
