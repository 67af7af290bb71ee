"""The rate to try after a run that missed a latency limit: a guess, from which a search begins."""

import math

from harness.loadgen_logs.summary_and_detail import LoadgenSummary

_STEP_DOWN = 0.9  # the rate to try after a missed limit, as a part of the rate that was reached


def rate_to_try(target: float, reached: float, tpot_ratio: float = 1.0) -> float:
    """Two digits. TPOT grows about as the requests in flight do, TTFT steeply where the server falls behind.

    ``reached``: completed samples per second; ``tpot_ratio``: TPOT over its limit.
    """
    rate = min(target, reached) * min(_STEP_DOWN, 1 / tpot_ratio)
    return float(f"{rate:.2g}")


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


def rate_after(loadgen: LoadgenSummary, percentile: float) -> float | None:
    """The rate to try after a complete run; None where no limit was missed, as far as is known."""
    missed, target = missed_limits(loadgen, percentile), target_qps(loadgen)
    reached = loadgen.figures.get("Completed samples per second")
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
