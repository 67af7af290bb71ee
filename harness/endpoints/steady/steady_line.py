"""Steady state in words: one line for the console after each pass, so that a user knows whether to wait.

Passes count from 1 here, as people count them.
"""

import math
from collections.abc import Sequence

import numpy as np

from harness.arrays import Floats
from harness.endpoints.steady.plateaus import (
    GATES,
    LEAST_DRIFT,
    MOST_VARIATION,
    Plateau,
    first_long_enough,
    flat,
    least_time,
    plateaus,
    ramp_up,
)
from harness.endpoints.steady.super_passes import SuperPass, issue_seconds, series
from harness.endpoints.steady.trend import FEWEST, drift, variation
from harness.text import duration, milliseconds

NO_TPOT = "a pass has no TPOT: nothing was streamed, or each answer came at once"


def steady_line(passes: Sequence[SuperPass], required_s: float) -> str:
    """What the passes so far say, such as ``steady since pass 3: 640 of 1,200 s, about 9m20s more``.

    ``passes``: at least one, each with all of its answers; the longest are the last to end.
    ``required_s``: shortest issue time of an official window.
    """
    first = ramp_up(passes)
    if found := plateaus(passes, first):
        parts = [each.of(passes) for each in found]
        issue_s = [issue_seconds(part) for part in parts]
        at = first_long_enough(issue_s, [shortest_s(part, 0) for part in parts])
        window = found[-1 if at is None else at]
        is_last = window.end == len(passes)
        return (_steady_since if is_last else _steady_before)(passes, window, required_s)
    if len(passes) - first >= FEWEST:
        return movement(passes, Plateau(first, len(passes)))
    return _beginning(passes, first, required_s)


def _steady_since(passes: Sequence[SuperPass], plateau: Plateau, required_s: float) -> str:
    seconds = issue_seconds(plateau.of(passes))
    shortest = shortest_s(plateau.of(passes), required_s)
    left = f", about {duration(shortest - seconds)} more" if shortest > seconds else ", long enough"
    moves = leaning(passes, plateau)
    return f"steady since pass {plateau.first + 1}: {seconds:,.0f} of {shortest:,.0f} s{left}{moves}"


def _steady_before(passes: Sequence[SuperPass], plateau: Plateau, required_s: float) -> str:
    seconds = issue_seconds(plateau.of(passes))
    enough = ", long enough" if seconds >= shortest_s(plateau.of(passes), required_s) else ""
    was = f"{between(plateau)} were, for {seconds:,.0f} s{enough}"
    return f"no longer steady ({was}): {movement(passes, Plateau(plateau.first, len(passes)))}"


def shortest_s(passes: Sequence[SuperPass], required_s: float) -> float:
    """The shortest issue time of an official window, by the rules and by the detector."""
    latency = float(np.median(series(passes, "latency_p90")))
    return max(required_s, least_time(passes, latency).seconds)


def _beginning(passes: Sequence[SuperPass], first: int, required_s: float) -> str:
    last, before = passes[-1].tpot_p90, passes[-2].tpot_p90 if len(passes) > 1 else 0.0
    if math.isnan(last):
        return NO_TPOT
    change = f", {100 * (last / before - 1):+.1f} % from the pass before" if before > 0 else ""
    each = issue_seconds(passes) / len(passes)
    needed = max(FEWEST, math.ceil(shortest_s(passes[-1:], required_s) / each) if each else 0)
    window = Plateau(first, first + needed)
    left = duration((window.end - len(passes)) * each)
    now = f"TPOT p90 {milliseconds(last)} ms in pass {len(passes)}{change}"
    return f"{now}; a window needs {between(window)}, about {left} more"


def between(part: Plateau) -> str:
    """``passes 2 to 5``."""
    return f"passes {part.first + 1} to {part.end}"


def movement(passes: Sequence[SuperPass], part: Plateau) -> str:
    """Why these passes are no plateau: the first gating metric that is not flat, and how much it moves."""
    for metric in GATES:
        values = series(part.of(passes), metric)
        if np.isnan(values).any():
            return NO_TPOT
        if not flat(values):
            return f"{name(metric)} {_moves(values)} over {between(part)}"
    return f"no {FEWEST} of {between(part)} in a row are steady"


def leaning(passes: Sequence[SuperPass], plateau: Plateau) -> str:
    """How a plateau moves that is too short for the trend to be significant; else empty."""
    rises = [(metric, drift(series(plateau.of(passes), metric))) for metric in reversed(GATES)]
    for metric, rise in rises:
        if abs(rise) >= LEAST_DRIFT:
            return f"; {name(metric)} {'rises' if rise > 0 else 'falls'} by {100 * abs(rise):.0f} % over it"
    return ""


def name(metric: str) -> str:
    """``TPOT p90``."""
    return metric.upper().replace("_P", " p")


def _moves(values: Floats) -> str:
    rise = drift(values)
    if abs(rise) >= LEAST_DRIFT and abs(rise) >= variation(values):
        return f"drifts {'up' if rise > 0 else 'down'} by {100 * abs(rise):.0f} %"
    return f"varies by {100 * variation(values):.1f} % ({100 * MOST_VARIATION:.0f} % allowed)"
