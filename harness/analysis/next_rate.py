"""The rate to try after a run that missed a latency limit: a guess, from which a search begins."""

import math

import msgspec

from harness.loadgen_logs.summary_and_detail import LoadgenSummary

_STEP_DOWN = 0.9  # the rate to try after a missed limit, as a part of the rate that was reached
_FAR = 4.0  # times its limit: beyond, a fixed part of TPOT, which no rate changes, decides more than the rate


class NextRate(msgspec.Struct, frozen=True):
    """The rate to try next."""

    target_qps: float | None
    """two digits; None: TPOT is too far over its limit for a guess"""
    ratio: float
    """TPOT over its limit, 1 where it is not over it"""

    @property
    def text(self) -> str:
        """``a guess for the next try: target_qps = 17``."""
        if self.target_qps is None:
            return f"no rate follows from TPOT of {self.ratio:.0f} times its limit"
        return f"a guess for the next try: target_qps = {self.target_qps:g}"


def rate_to_try(target: float, reached: float, ratio: float) -> NextRate:
    """TPOT grows about as the requests in flight do, TTFT steeply where the server falls behind.

    ``reached``: completed samples per second; ``ratio``: TPOT over its limit.
    """
    ratio = max(ratio, 1.0)
    rate = min(target, reached) * min(_STEP_DOWN, 1 / ratio)
    return NextRate(float(f"{rate:.2g}") if ratio <= _FAR else None, ratio)


def missed_limits(loadgen: LoadgenSummary, percentile: float) -> dict[str, tuple[float, float]]:
    """TTFT and TPOT that are over their limit at the percentile that it is for, each with both in ns.

    LoadGen's summary has the percentiles 50, 90, 95, 97, 99 and 99.9; at another one nothing is known.
    """
    found: dict[str, tuple[float, float]] = {}
    for name in ("TTFT", "TPOT"):
        value_ns, limit_ns = loadgen.percentile_ns(name, f"{100 * percentile:.2f}"), loadgen.limit_ns(name)
        if value_ns is not None and limit_ns is not None and value_ns > limit_ns:
            found[name] = (value_ns, limit_ns)
    return found


def rate_after(loadgen: LoadgenSummary, percentile: float) -> NextRate | None:
    """The rate to try after a complete run; None where no limit was missed, as far as is known."""
    missed, target = missed_limits(loadgen, percentile), target_qps(loadgen)
    reached = loadgen.samples_per_s
    if not missed or not reached or not target > 0:
        return None
    value_ns, limit_ns = missed.get("TPOT", (1.0, 1.0))
    return rate_to_try(target, reached, value_ns / limit_ns)


def target_qps(loadgen: LoadgenSummary) -> float:
    """The rate that LoadGen was asked for; nan where its summary has none."""
    try:
        return float(loadgen.parameters["target_qps"])
    except (KeyError, ValueError):
        return math.nan
