"""The static picture of a chart: numbers for the template's SVG, for readers without JavaScript."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.analysis.queries import Floats
from harness.report.html.page import Chart, Series

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 34
_TICKS = 5
_MOST_POINTS = 300


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a position of its axis, in pixels."""

    position: float
    label: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A series: SVG path data, and whether its line is drawn or its points."""

    path: str
    color: int
    label: str
    dots: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """The parts that the template draws."""

    shapes: tuple[Shape, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[tuple[float, str], ...]  # limits of y: position and label


class _Scale:
    """From values to pixels."""

    def __init__(self, low: float, high: float, begin: float, end: float, *, log: bool) -> None:
        self._log = log
        self._low, self._high = (math.log10(low), math.log10(high)) if log else (low, high)
        self._begin, self._end = begin, end

    def __call__(self, values: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            shown = np.log10(values) if self._log else values
        span = self._high - self._low or 1.0
        return self._begin + (shown - self._low) / span * (self._end - self._begin)

    def ticks(self, label: "Label") -> Iterator[Tick]:
        """Five, evenly."""
        for step in range(_TICKS):
            part = step / (_TICKS - 1)
            value = self._low + part * (self._high - self._low)
            position = self._begin + part * (self._end - self._begin)
            yield Tick(round(position, 1), label(10**value if self._log else value))


class Label:
    """The format of an axis's values."""

    def __init__(self, axis: str) -> None:
        self._axis = axis

    def __call__(self, value: float) -> str:
        """The text beside a tick."""
        if self._axis == "seconds":
            return clock(value)
        if self._axis == "nines":
            return share(value)
        return f"{value:.3g}" if abs(value) < 1e4 else f"{value:,.0f}"


def picture(chart: Chart) -> Picture | None:
    """None where no value can be drawn."""
    low_x, high_x = _range([chart.x])
    series = [one for one in chart.series if np.isfinite(_positive(chart, one)).any()]
    if not series or math.isnan(low_x):
        return None
    limits = [limit for limit in chart.limits if limit.axis == "y"]
    low_y, high_y = _range([_positive(chart, one) for one in series])
    high_y = max([high_y, *(limit.value for limit in limits if limit.value < 4 * high_y or high_y == 0)])
    if chart.y_axis != "log":
        low_y = min(low_y, 0.0)
    x = _Scale(low_x, high_x, LEFT, WIDTH - RIGHT, log=False)
    y = _Scale(low_y, high_y, HEIGHT - BOTTOM, TOP, log=chart.y_axis == "log")
    return Picture(
        tuple(_shape(one, x(chart.x), y(_positive(chart, one))) for one in series),
        tuple(x.ticks(Label(chart.x_axis))),
        tuple(y.ticks(Label(chart.y_axis))),
        tuple(
            (round(float(y(np.array([limit.value]))[0]), 1), limit.label)
            for limit in limits
            if low_y <= limit.value <= high_y
        ),
    )


def _positive(chart: Chart, series: Series) -> Floats:
    values = np.asarray(series.values, float)
    return np.where(values > 0, values, np.nan) if chart.y_axis == "log" else values


def _shape(series: Series, x: Floats, y: Floats) -> Shape:
    chosen = np.linspace(0, len(x) - 1, min(len(x), _MOST_POINTS)).astype(int)
    dots = series.style == "points"
    if dots:
        chosen = np.flatnonzero(np.isfinite(y))
        chosen = chosen[np.linspace(0, len(chosen) - 1, min(len(chosen), _MOST_POINTS)).astype(int)]
    parts, drawing = [], False
    for left, top in zip(x[chosen].tolist(), y[chosen].tolist(), strict=True):
        if not math.isfinite(top):
            drawing = False
            continue
        parts.append(f"{'L' if drawing else 'M'}{left:.1f} {top:.1f}" + ("h0" if dots else ""))
        drawing = not dots
    return Shape("".join(parts), series.color, series.label, dots)


def _range(columns: list[Floats]) -> tuple[float, float]:
    finite = [column[np.isfinite(column)] for column in columns]
    values = np.concatenate(finite) if finite else np.empty(0)
    return (float(values.min()), float(values.max())) if len(values) else (math.nan, math.nan)


def clock(seconds: float) -> str:
    """``1:05`` or ``2:03:10``; parts of a second below ten seconds."""
    if seconds < 10:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def share(nines: float) -> str:
    """``p99.9``."""
    percent = 100 * (1 - 10.0**-nines)
    return f"p{percent:.{max(0, math.ceil(nines) - 2)}f}"
