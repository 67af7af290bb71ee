"""Steady state in the forms of the official files: one key, two shapes.

``steady_state`` of point.yaml is what the submission checker reads; super-passes count from 0 in the run.
That of result_summary.json is the headline that the official client writes with ``--steady-state``, where
they count from 0 after the ramp-up.
"""

from typing import Any

import msgspec

from harness.endpoints.official_files import Fields
from harness.endpoints.planning.rules import load_endpoints_rules
from harness.endpoints.steady.steady_point import (
    Rate,
    SteadyState,
    Window,
    states_of,
    status_of,
    verdict_of,
)

_IN_POINT = ("status", "verdict", "window", "state", "anomaly")  # the keys of point.yaml's block


class HeadlineWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The extent of the window, and which plateau it is. What is None by default is written alone."""

    sp_lo: int
    sp_hi: int
    """the first super-pass after it"""
    n_samples: int
    n_super_passes: int | None = None
    plateau_index: int | None = None
    n_plateaus: int | None = None
    skipped_short: int | None = None


class ShortWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The window's issue time, and the shortest that the detector accepts."""

    window_duration_s: float
    min_duration_s: float
    is_short: bool | None = None
    dominant: str | None = None


class HeadlineShift(msgspec.Struct, frozen=True, kw_only=True):
    """A later plateau on another level."""

    detected: bool
    change_point_sp: int | None = None
    delta_pct: float | None = None


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """``steady_state`` of result_summary.json."""

    found: bool
    reason: str | None = None
    window: HeadlineWindow | None = None
    tps: dict[str, Any] | None = None
    ttft: dict[str, Any] | None = None
    tpot: dict[str, Any] | None = None
    short_window: ShortWindow | None = None
    drifting_up: tuple[str, ...] = ()
    anomaly: HeadlineShift | None = None
    global_trend: dict[str, str] | None = None
    profile: str | None = None
    profile_caveat: str | None = None
    superpass_size: int | None = None
    n_super_passes: int | None = None
    n_post_warmup: int | None = None


def steady_headline(state: SteadyState) -> dict[str, Any]:
    """``steady_state`` of result_summary.json: the official client's fields and those of point.yaml."""
    found: dict[str, Any] = msgspec.to_builtins(headline(state))
    block = steady_block(state)
    window = found["window"] | block["window"] if state.window else None
    return block | found | {"window": window}


def steady_block(state: SteadyState) -> dict[str, Any]:
    """``steady_state`` of point.yaml."""
    return block_of(headline(state), complete=state.complete, required_s=state.required_s)


def block_of_summary(summary: Fields, concurrency: int | None) -> dict[str, Any] | None:
    """``steady_state`` of point.yaml from that of a result_summary.json of any client.

    None where there is none, or in no known form. ``concurrency``: None where it is unknown.
    """
    found = summary.get("steady_state")
    if isinstance(found, dict) and "verdict" in found:  # this client writes both forms as one
        return {name: found[name] for name in _IN_POINT if found.get(name) is not None}
    try:
        read = msgspec.convert(found, Headline, strict=False)
    except msgspec.ValidationError:
        return None
    required_s = load_endpoints_rules().least_issue_s(concurrency)
    return block_of(read, complete=read.n_super_passes or 0, required_s=required_s)


def block_of(read: Headline, *, complete: int, required_s: float) -> dict[str, Any]:
    """``steady_state`` of point.yaml after ``complete`` super-passes."""
    trend, window, short = read.global_trend or {}, read.window, read.short_window
    shifted = read.anomaly is not None and read.anomaly.detected
    verdict = verdict_of(read.found, shifted, trend)
    seconds = short.window_duration_s if window and short else None
    shortest = max(required_s, short.min_duration_s) if short else required_s
    block: dict[str, Any] = {"status": status_of(complete, seconds, shortest), "verdict": verdict}
    if window:
        cropped = (read.n_super_passes or 0) - (read.n_post_warmup or 0)
        block["window"] = {
            "super_pass_start": cropped + window.sp_lo,
            "super_pass_end": cropped + window.sp_hi - 1,
            "super_pass_size": read.superpass_size,
            "n_samples": window.n_samples,
            "duration_s": seconds,
        }
    if states := states_of(window is not None, trend):
        block["state"] = states
    if verdict == "anomaly":
        block["anomaly"] = msgspec.to_builtins(read.anomaly)
    return block


def headline(state: SteadyState) -> Headline:
    """The official client's figures of this state."""
    window, shift, found = state.window, state.level_shift, state.verdict != "not found"
    return Headline(
        found=found,
        reason=None if found else state.reason,
        window=_extent(state, window) if window else None,
        tps=_rates(window.detector_user, window.detector_system) if window else None,
        ttft=msgspec.to_builtins(window.ttft) if window else None,
        tpot=msgspec.to_builtins(window.tpot) if window else None,
        short_window=_short(window) if window else None,
        drifting_up=tuple(metric for metric, direction in state.trend.items() if direction == "up"),
        anomaly=HeadlineShift(
            detected=True, change_point_sp=shift.super_pass - state.cropped, delta_pct=shift.percent
        )
        if shift
        else None,
        global_trend=dict(state.trend),
        profile="concurrency",
        superpass_size=state.super_pass_size,
        n_super_passes=len(state.passes),
        n_post_warmup=max(0, len(state.passes) - state.cropped),
    )


def _extent(state: SteadyState, window: Window) -> HeadlineWindow:
    at = state.plateaus.index(window.plateau)
    return HeadlineWindow(
        sp_lo=window.first - state.cropped,
        sp_hi=window.last + 1 - state.cropped,
        n_samples=window.samples,
        n_super_passes=window.last + 1 - window.first,
        plateau_index=at,
        n_plateaus=len(state.plateaus),
        skipped_short=at,  # A longer one before it would have been reported.
    )


def _rates(user: Rate, system: Rate) -> dict[str, Any]:
    """Tokens/s as the detector counts them, with their intervals."""
    return {
        "per_user": user.value,
        "system": system.value,
        "per_user_ci": (user.low, user.high),
        "system_ci": (system.low, system.high),
    }


def _short(window: Window) -> ShortWindow:
    return ShortWindow(
        is_short=not window.long_enough,
        window_duration_s=window.issue_s,
        min_duration_s=window.least.seconds,
        dominant=window.least.term,
    )
