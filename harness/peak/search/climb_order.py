"""The steps of a search's ladder: few and far apart, since replays interpolate between them."""

import math
from collections.abc import Mapping, Sequence

from harness.peak.ladder.ladder_result import LEAST_GROWTH, broken
from harness.peak.ladder.steps import Step

# The first step is a 16th of what the servers run at once, at most 64 requests for each replica. Where they
# do not report what they run, it is 16 for each replica.
_FIRST_OF_SLOTS = 16
_MOST_FIRST = 64
_FIRST = 16
_STRIDE = 4
_FINE = 2.5  # No step is measured between neighbours of a smaller ratio.


def next_concurrency(
    steps: Sequence[Step],
    limits_ns: Mapping[str, int],
    *,
    replicas: int,
    slots: int | None,
    most_in_flight: int | None,
) -> int | None:
    """The concurrency of the next step; None where the ladder is complete.

    Up by factors of four until a limit is not kept or the throughput no longer grows; then once between the
    last two. Down by the same factor where already the first step does not keep a limit.
    """
    top = min(slots or math.inf, most_in_flight or math.inf)
    if not steps:
        first = min(slots // _FIRST_OF_SLOTS, _MOST_FIRST * replicas) if slots else _FIRST * replicas
        return int(min(max(first, replicas), top))
    ordered = sorted(steps, key=lambda step: step.concurrency)
    lowest, highest = ordered[0], ordered[-1]
    if not keeps(lowest, limits_ns) and lowest.concurrency > replicas:
        return max(lowest.concurrency // _STRIDE, replicas)
    if not _is_over(ordered, limits_ns) and highest.concurrency < top:
        return int(min(_STRIDE * highest.concurrency, top))
    return _between(ordered, limits_ns)


def keeps(step: Step, limits_ns: Mapping[str, int]) -> bool:
    """Whether the p99 of a step is within both limits."""
    return not broken(step, limits_ns)


def _is_over(ordered: Sequence[Step], limits_ns: Mapping[str, int]) -> bool:
    """Whether more requests in flight would show nothing more."""
    highest = ordered[-1]
    if highest.failures or not keeps(highest, limits_ns):
        return True
    # Once, it may have been another program that took the CPU time.
    if len(ordered) > 1 and highest.client_bound and ordered[-2].client_bound:
        return True
    before = max((step.tokens_per_s for step in ordered[:-1]), default=0.0)
    return highest.tokens_per_s < (1 + LEAST_GROWTH) * before


def _between(ordered: Sequence[Step], limits_ns: Mapping[str, int]) -> int | None:
    """Half way, by ratio, between the last step within the limits and the first beyond."""
    within = [step for step in ordered if keeps(step, limits_ns)]
    beyond = [step for step in ordered if not keeps(step, limits_ns)] or ordered[-1:]
    if not within or within[-1] is beyond[0]:
        within = within[:-1]
    if not within:
        return None
    low, high = within[-1].concurrency, beyond[0].concurrency
    return round(math.sqrt(low * high)) if high / low > _FINE else None
