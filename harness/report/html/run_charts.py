"""The charts of a run: its course over time, and distributions of its values."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
import numpy as np

from harness.analysis.distributions import histogram, percentile_curve, sample_points
from harness.analysis.early_stopping import most_over_limit
from harness.analysis.queries import Queries, known_over, metric
from harness.analysis.run_files import RunFiles
from harness.analysis.run_warnings import mean_length_bounds
from harness.analysis.timeline import (
    Bins,
    bins_of,
    in_flight,
    percentiles,
    still_waiting,
    tokens_per_second,
)
from harness.arrays import Floats
from harness.files import PROGRESS
from harness.json_files import intact_lines
from harness.report.html.page import Chart, Limit, Series
from harness.text import counted

_MS = 1e3


def over_time(run: RunFiles, queries: Queries) -> tuple[Chart, ...]:
    """Charts over the time of the run, to its end."""
    bins = bins_of(queries, run.until)
    issued, ended = (bins.counts(moments) / bins.width for moments in (queries.issued, queries.ended))
    charts = [
        _timed(
            "rates", "Queries a second", bins.middles, [Series("issued", issued), Series("ended", ended, 1)]
        ),
        _in_flight(run, queries, bins),
        _timed(
            "tokens",
            "Output tokens a second",
            bins.middles,
            [Series("tokens/s", tokens_per_second(queries, bins), 2)],
            note=f"each answer's tokens spread between {_spread(queries)}",
        ),
    ]
    for name in ("TTFT", "TPOT"):
        p50, p99 = percentiles(metric(queries, name), queries, bins, (0.5, 0.99))
        if np.isfinite(p50).any():
            series = [Series("p50", p50 * _MS), Series("p99", p99 * _MS, 1)]
            title, note = f"{name} by time of issue, ms", f"in each {bins.width:g} s"
            charts.append(_timed(name.lower(), title, bins.middles, series, _limits(run, name), note))
    return (*charts, *_budget(run, queries, bins))


def _limits(run: RunFiles, name: str) -> list[Limit]:
    """The line of a latency's limit, where the scenario has one."""
    if (limit := run.limits.get(name)) is None:
        return []
    return [Limit(f"limit {limit * _MS:g} ms", limit * _MS)]


def _spread(queries: Queries) -> str:
    """Between which moments an answer's tokens are spread."""
    streamed = np.isfinite(queries.ttft).any()
    return "its first and its last" if streamed else "the sending of its request and its end"


def _in_flight(run: RunFiles, queries: Queries, bins: Bins) -> Chart:
    """Issued and not ended; queries that were never answered stay to the end of the run."""
    count = in_flight(queries, bins)
    series, note = [Series("in flight", count)], ""
    if run.record is not None and (unanswered := run.record.unanswered or 0) > 0:
        waiting = np.full(bins.count, float(unanswered))
        if not run.record.plan.scenario.one_query:  # else all are issued at once
            waiting = still_waiting(count, bins, list(_counted_in_flight(run)), unanswered)
        series = [Series("in flight", count + waiting), Series("of these never answered", waiting, 5)]
        note = f"{counted(unanswered, 'query', 'was')} never answered: in flight until the end of the run"
    return _timed("in-flight", "Queries in flight", bins.ends, series, note=note)


def _counted_in_flight(run: RunFiles) -> Iterator[tuple[float, int]]:
    """What the run counted itself every five seconds."""
    try:
        lines = list(intact_lines(run.folder / PROGRESS, _Counted))
    except OSError:
        return
    for seen in lines:
        if (moment := run.since_first_issue(seen.time)) is not None:
            yield moment, seen.in_flight


class _Counted(msgspec.Struct):
    """The fields of a line of progress.jsonl that are used here."""

    time: datetime
    in_flight: int


def _budget(run: RunFiles, queries: Queries, bins: Bins) -> Iterator[Chart]:
    """Queries over each limit so far, beside the most with which a run of this many queries is VALID."""
    most = most_over_limit(len(queries), run.latency_percentile)
    if not run.limits or most < 0:
        return
    series = [
        Series(f"over the {name} limit", np.cumsum(bins.counts(known_over(queries, name, limit))), color)
        for (name, limit), color in zip(run.limits.items(), (3, 4), strict=True)
    ]
    limits = [Limit(f"most that pass: {most:,}", most)]
    note = "" if run.result == "VALID" else "the run can no longer be VALID after a curve crosses the line"
    yield _timed("budget", "Queries over a limit, so far", bins.ends, series, limits, note)


def _timed(
    name: str,
    title: str,
    times: Floats,
    series: Sequence[Series],
    limits: Sequence[Limit] = (),
    note: str = "",
) -> Chart:
    return Chart(name, title, times, series, "seconds", "number", "", limits, "time", note)


def distributions(run: RunFiles, queries: Queries) -> tuple[Chart, ...]:
    """Percentile curves, lengths, and single queries."""
    values = {"TTFT": queries.ttft, "TPOT": queries.tpot, "latency": queries.latency}
    charts = [chart for name, column in values.items() if (chart := _curve(name, column, _limits(run, name)))]
    charts += _lengths(run, queries)
    charts += _scatters(run, queries)
    return tuple(charts)


def _curve(name: str, values: Floats, limits: Sequence[Limit]) -> Chart | None:
    curve = percentile_curve(values)
    if curve is None:
        return None
    return Chart(
        f"curve-{name.lower()}",
        f"{name} by percentile, ms",
        curve.nines,
        [Series(name, curve.values * _MS)],
        "nines",
        "log",
        "percentile",
        [Limit("p99", 2, "x"), *limits],
    )


def _lengths(run: RunFiles, queries: Queries) -> Iterator[Chart]:
    found = histogram(queries.osl[queries.completed])
    if found is None:
        return
    limits = [Limit("mean", float(queries.osl[queries.completed].mean()), "x")]
    bounds = mean_length_bounds(run.record.plan) if run.record is not None else None
    if bounds:
        limits += [Limit("TEST09 from", bounds[0], "x"), Limit("TEST09 to", bounds[1], "x")]
    yield Chart(
        "osl",
        "Answers by length, tokens",
        found.middles,
        [Series("answers", found.counts.astype(float), 0, "bars")],
        "number",
        "number",
        "output tokens",
        limits,
        note=f"TEST09 takes a mean of {bounds[0]:,.2f} to {bounds[1]:,.2f}" if bounds else "",
    )


def _scatters(run: RunFiles, queries: Queries) -> Iterator[Chart]:
    over = np.zeros(len(queries), dtype=bool)
    for name, limit in run.limits.items():
        over |= metric(queries, name) > limit
    pairs = (
        ("osl-latency", "Latency by output tokens, s", queries.osl, queries.latency, 1.0, "output tokens"),
        ("isl-ttft", "TTFT by prompt tokens, ms", queries.isl, queries.ttft, _MS, "prompt tokens"),
    )
    for name, title, counts, values, scale, label in pairs:
        rows = sample_points(counts, values, over)
        if not len(rows):
            continue
        y, is_over = values[rows] * scale, over[rows]
        series = [
            Series(
                "within the limits" if run.limits else "queries", np.where(is_over, np.nan, y), 0, "points"
            )
        ]
        if is_over.any():
            series.append(Series("over a limit", np.where(is_over, y, np.nan), 1, "points"))
        shown = f"{len(rows):,} of {len(queries):,} queries" if len(rows) < len(queries) else ""
        yield Chart(name, title, counts[rows].astype(float), series, "number", "number", label, note=shown)
