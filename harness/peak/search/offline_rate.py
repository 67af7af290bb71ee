"""The target_qps of Offline: for a run that is valid and not much longer than necessary."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.analysis.statistics import completed
from harness.config.expected_queries import expected_queries
from harness.config.loadgen_settings import Setting
from harness.peak.search.schedule import rounded
from harness.record.journal import Rows

SLACK = 1.03  # of the time that a run must last: the next one may be faster
_MIDDLE = (0.25, 0.75)  # of the answers of the short run, whose rate is that of a full server


@dataclass(frozen=True, slots=True)
class OfflineRate:
    """A rate, and its run: ``samples`` in ``seconds``. ``measured``: samples/s of a full server."""

    rate: float
    samples: int
    seconds: float
    least_s: float
    measured: float
    with_ends: float
    measured_samples: int
    conf_row: str = ""


def full_rate(rows: Rows) -> float:
    """Samples per second in the middle of a run, while the server was full."""
    ends = np.sort(completed(rows)["last_byte_ns"])
    low, high = (int(share * (len(ends) - 1)) for share in _MIDDLE)
    return (high - low) / max(float(ends[high] - ends[low]) / 1e9, 1e-9)


def offline_rate(
    settings: Mapping[str, Setting], samples: int, measured: float, with_ends: float, measured_samples: int
) -> OfflineRate:
    """The rate whose query has the fewest samples that keep a server of this speed busy for min_duration.

    LoadGen fills up to complete datasets of ``samples`` rows; it asks for 1.1 times what target_qps makes in
    min_duration, so that many rates make the same query: the one nearest to what was measured is taken.
    """
    least_s = float(settings["min_duration_ms"]) / 1000
    fastest = max(measured, with_ends)
    needed = math.ceil(least_s * fastest * SLACK)
    low, high = fastest * 0.5, fastest * 2.0
    if _count(settings, samples, low) < needed:
        low = _lowest(settings, samples, needed, low, high)
    wanted = _count(settings, samples, low)
    # Up to the highest rate with the same query, but not above what was measured.
    upper = min(fastest, _highest(settings, samples, wanted, low, high))
    rate = max(low, upper)
    return OfflineRate(rate, wanted, wanted / measured, least_s, measured, with_ends, measured_samples)


def _count(settings: Mapping[str, Setting], samples: int, rate: float) -> int:
    return expected_queries(
        {**settings, "offline_expected_qps": rate}, "Offline", samples, accuracy=False
    ).samples


def _lowest(settings: Mapping[str, Setting], samples: int, needed: int, low: float, high: float) -> float:
    """The lowest rate in between whose query has at least the needed samples."""
    while high / low - 1 > 1e-5:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _count(settings, samples, middle) >= needed else (middle, high)
    return rounded(high * (1 + 1e-5))


def _highest(settings: Mapping[str, Setting], samples: int, most: int, low: float, high: float) -> float:
    """The highest rate in between whose query has no more samples."""
    while high / low - 1 > 1e-5:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _count(settings, samples, middle) <= most else (low, middle)
    return rounded(low)
