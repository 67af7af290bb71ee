"""Where a run is steady: the ramp-up that is cropped, plateaus, their shortest time, level shifts."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from harness.arrays import Floats
from harness.endpoints.steady.super_passes import SuperPass, issue_seconds, series
from harness.endpoints.steady.trend import FEWEST, change_point, direction, drift, level, variation

GATES = ("tpot_p50", "tpot_p90")
MOST_VARIATION = 0.08  # the loosest of the detector's bounds 3, 5 and 8 %; one of them is enough
LEAST_DRIFT = 0.05  # A significant trend that rises or falls less over the plateau does not end it.
_BAND = 0.05  # Super-passes at the start this far from the level of the second half are ramp-up.
_LEAST_CROP = 1
_MOST_CROP = 0.5  # of the super-passes
_SHIFT = 0.05  # by which the mean TPOT of two plateaus differs

_PRECISION = 0.05  # half width of the interval of the mean TPOT that a window allows
_LATENCIES = 5.0  # A window lasts at least this multiple of the p90 latency.
_FLOOR_S = 600.0


class Plateau(NamedTuple):
    """Super-passes from ``first`` to before ``end``, counted from 0 in the run."""

    first: int
    end: int

    def of(self, passes: Sequence[SuperPass]) -> Sequence[SuperPass]:
        """Its super-passes."""
        return passes[self.first : self.end]


class LeastTime(msgspec.Struct, frozen=True, kw_only=True):
    """The shortest issue time in s that the detector accepts for a window, and the term that sets it."""

    seconds: float
    term: Literal["precision", "relaxation", "floor"]


class LevelShift(msgspec.Struct, frozen=True, kw_only=True):
    """A later plateau on another level."""

    super_pass: int
    """the first after the step, counted from 0 in the run"""
    percent: float
    """by which the later plateau's mean TPOT differs"""


def ramp_up(passes: Sequence[SuperPass]) -> int:
    """How many super-passes at the start are cropped: at least one, at most half."""
    values = series(passes, "tpot_p50")
    values = values[~np.isnan(values)]
    if len(values) < FEWEST:
        return _LEAST_CROP
    settled = level(values[len(values) // 2 :])
    most = max(_LEAST_CROP, int(len(values) * _MOST_CROP))
    far = np.abs(values[:most] - settled) / settled > _BAND
    return max(_LEAST_CROP, most if far.all() else int(far.argmin()))


def gates(passes: Sequence[SuperPass]) -> Floats:
    """A row of figures for each gating metric, a column for each super-pass."""
    return np.array([series(passes, gate) for gate in GATES])


def flat(values: Floats) -> bool:
    """Whether a metric neither drifts nor scatters; never true where a super-pass has none."""
    if np.isnan(values).any() or variation(values) > MOST_VARIATION:
        return False
    return abs(drift(values)) < LEAST_DRIFT or direction(values) == "steady"


def plateaus(passes: Sequence[SuperPass], first: int) -> list[Plateau]:
    """All plateaus from ``first`` on, each as long as it stays flat while it grows to the right."""
    found, figures = [], gates(passes)
    while first + FEWEST <= len(passes):
        end = first + FEWEST
        while end <= len(passes) and all(flat(metric[first:end]) for metric in figures):
            end += 1
        if end > first + FEWEST:
            found.append(Plateau(first, end - 1))
            first = end - 1
        else:
            first += 1
    return found


def least_time(passes: Sequence[SuperPass], latency_p90_ns: float) -> LeastTime:
    """The shortest issue time of a window of these super-passes, from its own scatter and latencies."""
    batches = math.ceil((1.96 * variation(series(passes, "tpot_p50")) / _PRECISION) ** 2)
    spans = [issue_seconds([each]) for each in passes]
    precision = batches * float(np.median([s for s in spans if s] or [0.0])) if batches > FEWEST else 0.0
    relaxation = 0.0 if math.isnan(latency_p90_ns) else _LATENCIES * latency_p90_ns / 1e9
    seconds = max(precision, relaxation, _FLOOR_S)
    if seconds == precision:
        return LeastTime(seconds=seconds, term="precision")
    return LeastTime(seconds=seconds, term="relaxation" if seconds == relaxation else "floor")


def first_long_enough(issue_s: Sequence[float], least_s: Sequence[float]) -> int | None:
    """Which plateau is the window, whatever follows it; None if all are too short."""
    pairs = zip(issue_s, least_s, strict=True)
    return next((at for at, (seconds, least) in enumerate(pairs) if seconds >= least), None)


def level_shift(
    passes: Sequence[SuperPass], cropped: int, reported: Plateau, later: Sequence[Plateau]
) -> LevelShift | None:
    """The first of the ``later`` plateaus on another level, if the run after the crop has a change point."""
    step = change_point(np.nan_to_num(series(passes[cropped:], "tpot_mean")))
    before = _mean_tpot(reported.of(passes))
    for plateau in later if step.significant and before > 0 else ():
        part = _mean_tpot(plateau.of(passes)) / before - 1
        if abs(part) > _SHIFT:
            return LevelShift(super_pass=cropped + step.first, percent=100 * part)
    return None


def _mean_tpot(passes: Sequence[SuperPass]) -> float:
    return float(np.average(series(passes, "tpot_mean"), weights=series(passes, "tpot_count")))
