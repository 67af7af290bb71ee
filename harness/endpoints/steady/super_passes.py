"""The requests of a point in super-passes: blocks of one pass of the dataset, in the order of issue."""

from collections.abc import Sequence

import msgspec
import numpy as np

from harness.arrays import Floats, Integers
from harness.endpoints.samples import Samples, latency_ns, timed, tpot_ns, ttft_ns


class SuperPass(msgspec.Struct, frozen=True, kw_only=True):
    """What steady state is judged by. Times in ns; nan where no request of the block has one."""

    issued: int
    first_issue_ns: int
    last_issue_ns: int
    output_tokens: int
    """of complete answers"""
    suffix_tokens: int
    """after the first fragment, of the requests whose answer ended"""
    tpot_count: int
    tpot_mean: float
    tpot_p50: float
    tpot_p90: float
    ttft_p50: float
    ttft_p90: float
    latency_p90: float


def super_passes(samples: Samples, size: int) -> list[SuperPass]:
    """One for each ``size`` requests in the order of issue; the last one may be incomplete."""
    return [super_pass(samples[first : first + size]) for first in range(0, len(samples), size)]


def super_pass(rows: Samples) -> SuperPass:
    """The figures of at least one request."""
    tpot, ttft = tpot_ns(rows), ttft_ns(rows)
    return SuperPass(
        issued=len(rows),
        first_issue_ns=int(rows["issued_ns"].min()),
        last_issue_ns=int(rows["issued_ns"].max()),
        output_tokens=int(rows["output_tokens"].sum()),
        suffix_tokens=int(timed(rows)["suffix_tokens"].sum()),
        tpot_count=len(tpot),
        tpot_mean=float(tpot.mean()) if len(tpot) else np.nan,
        tpot_p50=percentile(tpot, 0.5),
        tpot_p90=percentile(tpot, 0.9),
        ttft_p50=percentile(ttft, 0.5),
        ttft_p90=percentile(ttft, 0.9),
        latency_p90=percentile(latency_ns(rows), 0.9),
    )


def percentile(values: Floats | Integers, share: float) -> float:
    """The sorted values' element int(share * (n - 1)); nan of none."""
    if not len(values):
        return np.nan
    rank = int(share * (len(values) - 1))
    return float(np.partition(values, rank)[rank])


def series(passes: Sequence[SuperPass], name: str) -> Floats:
    """One figure of each super-pass."""
    return np.array([getattr(each, name) for each in passes], float)


def issue_seconds(passes: Sequence[SuperPass]) -> float:
    """From the first issue to the last, in s, of at least one; the drain is after it."""
    return (max(p.last_issue_ns for p in passes) - min(p.first_issue_ns for p in passes)) / 1e9
