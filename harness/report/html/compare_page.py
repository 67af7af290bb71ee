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
    summary,
)
from harness.analysis.distributions import percentile_curve
from harness.analysis.queries import Queries
from harness.analysis.run_files import RunFiles
from harness.analysis.run_outcome import STATUS_OF
from harness.analysis.timeline import Bins, bins_of, in_flight, percentiles, tokens_per_second
from harness.arrays import Floats
from harness.report.html.page import Badge, Cell, Chart, Page, PageTable, Section, Series
from harness.text import aligned, utc

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
    base, names = runs[0], names_of(runs)
    for number, other in enumerate(runs[1:], 1):
        reasons, found = incomparable(base, other), differences(base, other)
        folders = f"{base.folder} and {other.folder}"
        yield f"NOT COMPARABLE: {folders}: {'; '.join(reasons)}" if reasons else f"comparable: {folders}"
        yield summary(base, other, found, names[number], names[0])
        yield from aligned([_HEADER, *(_texts(one) for one in found)], "<>")
        if (changed := changed_samples(base, other)) is not None:
            yield _changed_line(changed)
        if number < len(runs) - 1:
            yield ""
    yield _NOTE


def compare_page(runs: Sequence[RunFiles]) -> Page:
    """One page for two runs or more."""
    base, names = runs[0], names_of(runs)
    others = [
        (number, other, differences(base, other), incomparable(base, other))
        for number, other in enumerate(runs[1:], 2)
    ]
    reasons = [
        f"{names[number - 1]} is not comparable with {names[0]}: {reason}"
        for number, _, _, why in others
        for reason in why
    ]
    sections = [
        Section("runs", "Runs", tables=[_runs(runs, names)]),
        *(_figures(number, base, other, found, names) for number, other, found, _ in others),
        Section("curves", "Curves", charts=tuple(_charts(runs, names))),
        *(_plans(number, base, other, names) for number, other, _, _ in others),
    ]
    return Page(
        "Comparison of runs",
        f"{len(runs)} runs; {names[0]} is the base",
        tuple(_badges(runs, bool(reasons))),
        [*(summary(base, other, found, names[n - 1], names[0]) for n, other, found, _ in others), *reasons],
        (),
        sections,
        _NOTE,
    )


def names_of(runs: Sequence[RunFiles]) -> list[str]:
    """The parts of the folders in which they differ, numbered where these are equal."""
    parts = [run.folder.absolute().parts for run in runs]
    while all(parts) and len({one[0] for one in parts}) == 1:
        parts = [one[1:] for one in parts]
    while all(parts) and len({one[-1] for one in parts}) == 1:
        parts = [one[:-1] for one in parts]
    names = ["/".join(one) for one in parts]
    if len(set(names)) == len(names) and all(names):
        return names
    return [f"run {number}" for number in range(1, len(runs) + 1)]


def _badges(runs: Sequence[RunFiles], differ: bool) -> Iterator[Badge]:
    """Whether the runs compare, and the verdicts where they are not all the same."""
    yield Badge("NOT COMPARABLE", "bad") if differ else Badge("comparable", "plain")
    results = [run.result for run in runs]
    if len(set(results)) > 1:
        yield Badge(" -> ".join(results), "good" if results[-1] == "VALID" else "bad", "#runs")


def _runs(runs: Sequence[RunFiles], names: Sequence[str]) -> PageTable:
    rows = []
    for name, run in zip(names, runs, strict=True):
        record = run.record
        started = utc(record.started) if record is not None else "-"
        title = record.plan.title if record is not None else "-"
        result = Cell(run.result, "good" if run.result == "VALID" else "bad")
        rows.append((name, str(run.folder), title, result, started))
    return PageTable(("run", "folder", "what", "result", "started"), rows)


def _figures(
    number: int, base: RunFiles, other: RunFiles, found: Sequence[Difference], names: Sequence[str]
) -> Section:
    lines = [_changed_line(changed)] if (changed := changed_samples(base, other)) is not None else []
    header = ("", names[0], names[number - 1], *_HEADER[3:])
    table = PageTable(header, [_row(one) for one in found])
    return Section(f"figures-{number}", f"{names[number - 1]} against {names[0]}", lines, tables=[table])


def _texts(one: Difference) -> tuple[str, ...]:
    interval = "-" if math.isnan(one.low) else f"{one.low:+.2%} to {one.high:+.2%}"
    change = "-" if math.isnan(one.change) else f"{one.change:+.2%}"
    return one.name, _figure(one.base), _figure(one.value), change, interval, _judged(one)


def _judged(one: Difference) -> str:
    """``better``, ``worse``, or why neither is known."""
    return one.verdict if one.is_better is None else "better" if one.is_better else "worse"


def _row(one: Difference) -> tuple[str | Cell, ...]:
    """Colour and word for what is better and what is worse."""
    status = STATUS_OF[one.is_better]
    name, base, value, change, interval, judged = _texts(one)
    return name, base, value, Cell(change, status), interval, Cell(judged, status)


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


def _charts(runs: Sequence[RunFiles], names: Sequence[str]) -> Iterator[Chart]:
    known = [(name, run.queries) for name, run in zip(names, runs, strict=True) if run.queries is not None]
    longest = max(known, key=lambda pair: pair[1].span)[1]
    bins = bins_of(longest)
    views: dict[str, Callable[[Queries], Floats]] = {
        "Output tokens a second": lambda queries: tokens_per_second(queries, bins),
        "Queries in flight": lambda queries: in_flight(queries, bins),
        "TTFT p99 by time of issue, ms": lambda queries: _p99(queries, bins, queries.ttft),
        "TPOT p99 by time of issue, ms": lambda queries: _p99(queries, bins, queries.tpot),
    }
    for index, (title, values) in enumerate(views.items()):
        series = [Series(name, values(queries), color) for color, (name, queries) in enumerate(known)]
        yield Chart(f"time-{index}", title, bins.middles, series, together="time")
    for name in ("ttft", "tpot", "latency"):
        yield from _curves(name, [(run, getattr(queries, name)) for run, queries in known])


def _p99(queries: Queries, bins: Bins, values: Floats) -> Floats:
    (found,) = percentiles(values, queries, bins, (0.99,))
    return found * 1e3


def _curves(name: str, columns: Sequence[tuple[str, Floats]]) -> Iterator[Chart]:
    curves = [
        (color, run, curve)
        for color, (run, values) in enumerate(columns)
        if (curve := percentile_curve(values))
    ]
    if not curves:
        return
    nines = np.linspace(0, max(float(curve.nines[-1]) for *_, curve in curves), _CURVE)
    series = [
        Series(run, np.interp(nines, curve.nines, curve.values * 1e3, right=np.nan), color)
        for color, run, curve in curves
    ]
    title = f"{name.upper() if name != 'latency' else name} by percentile, ms"
    yield Chart(f"curve-{name}", title, nines, series, "nines", "log", "percentile")


def _plans(number: int, base: RunFiles, other: RunFiles, names: Sequence[str]) -> Section:
    table = PageTable(("", names[0], names[number - 1]), plan_differences(base, other))
    title = f"What differs in the plans of {names[0]} and {names[number - 1]}"
    return Section(f"plans-{number}", title, tables=[table])
