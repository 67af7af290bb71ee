"""The page and the console table that compare runs with the first of them."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from harness.analysis.comparison import (
    ChangedSamples,
    Difference,
    changed_samples,
    differences,
    incomparable,
    plan_differences,
)
from harness.analysis.distributions import percentile_curve
from harness.analysis.queries import Queries
from harness.analysis.run_files import RunFiles
from harness.analysis.timeline import Bins, bins_of, in_flight, percentiles, tokens_per_second
from harness.arrays import Floats
from harness.report.html.page import Badge, Chart, Page, PageTable, Section, Series
from harness.text import aligned

_HEADER = ("", "first", "this", "change", "95 % interval", "")
_CURVE = 300  # points of a curve
_SHOWN = 20  # samples that are listed
_NOTE = (
    "Intervals come from a block bootstrap of each run's queries: they hold the variation within the two "
    "runs. What changes from one run to the next (start of the server, machine, temperature) is not in them; "
    "repeat runs to see it."
)


def compare_lines(runs: Sequence[RunFiles]) -> Iterator[str]:
    """The table for a terminal; its first line says whether the runs can be compared."""
    base = runs[0]
    for number, other in enumerate(runs[1:], 1):
        reasons = incomparable(base, other)
        names = f"{base.folder} and {other.folder}"
        yield f"NOT COMPARABLE: {names}: {'; '.join(reasons)}" if reasons else f"comparable: {names}"
        yield from aligned([_HEADER, *_rows(differences(base, other))], "<>")
        if (changed := changed_samples(base, other)) is not None:
            yield _changed_line(changed)
        if number < len(runs) - 1:
            yield ""
    yield _NOTE


def compare_page(runs: Sequence[RunFiles]) -> Page:
    """One page for two runs or more."""
    base = runs[0]
    reasons = [
        f"{other.folder} is not comparable with {base.folder}: {reason}"
        for other in runs[1:]
        for reason in incomparable(base, other)
    ]
    badge = Badge("NOT COMPARABLE", "bad") if reasons else Badge("comparable", "good")
    sections = [
        Section("runs", "Runs", tables=[_runs(runs)]),
        *(_figures(number, base, other) for number, other in enumerate(runs[1:], 2)),
        Section("curves", "Curves", charts=tuple(_charts(runs))),
        *(_plans(number, base, other) for number, other in enumerate(runs[1:], 2)),
    ]
    return Page(
        "Comparison of runs",
        f"{len(runs)} runs; the first is the base",
        (badge,),
        reasons,
        (),
        sections,
        _NOTE,
    )


def _runs(runs: Sequence[RunFiles]) -> PageTable:
    rows = []
    for number, run in enumerate(runs, 1):
        record = run.record
        result = record.verdict.result if record is not None and record.verdict is not None else "-"
        started = f"{record.started:%Y-%m-%d %H:%M:%S} UTC" if record is not None else "-"
        title = record.plan.title if record is not None else "-"
        rows.append((str(number), str(run.folder), title, result, started))
    return PageTable(("run", "folder", "what", "result", "started"), rows)


def _figures(number: int, base: RunFiles, other: RunFiles) -> Section:
    found = differences(base, other)
    marked = frozenset(row for row, one in enumerate(found) if one.verdict == "differs")
    lines = [_changed_line(changed)] if (changed := changed_samples(base, other)) is not None else []
    table = PageTable(_HEADER, list(_rows(found)), marked)
    return Section(f"figures-{number}", f"Run {number} against run 1", lines, tables=[table])


def _rows(found: Sequence[Difference]) -> Iterator[tuple[str, ...]]:
    for one in found:
        interval = "-" if math.isnan(one.low) else f"{one.low:+.2%} to {one.high:+.2%}"
        change = "-" if math.isnan(one.change) else f"{one.change:+.2%}"
        yield one.name, _figure(one.base), _figure(one.value), change, interval, one.verdict


def _figure(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _changed_line(changed: ChangedSamples) -> str:
    wrong, right = (f"{len(part)}{_some(part)}" for part in (changed.to_wrong, changed.to_right))
    return (
        f"Samples from right to wrong: {wrong}; from wrong to right: {right}; McNemar's p = "
        f"{changed.chance:.3g}: {changed.verdict}."
    )


def _some(indexes: Sequence[int]) -> str:
    if not indexes:
        return ""
    more = ", ..." if len(indexes) > _SHOWN else ""
    return f" (qsl_idx {', '.join(map(str, indexes[:_SHOWN]))}{more})"


def _charts(runs: Sequence[RunFiles]) -> Iterator[Chart]:
    known = [(number, run.queries) for number, run in enumerate(runs, 1) if run.queries is not None]
    longest = max(known, key=lambda pair: pair[1].span)[1]
    bins = bins_of(longest)
    views: dict[str, Callable[[Queries], Floats]] = {
        "Output tokens a second": lambda queries: tokens_per_second(queries, bins),
        "Queries in flight": lambda queries: in_flight(queries, bins),
        "TTFT p99 by time of issue, ms": lambda queries: _p99(queries, bins, queries.ttft),
        "TPOT p99 by time of issue, ms": lambda queries: _p99(queries, bins, queries.tpot),
    }
    for index, (title, values) in enumerate(views.items()):
        series = [Series(f"run {number}", values(queries), number - 1) for number, queries in known]
        yield Chart(f"time-{index}", title, bins.middles, series, together="time")
    for name in ("ttft", "tpot", "latency"):
        yield from _curves(name, [(number, getattr(queries, name)) for number, queries in known])


def _p99(queries: Queries, bins: Bins, values: Floats) -> Floats:
    (found,) = percentiles(values, queries, bins, (0.99,))
    return found * 1e3


def _curves(name: str, columns: Sequence[tuple[int, Floats]]) -> Iterator[Chart]:
    curves = [(number, curve) for number, values in columns if (curve := percentile_curve(values))]
    if not curves:
        return
    nines = np.linspace(0, max(float(curve.nines[-1]) for _, curve in curves), _CURVE)
    series = [
        Series(
            f"run {number}",
            np.interp(nines, curve.nines, curve.values * 1e3, right=np.nan),
            number - 1,
        )
        for number, curve in curves
    ]
    title = f"{name.upper() if name != 'latency' else name} by percentile, ms"
    yield Chart(f"curve-{name}", title, nines, series, "nines", "log", "percentile")


def _plans(number: int, base: RunFiles, other: RunFiles) -> Section:
    table = PageTable(("", "run 1", f"run {number}"), plan_differences(base, other))
    return Section(f"plans-{number}", f"What differs in the plans of run 1 and {number}", tables=[table])
