"""endpoints.html: a rehearsed curve, its points, and what keeps it from being a submission."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.endpoints.run_folder import PAGE
from harness.endpoints.steady.steady_point import SteadyState
from harness.endpoints.view.curve_charts import pareto_chart, steady_charts, times_charts
from harness.endpoints.view.curve_files import MeasuredCurve, read_curve
from harness.endpoints.view.curve_steady import steady_states, with_states
from harness.endpoints.view.curve_tables import (
    accuracy_table,
    bands_table,
    client_table,
    definitions_tables,
    failures_table,
    points_table,
    settings_table,
    steady_table,
    warm_up_table,
)
from harness.endpoints.view.point_settings import MODEL
from harness.endpoints.view.shortfalls import is_steady, offline_part, shortfalls
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.report.html.page import Badge, Chart, Page, PageTable, Section, Tile, write_page

_BANDS = (
    "Each band needs a point with an accuracy run. A point in the margin above C_max counts for none of them."
)
_STEADY = (
    "A super-pass is one pass of the dataset in the order of issue. Where TPOT p50 and p90 lie on a plateau "
    "of at least 4 of them for the time that the rules ask for, this window is the point's result, else the "
    "complete run."
)


def write_endpoints_page(folder: Path) -> Path:
    """Write the page of what a folder holds so far.

    Raises ConfigError for a folder without points, OSError where the page cannot be written.
    """
    curve, path = read_curve(folder), folder / PAGE
    write_page(path, endpoints_page(curve, steady_states(curve)))
    return path


def endpoints_page(curve: MeasuredCurve, states: Mapping[str, SteadyState]) -> Page:
    """The page of a curve; ``states`` are of the points whose requests were read."""
    curve = with_states(curve, states)
    sections = [
        Section(
            "curve",
            "Curve",
            _below(curve),
            charts=tuple(pareto_chart(curve)),
            tables=[points_table(curve)],
        ),
        Section("times", "Times by requests in flight", charts=tuple(times_charts(curve))),
        _section("bands", "Bands", bands_table(curve), _BANDS),
        _section(
            "steady", "Steady state", steady_table(curve, states), _STEADY, charts=steady_charts(states)
        ),
        Section("definitions", "Both definitions", tables=definitions_tables(curve)),
        _section("accuracy", "Accuracy", accuracy_table(curve)),
        Section("offline", "Offline", tuple(_offline_lines(curve))),
        _section("failures", "Failed requests", failures_table(curve.points)),
        _section("client", "Client", client_table(curve.points)),
        _section("warm-up", "Warm-up and network", warm_up_table(curve)),
        _section("settings", "Settings", settings_table(curve)),
    ]
    return Page(
        _title(curve),
        _subtitle(curve),
        tuple(_badges(curve)),
        shortfalls(curve),
        tuple(_tiles(curve)),
        sections,
        footer=f"This is {NOT_A_RESULT}. tokens/s, TPOT and TTFT are MLPerf Endpoints' (policies v1.0, "
        "section 4.1) where nothing else is said, as result_summary.json has them.",
    )


def _title(curve: MeasuredCurve) -> str:
    kind = "MLPerf Endpoints, rehearsed" if curve.kind == "rehearsal" else "MLPerf Endpoints"
    model = curve.settings.get(MODEL, "unknown model") if curve.plan is None else curve.plan.benchmark
    return f"{kind}: {model}"


def _subtitle(curve: MeasuredCurve) -> str:
    lowest = min((one.concurrency for one in curve.steps if one.concurrency), default=None)
    span = "" if lowest is None else f" {lowest:,} to {curve.c_max:,} requests in flight."
    source = f"A {curve.kind}" if curve.kind != "run folders" else "Run folders"
    return f"{source} in {curve.folder.absolute()}.{span}"


def _badges(curve: MeasuredCurve) -> Iterator[Badge]:
    yield Badge(NOT_A_RESULT.upper(), "warn")
    if curve.plan is not None:
        if curve.plan.short:
            yield Badge("SHORT", "warn")
        done = sum(one.run is not None and one.run.complete for one in curve.points)
        if done < len(curve.plan.points):
            yield Badge(f"{done} OF {len(curve.plan.points)} POINTS MEASURED", "bad", "#curve")
    if any(one.failed for one in curve.points):
        yield Badge("FAILED REQUESTS", "bad", "#failures")
    if any(one.accuracy is not None and not one.accuracy.passed for one in curve.points):
        yield Badge("ACCURACY NOT PASSED", "bad", "#accuracy")


def _tiles(curve: MeasuredCurve) -> Iterator[Tile]:
    steps = curve.steps
    if not steps:
        return
    fastest = max(steps, key=lambda one: one.tps_per_user or 0.0)
    highest = max(steps, key=lambda one: one.system_tps or 0.0)
    yield Tile(
        f"{highest.system_tps:,.0f}",
        f"tokens/s of the system, at {highest.concurrency:,} in flight",
        link="#curve",
    )
    yield Tile(
        f"{fastest.tps_per_user:,.1f}",
        f"tokens/s of a user, at {fastest.concurrency:,} in flight",
        link="#curve",
    )
    if curve.offline is not None and curve.offline.system_tps:
        yield Tile(
            f"{curve.offline.system_tps:,.0f}", f"tokens/s Offline, {curve.offline.offline}", link="#offline"
        )
    if highest.system_tps and (power := highest.kilowatts or curve.kilowatts):
        yield Tile(f"{highest.system_tps / power:,.1f}", f"tokens/s per kW, of {power:g} kW")
    steady = sum(map(is_steady, steps))
    yield Tile(
        f"{steady} of {len(steps)}",
        "points with a steady window",
        "good" if steady == len(steps) else "warn",
        "#steady",
    )


def _below(curve: MeasuredCurve) -> list[str]:
    """Points that an earlier one exceeds in both numbers."""
    best = {one.name: (one.system_tps or 0.0, one.tps_per_user or 0.0) for one in curve.steps}
    found = [
        name
        for name, (rate, user) in best.items()
        if any(other > rate and speed >= user for other, speed in best.values())
    ]
    if not found:
        return []
    return [f"Another point has more tokens/s and is no slower for a user than: {', '.join(found)}."]


def _offline_lines(curve: MeasuredCurve) -> Iterator[str]:
    point = curve.offline
    if point is None:
        return
    if point.offline == "elected":
        yield f"{point.name}, the point at C_max, is elected as the Offline result, without a run of its own."
        return
    yield "All samples were issued at once. It has no TTFT and is no step of the curve."
    if (part := offline_part(curve)) is not None:
        least = curve.rules.offline_part
        verdict = "as the rules ask" if part >= least else "too little"
        yield f"Its throughput is {part:.1%} of that at C_max ({least:.0%} or more): {verdict}."


def _section(
    name: str, title: str, table: PageTable | None, *lines: str, charts: Iterable[Chart] = ()
) -> Section:
    """``lines`` are about the table."""
    return Section(name, title, lines if table else (), charts=tuple(charts), tables=[table] if table else [])
