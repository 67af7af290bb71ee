"""The tables of a curve's page: points, bands, definitions side by side, accuracy, what was sent besides."""

from collections.abc import Iterator, Mapping, Sequence

from harness.analysis.run_outcome import Status
from harness.endpoints.curve import Point
from harness.endpoints.numbers.both_definitions import DefinitionRow
from harness.endpoints.official_files import number, whole
from harness.endpoints.planning.regions import LABELS, MANDATORY
from harness.endpoints.steady.steady_point import SteadyState
from harness.endpoints.view.curve_files import MeasuredCurve
from harness.endpoints.view.measured_point import CurvePoint, SteadyBlock
from harness.endpoints.view.shortfalls import is_steady, steady_word
from harness.report.html.page import Cell, PageTable
from harness.text import duration, milliseconds

_NONE = "-"
_ALL_AT_ONCE = "all at once"  # of a dedicated Offline run, whose files have no number in flight


def points_table(curve: MeasuredCurve) -> PageTable:
    """Every point, also those that a rehearsal has not measured yet."""
    header = [
        "point",
        "in flight",
        "band",
        "tokens/s",
        "tokens/s of a user",
        "TTFT p90, ms",
        "TPOT p90, ms",
        "requests",
        "failed",
        "time",
        "steady state",
    ]
    if curve.kilowatts:
        header.append("tokens/s per kW")
    rows = [_point_row(one, curve.kilowatts) for one in curve.points]
    rows += [_planned_row(one, len(header)) for one in curve.not_run]
    marked = frozenset(number for number, one in enumerate(curve.points) if one.failed or one.problems)
    return PageTable(header, rows, marked)


def _point_row(point: CurvePoint, kilowatts: float | None) -> list[str | Cell]:
    rate, power = point.system_tps, point.kilowatts or kilowatts
    return [
        point.name,
        _ALL_AT_ONCE if point.offline == "dedicated" else _count(point.concurrency),
        _band(point),
        _rate(rate),
        _rate(point.tps_per_user),
        _p90_ms(point.ttft_ns),
        _p90_ms(point.tpot_ns),
        _count(point.issued),
        Cell(_count(point.failed), "bad" if point.failed else "plain"),
        _NONE if point.seconds is None else duration(point.seconds),
        _steady_cell(point),
        *([_rate(rate / power if rate and power else None)] if kilowatts else []),
    ]


def _planned_row(point: Point, columns: int) -> list[str | Cell]:
    shown = (point.name, f"{point.concurrency:,}", LABELS[point.band], Cell("not measured yet", "warn"))
    return [*shown, *[""] * (columns - len(shown))]


def _band(point: CurvePoint) -> str:
    if point.offline == "dedicated":
        return LABELS["offline"]
    elected = ", elected Offline" if point.offline == "elected" else ""
    return f"{LABELS[point.band]}{elected}"


def _steady_cell(point: CurvePoint) -> str | Cell:
    if point.offline == "dedicated" or point.system_tps is None:
        return _NONE
    return Cell(steady_word(point), "good" if is_steady(point) else "warn")


def bands_table(curve: MeasuredCurve) -> PageTable | None:
    """The four bands and the margin, with the points in each."""
    if curve.regions is None:
        return None
    rows: list[list[str | Cell]] = []
    for band, span in zip((*MANDATORY, "margin"), curve.regions, strict=True):
        inside = [one for one in curve.points if one.band == band]
        names = ", ".join(f"{one.concurrency:,}" for one in inside if one.concurrency)
        needed = band in MANDATORY
        scored = ", ".join(f"{one.concurrency:,}" for one in inside if one.scored)
        rows.append([
            LABELS[band],
            str(span),
            names or Cell("none", "bad" if needed else "plain"),
            scored or (Cell("none", "bad") if needed else "not needed"),
        ])  # fmt: skip
    return PageTable(("band", "requests in flight", "points at", "accuracy run at"), rows)


def steady_table(curve: MeasuredCurve, states: Mapping[str, SteadyState]) -> PageTable | None:
    """Status, verdict and window of each point of ``with_states``, with the window's own numbers if known."""
    rows = [
        _steady_row(one, one.steady, states.get(one.name))
        for one in curve.points
        if one.offline != "dedicated" and one.steady is not None
    ]
    header = ("point", "status", "verdict", "super-passes", "issued for", "tokens/s", "tokens/s of a user")
    return PageTable(header, rows) if rows else None


def _steady_row(point: CurvePoint, block: SteadyBlock, state: SteadyState | None) -> list[str | Cell]:
    colour: Status = "good" if is_steady(point) else "warn"
    seconds, window = block.window.duration_s, None if state is None else state.window
    return [
        point.name,
        Cell(block.status or _NONE, colour),
        Cell(block.verdict or _NONE, colour),
        _count(block.window.super_passes),
        _NONE if seconds is None else f"{seconds:,.0f} s",
        _rate(window.system_tps if window else None),
        _rate(window.tps_per_user if window else None),
    ]


def definitions_tables(curve: MeasuredCurve) -> list[PageTable]:
    """Each number in this project's definition and in Endpoints', and why they may differ."""
    points = [one for one in curve.points if one.definitions]
    if not points:
        return []
    header = ["point"]
    for row in points[0].definitions:
        unit = ", ms" if row.unit == "ms" else ""
        header += [f"{row.name}{unit}: ours", "Endpoints'", "difference"]
    rows = [[one.name, *(text for row in one.definitions for text in _beside(row))] for one in points]
    reasons = [(row.name, row.reason) for row in points[0].definitions]
    return [PageTable(header, rows), PageTable(("number", "why they may differ"), reasons)]


def _beside(row: DefinitionRow) -> Iterator[str]:
    form = "{:,.3f}" if row.unit == "ms" else "{:,.0f}" if row.unit == "tokens" else "{:,.1f}"
    yield _NONE if row.ours is None else form.format(row.ours)
    yield _NONE if row.endpoints is None else form.format(row.endpoints)
    yield f"{row.endpoints / row.ours - 1:+.2%}" if row.ours and row.endpoints else _NONE


def accuracy_table(curve: MeasuredCurve) -> PageTable | None:
    """Every metric against its target."""
    rows: list[list[str | Cell]] = []
    for one in curve.points:
        found = one.accuracy
        if found is None:
            continue
        share = f"{found.samples:,} of {found.expected_samples:,}"
        samples = share if found.is_complete else Cell(share, "bad")
        rows += [
            [
                one.name,
                name,
                Cell(f"{metric.value:.7g}", "good" if metric.is_met else "bad"),
                metric.target,
                samples,
            ]
            for name, metric in found.metrics.items()
        ]
        rows += [[one.name, name, Cell("missing", "bad"), "", samples] for name in found.missing]
    return PageTable(("point", "metric", "value", "target", "samples"), rows) if rows else None


def warm_up_table(curve: MeasuredCurve) -> PageTable | None:
    """What was sent before the first counted request, and round trips without load."""
    rows: list[list[str]] = []
    for one in curve.points:
        declared, network = one.warm_up, one.run.network if one.run is not None else None
        if not declared and network is None:
            continue
        seconds, source = number(declared.get("duration_s")), declared.get("data_source")
        counts = (declared.get(name) for name in ("requests_issued", "requests_completed", "concurrency"))
        rows.append([
            one.name,
            _NONE if seconds is None else f"{seconds:,.1f} s",
            *(_count(whole(count)) for count in counts),
            source if isinstance(source, str) and source else _NONE,
            *([_NONE] * 2 if network is None else map(milliseconds, (network.min_ns, network.p50_ns))),
        ])  # fmt: skip
    header = (
        "point",
        "warm-up",
        "issued",
        "completed",
        "in flight",
        "of",
        "idle round trip, min, ms",
        "p50, ms",
    )
    return PageTable(header, rows) if rows else None


def failures_table(points: Sequence[CurvePoint]) -> PageTable | None:
    """Failed requests by kind; the files of the official client have no kinds."""
    rows: list[list[str | Cell]] = [
        [one.name, kind, Cell(f"{count:,}", "bad")] for one in points for kind, count in _kinds(one).items()
    ]
    return PageTable(("point", "failed requests", "number"), rows) if rows else None


def _kinds(point: CurvePoint) -> Mapping[str, int]:
    if point.run is not None and point.run.failures:
        return point.run.failures
    return {"any": point.failed} if point.failed else {}


def client_table(points: Sequence[CurvePoint]) -> PageTable | None:
    """Signs that the client, not the servers, set the pace."""
    rows = [(one.name, sign) for one in points if one.run is not None for sign in one.run.client_bound]
    return PageTable(("point", "sign of a client that was the bottleneck"), rows) if rows else None


def settings_table(curve: MeasuredCurve) -> PageTable:
    """What was set, one value or all that occur."""
    return PageTable(("", ""), list(curve.settings.items()))


def _count(value: int | None) -> str:
    return _NONE if value is None else f"{value:,}"


def _rate(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.1f}"


def _p90_ms(percentiles: Mapping[int, float]) -> str:
    return milliseconds(percentiles[90]) if 90 in percentiles else _NONE
