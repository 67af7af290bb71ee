"""The charts of a curve: the step function, times by concurrency, TPOT over super-passes."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from harness.arrays import Floats
from harness.endpoints.curve import Band
from harness.endpoints.planning.regions import LABELS
from harness.endpoints.steady.steady_point import SteadyState
from harness.endpoints.steady.super_passes import series
from harness.endpoints.view.curve_files import MeasuredCurve
from harness.endpoints.view.measured_point import CurvePoint
from harness.endpoints.view.pareto import step_function
from harness.report.html.page import Axis, Chart, Limit, Series, Shade

USER = "tokens/s of a user, 1000 / TPOT p90 in ms"
_MS = 1e-6
_NAN = float("nan")
_COLORS: Mapping[Band | None, int] = {"ultra_low": 6, "low": 2, "med": 4, "high": 1, "margin": 3, None: 7}
_OFFLINE = 5  # colour


def pareto_chart(curve: MeasuredCurve) -> Iterator[Chart]:
    """Each point's number of requests in flight stands beside it."""
    points = sorted(curve.steps, key=lambda one: one.tps_per_user or 0.0)
    if not points:
        return
    x = np.array([one.tps_per_user for one in points], dtype=float)
    rates = np.array([one.system_tps for one in points], dtype=float)
    lines = [Series("curve", step_function(points).at(x), 0, "steps")]
    if curve.offline is not None and curve.offline.offline == "dedicated" and curve.offline.system_tps:
        ceiling = np.full(len(x), curve.offline.system_tps)
        lines.append(Series("Offline", ceiling, _OFFLINE, names=("Offline", *[""] * (len(x) - 1))))
    yield Chart(
        "pareto",
        "Tokens/s of the system by tokens/s of a user",
        x,
        [*lines, *_by_band(points, rates)],
        "number",
        x_label=USER,
        note="the step function of the rules, without interpolation; at each point its requests in flight",
    )


def _by_band(points: Sequence[CurvePoint], rates: Floats) -> Iterator[Series]:
    for band, color in _COLORS.items():
        mask = np.array([one.band == band for one in points])
        if mask.any():
            names = [_name(one) if one.band == band else "" for one in points]
            yield Series(LABELS[band], np.where(mask, rates, _NAN), color, "points", names=names)


def _name(point: CurvePoint) -> str:
    name = f"{point.concurrency:,}" if point.concurrency else point.name
    return f"{name}, elected Offline" if point.offline == "elected" else name


def times_charts(curve: MeasuredCurve) -> Iterator[Chart]:
    """TPOT and TTFT by requests in flight."""
    points = [one for one in curve.steps if one.concurrency]
    x = np.array([one.concurrency for one in points], dtype=float)
    found = {"TPOT": [one.tpot_ns for one in points], "TTFT": [one.ttft_ns for one in points]}
    for name, times in found.items():
        lines = [
            Series(f"p{share}", np.array([each.get(share, _NAN) * _MS for each in times]), color)
            for color, share in enumerate((50, 90))
        ]
        y_axis: Axis = "log" if name == "TTFT" else "number"
        title = f"{name} by requests in flight, ms"
        if points and np.isfinite(lines[1].values).any():
            yield Chart(f"{name.lower()}-by-n", title, x, lines, "log", y_axis, "in flight")


def steady_charts(states: Mapping[str, SteadyState]) -> Iterator[Chart]:
    """TPOT of every super-pass of a point, with the reported window shaded."""
    for name, state in states.items():
        numbers = [number for number, one in enumerate(state.passes, 1) if one.tpot_count]
        if len(numbers) < 2:
            continue
        x, passes = np.array(numbers, dtype=float), [state.passes[number - 1] for number in numbers]
        lines = [
            Series("p50", series(passes, "tpot_p50") * _MS, 0, "points"),
            Series("p90", series(passes, "tpot_p90") * _MS, 1, "points"),
        ]
        window, shift = state.window, state.level_shift
        limits = [] if shift is None else [Limit("level shift", shift.super_pass + 1, "x", event=True)]
        yield Chart(
            f"steady-{name}",
            f"{name}: TPOT of each super-pass, ms",
            x,
            lines,
            "number",
            x_label="super-pass",
            limits=limits,
            note=state.reason,
            shade=None if window is None else Shade(window.first + 0.5, window.last + 1.5),
        )
