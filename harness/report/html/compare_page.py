"""The page and the console table that compare runs with the first of them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
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
from harness.text import aligned, figure, first_few, utc

_HEADER = ("", "first", "this", "change", "95 % interval", "")
_CURVE = 300  # points of a curve
_SHOWN = 20  # samples that are listed
_NOTE = (
    "Intervals come from a block bootstrap of each run's queries: they hold the variation within the two "
    "runs. What changes from one run to the next (start of the server, machine, temperature) is not in them; "
    "repeat runs to see it."
)


class Compared(msgspec.Struct, frozen=True):
    """A run beside the first one, for the terminal and the page."""

    base: RunFiles
    base_name: str
    run: RunFiles
    name: str
    reasons: tuple[str, ...]
    """why the two do not compare"""
    figures: list[Difference]
    samples: ChangedSamples | None
    summary: str


def compared(runs: Sequence[RunFiles]) -> list[Compared]:
    """Two runs or more, each with the first. Raises ConfigError where one has no single queries."""
    base, (base_name, *names) = runs[0], names_of(runs)
    found = []
    for run, name in zip(runs[1:], names, strict=True):
        figures = differences(base, run)
        text = summary(base, run, figures, name, base_name)
        reasons, samples = tuple(incomparable(base, run)), changed_samples(base, run)
        found.append(Compared(base, base_name, run, name, reasons, figures, samples, text))
    return found


def compare_lines(found: Sequence[Compared]) -> Iterator[str]:
    """The table for a terminal; its first line says whether the runs can be compared."""
    for one in found:
        folders = f"{one.base.folder} and {one.run.folder}"
        reasons = "; ".join(one.reasons)
        yield f"NOT COMPARABLE: {folders}: {reasons}" if reasons else f"comparable: {folders}"
        yield one.summary
        yield from aligned([_HEADER, *map(_texts, one.figures)], "<>")
        if one.samples is not None:
            yield _changed_line(one.samples)
        if one is not found[-1]:
            yield ""
    yield _NOTE


def compare_page(found: Sequence[Compared]) -> Page:
    """One page for two runs or more."""
    runs = {found[0].base_name: found[0].base} | {one.name: one.run for one in found}
    reasons = [
        f"{one.name} is not comparable with {one.base_name}: {reason}"
        for one in found
        for reason in one.reasons
    ]
    sections = [
        Section("runs", "Runs", tables=[_runs(runs)]),
        *(_figures(number, one) for number, one in enumerate(found, 2)),
        Section("curves", "Curves", charts=tuple(_charts(runs))),
        *(_plans(number, one) for number, one in enumerate(found, 2)),
    ]
    return Page(
        "Comparison of runs",
        f"{len(runs)} runs; {found[0].base_name} is the base",
        tuple(_badges([run.result for run in runs.values()], bool(reasons))),
        [*reasons, *(one.summary for one in found)],
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


def _badges(results: Sequence[str], differ: bool) -> Iterator[Badge]:
    """Whether the runs compare, and the verdicts where they are not all the same."""
    yield Badge("NOT COMPARABLE", "bad") if differ else Badge("comparable", "plain")
    if len(set(results)) > 1:
        yield Badge(" -> ".join(results), "good" if results[-1] == "VALID" else "bad", "#runs")


def _runs(runs: Mapping[str, RunFiles]) -> PageTable:
    rows = []
    for name, run in runs.items():
        record = run.record
        started = utc(record.started) if record is not None else "-"
        title = record.plan.title if record is not None else "-"
        result = Cell(run.result, "good" if run.result == "VALID" else "bad")
        rows.append((name, str(run.folder), title, result, started))
    return PageTable(("run", "folder", "what", "result", "started"), rows)


def _figures(number: int, one: Compared) -> Section:
    lines = [] if one.samples is None else [_changed_line(one.samples)]
    header = ("", one.base_name, one.name, *_HEADER[3:])
    table = PageTable(header, [_row(figure) for figure in one.figures])
    return Section(f"figures-{number}", f"{one.name} against {one.base_name}", lines, tables=[table])


def _texts(one: Difference) -> tuple[str, ...]:
    interval = "-" if math.isnan(one.low) else f"{one.low:+.2%} to {one.high:+.2%}"
    change = "-" if math.isnan(one.change) else f"{one.change:+.2%}"
    return one.name, figure(one.base), figure(one.value), change, interval, _judged(one)


def _judged(one: Difference) -> str:
    """``better``, ``worse``, or why neither is known."""
    return one.verdict if one.is_better is None else "better" if one.is_better else "worse"


def _row(one: Difference) -> tuple[str | Cell, ...]:
    """Colour and word for what is better and what is worse."""
    status = STATUS_OF[one.is_better]
    name, base, value, change, interval, judged = _texts(one)
    return name, base, value, Cell(change, status), interval, Cell(judged, status)


def _changed_line(changed: ChangedSamples) -> str:
    wrong, right = (f"{len(part)}{_some(part)}" for part in (changed.to_wrong, changed.to_right))
    return (
        f"Samples from right to wrong: {wrong}; from wrong to right: {right}; McNemar's p = "
        f"{changed.chance:.3g}: {changed.verdict}."
    )


def _some(indexes: Sequence[int]) -> str:
    return f" (qsl_idx {first_few(indexes, _SHOWN)})" if indexes else ""


def _charts(runs: Mapping[str, RunFiles]) -> Iterator[Chart]:
    known = [(name, run.queries) for name, run in runs.items() if run.queries is not None]
    longest = max(known, key=lambda pair: pair[1].span)[1]
    bins = bins_of(longest)
    views: dict[str, tuple[Floats, Callable[[Queries], Floats]]] = {
        "Output tokens a second": (bins.middles, lambda queries: tokens_per_second(queries, bins)),
        "Queries in flight": (bins.ends, lambda queries: in_flight(queries, bins)),
        "TTFT p99 by time of issue, ms": (bins.middles, lambda queries: _p99(queries, bins, queries.ttft)),
        "TPOT p99 by time of issue, ms": (bins.middles, lambda queries: _p99(queries, bins, queries.tpot)),
    }
    for index, (title, (times, values)) in enumerate(views.items()):
        series = [Series(name, values(queries), color) for color, (name, queries) in enumerate(known)]
        yield Chart(f"time-{index}", title, times, series, together="time")
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


def _plans(number: int, one: Compared) -> Section:
    table = PageTable(("", one.base_name, one.name), plan_differences(one.base, one.run))
    title = f"What differs in the plans of {one.base_name} and {one.name}"
    return Section(f"plans-{number}", title, tables=[table])
