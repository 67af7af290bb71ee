"""The steady state of a point: status, verdict, window and its numbers (rules, section 4.4)."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from harness.analysis.statistics import user_tokens_per_s
from harness.arrays import Floats, Integers
from harness.endpoints.samples import Samples, latency_ns, tpot_ns, ttft_ns
from harness.endpoints.steady.plateaus import (
    GATES,
    LeastTime,
    LevelShift,
    Plateau,
    first_long_enough,
    least_time,
    level_shift,
    plateaus,
    ramp_up,
)
from harness.endpoints.steady.steady_line import between, leaning, movement, name
from harness.endpoints.steady.super_passes import (
    SuperPass,
    issue_seconds,
    percentile,
    series,
    super_passes,
)
from harness.endpoints.steady.trend import FEWEST, Direction, direction, interval

Status = Literal["windowable", "insufficient_duration", "insufficient_passes", "partial_dataset"]
Verdict = Literal["STEADY STATE", "drifting_up", "drifting_down", "anomaly", "not found"]
State = Literal["Plateau", "Drifting Up", "Drifting Down"]

WINDOWABLE: Status = "windowable"
STEADY: Verdict = "STEADY STATE"
WATCHED = ("ttft_p50", "ttft_p90", *GATES)

STATES: dict[str, State] = {"up": "Drifting Up", "down": "Drifting Down", "steady": "Plateau"}


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A time over the requests of the window; percentiles are elements int(p * (n - 1))."""

    p50_ns: float
    p90_ns: float
    p99_ns: float
    mean_ns: float
    count: int


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens/s with its 95 % interval of batch means, a super-pass a batch."""

    value: float
    low: float
    high: float


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The reported plateau, and its numbers. Super-passes count from 0 in the run, ends included."""

    first: int
    last: int
    samples: int
    """with a first fragment, as the official detector counts them"""
    issue_s: float
    """from its first issue to its last; the drain is after it"""
    least: LeastTime
    system_tps: float
    """output tokens / issue time"""
    tps_per_user: float | None
    """1000 / TPOT p90 in ms; None of a TPOT of 0"""
    ttft: Spread
    tpot: Spread
    detector_user: Rate
    """the official detector's: 1 / mean TPOT"""
    detector_system: Rate
    """the official detector's: tokens after the first fragment / issue time"""

    @property
    def plateau(self) -> Plateau:
        """Its super-passes."""
        return Plateau(self.first, self.last + 1)

    @property
    def long_enough(self) -> bool:
        """Whether the detector accepts it; section 6.2 may ask for more."""
        return self.issue_s >= self.least.seconds


class SteadyState(msgspec.Struct, frozen=True, kw_only=True):
    """What section 4.4 says of a point. Super-passes count from 0 in the run."""

    status: Status
    verdict: Verdict
    super_pass_size: int
    passes: tuple[SuperPass, ...]
    """all of the run, in order; the last one may be incomplete"""
    cropped: int
    """super-passes at the start that are ramp-up"""
    plateaus: tuple[Plateau, ...]
    """all that are steady"""
    window: Window | None
    """the reported plateau, or the longest one if all are too short; none without a plateau"""
    required_s: float
    """shortest issue time of an official window (section 6.2)"""
    trend: dict[str, Direction]
    """of TPOT and TTFT from the start of the window (or the crop) to the end of the run"""
    level_shift: LevelShift | None

    @property
    def complete(self) -> int:
        """Complete super-passes."""
        return sum(each.issued == self.super_pass_size for each in self.passes)

    @property
    def issued(self) -> int:
        """Requests of the run."""
        return sum(each.issued for each in self.passes)

    @property
    def requests(self) -> tuple[int, int] | None:
        """The first request of the window and the one after its last, in the order of issue."""
        if self.window is None:
            return None
        first, end = self.window.plateau
        return first * self.super_pass_size, min(end * self.super_pass_size, self.issued)

    @property
    def reason(self) -> str:
        """Why this verdict and status, in one sentence; passes count from 1."""
        if self.window is None:
            return self._no_window()
        window = self.window
        span = f"{between(window.plateau)} ({window.issue_s:,.0f} s)"
        if not window.long_enough:
            needed = f"{window.least.seconds:,.0f} s needed ({window.least.term})"
            return f"the longest plateau, {span}, is too short: {needed}"
        ramp = f"; passes 1 to {self.cropped} count as ramp-up" if self.cropped > 1 else ""
        return f"steady over {span}{leaning(self.passes, window.plateau)}{ramp}{self._restriction()}"

    def _no_window(self) -> str:
        usable = len(self.passes) - self.cropped
        if self.status == "partial_dataset":
            return f"fewer than {self.super_pass_size:,} requests: not one pass of the dataset"
        if usable < FEWEST:
            return f"{max(0, usable)} super-passes after {self.cropped} of ramp-up: a window needs {FEWEST}"
        return movement(self.passes, Plateau(self.cropped, len(self.passes)))

    def _restriction(self) -> str:
        """What keeps the window from being official, and what the run does after it."""
        short = f"; {self.required_s:,.0f} s needed" if self.status == "insufficient_duration" else ""
        if shift := self.level_shift:
            return f"{short}; TPOT {shift.percent:+.0f} % from pass {shift.super_pass + 1} on"
        moving = [metric for metric in GATES if self.trend[metric] in ("up", "down")]
        return short + "".join(f"; {name(m)} drifts {self.trend[m]} to the end of the run" for m in moving)


def steady_state(samples: Samples, dataset_size: int, required_s: float) -> SteadyState:
    """Judge the requests of a point, rows in the order of issue.

    ``required_s``: shortest issue time of an official window.
    """
    passes = super_passes(samples, dataset_size)
    cropped = ramp_up(passes)
    found = plateaus(passes, cropped)
    windows = [_window(samples[p.first * dataset_size : p.end * dataset_size], passes, p) for p in found]
    issue_s = [each.issue_s for each in windows]
    at = first_long_enough(issue_s, [each.least.seconds for each in windows])
    if at is None:
        at = int(np.argmax(issue_s)) if windows else 0
    window = windows[at] if windows else None
    tail = passes[window.first if window else cropped :]
    trend = {metric: _direction(tail, metric) for metric in WATCHED}
    shortest = max(required_s, window.least.seconds) if window else required_s
    shift = level_shift(passes, cropped, found[at], found[at + 1 :]) if window else None
    return SteadyState(
        status=status_of(len(samples) // dataset_size, window.issue_s if window else None, shortest),
        verdict=verdict_of(window is not None and window.long_enough, shift is not None, trend),
        super_pass_size=dataset_size,
        passes=tuple(passes),
        cropped=cropped,
        plateaus=tuple(found),
        window=window,
        required_s=required_s,
        trend=trend,
        level_shift=shift,
    )


def is_official(status: str | None, verdict: str | None) -> bool:
    """Whether the window's numbers are the point's result; else those of the complete run are."""
    return status == WINDOWABLE and verdict in (STEADY, "anomaly")


def status_of(complete: int, window_s: float | None, required_s: float) -> Status:
    """Of ``complete`` super-passes with a window of this issue time; None without a plateau."""
    if not complete:
        return "partial_dataset"
    if window_s is None:
        return "insufficient_passes"
    return WINDOWABLE if window_s >= required_s else "insufficient_duration"


def verdict_of(found: bool, shifted: bool, trend: Mapping[str, str]) -> Verdict:
    """``found``: whether a plateau is long enough for the detector."""
    if not found:
        return "not found"
    if shifted:
        return "anomaly"
    gating = {trend.get(gate) for gate in GATES}
    return "drifting_up" if "up" in gating else "drifting_down" if "down" in gating else STEADY


def states_of(plateau: bool, trend: Mapping[str, str]) -> dict[str, State]:
    """Of the gating metrics: over the plateau, or without one those that are long enough for a trend."""
    if plateau:
        return dict.fromkeys(GATES, "Plateau")
    return {gate: STATES[trend[gate]] for gate in GATES if trend.get(gate) in STATES}


def _direction(passes: Sequence[SuperPass], metric: str) -> Direction:
    values = series(passes, metric)
    return direction(values[~np.isnan(values)])


def _window(rows: Samples, passes: Sequence[SuperPass], plateau: Plateau) -> Window:
    part = plateau.of(passes)
    tpot, ttft, seconds = spread(tpot_ns(rows)), spread(ttft_ns(rows)), issue_seconds(part)
    tokens = sum(each.output_tokens for each in part)
    return Window(
        first=plateau.first,
        last=plateau.end - 1,
        samples=ttft.count,
        issue_s=seconds,
        least=least_time(part, percentile(latency_ns(rows), 0.9)),
        system_tps=tokens / seconds if seconds else 0.0,
        tps_per_user=user_tokens_per_s(tpot.p90_ns),
        ttft=ttft,
        tpot=tpot,
        detector_user=_user_rate(part, tpot.mean_ns),
        detector_system=_system_rate(part, seconds),
    )


def spread(values: Floats | Integers) -> Spread:
    """Of at least one value."""
    p50, p90, p99 = (percentile(values, share) for share in (0.5, 0.9, 0.99))
    return Spread(p50_ns=p50, p90_ns=p90, p99_ns=p99, mean_ns=float(values.mean()), count=len(values))


def _user_rate(part: Sequence[SuperPass], mean_tpot: float) -> Rate:
    """The interval is that of TPOT, so its upper end is the lower end of the rate."""
    low, high = interval(series(part, "tpot_mean"))
    value, least, most = (user_tokens_per_s(tpot) or 0.0 for tpot in (mean_tpot, high, low))
    return Rate(value=value, low=least, high=most)


def _system_rate(part: Sequence[SuperPass], seconds: float) -> Rate:
    """Over the issue time of the window; the half width from the rates of its super-passes."""
    spans = [(each.suffix_tokens, issue_seconds([each])) for each in part]
    rates = np.array([tokens / span for tokens, span in spans if span > 0])
    low, high = interval(rates) if len(rates) else (0.0, 0.0)
    value = sum(tokens for tokens, _ in spans) / seconds if seconds else 0.0
    return Rate(value=value, low=value - (high - low) / 2, high=value + (high - low) / 2)
