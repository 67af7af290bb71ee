"""A replay of LoadGen's schedule against a server whose time per token depends on the requests that it runs.

The servers are one pool: a balanced dispatch keeps their loads equal, and a slower replica appears as
requests that take longer. Requests wait first in, first out for a slot, get their first token after a
measured time, and share the pool's speed: with N running each makes one token in TPOT(N).
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from harness.analysis.early_stopping import LATE_REPORT_NS
from harness.analysis.statistics import percentile
from harness.arrays import Floats
from harness.peak.search.schedule import Schedule, ScheduledRun

_SEED = 20_240_607  # Every replay draws the same lengths and times, so that rates compare.
_MOST_REPLAYED = 60_000  # A longer schedule is replayed in part: this much takes a third of a second.
_SHARE = 0.99  # LoadGen's Server scenario judges the 99th percentile.


class PoolModel(msgspec.Struct, frozen=True):
    """The servers together. Times are in seconds.

    TPOT(N) is constant up to the first of its points, and goes on like the last two after the last.
    """

    running: tuple[float, ...]
    """N of the points of TPOT(N), ascending"""
    tpot_s: tuple[float, ...]
    """TPOT of these points"""
    slots: float
    """the most requests that run at once; inf for no limit"""
    first_s: Floats
    """measured times to the first token without a queue; each request gets one of them"""
    spread: Floats
    """measured TPOT of single requests over the mean at their load; each request gets one of them"""
    lengths: Floats
    """measured output tokens; each request gets one of them"""
    scale: float = 1.0
    """factor of all times"""

    def scaled(self, scale: float) -> "PoolModel":
        """The same with another scale."""
        return replace(self, scale=scale)

    def tpot_table(self, most: int, step: int = 1) -> list[float]:
        """TPOT with 0, ``step``, ... ``most`` times ``step`` running."""
        numbers = np.arange(most + 1, dtype=np.float64) * step
        xs, ys = np.array(self.running), np.array(self.tpot_s)
        table = np.interp(numbers, xs, ys)
        if len(xs) > 1:
            slope = max(0.0, (ys[-1] - ys[-2]) / (xs[-1] - xs[-2]))
            table += np.maximum(numbers - xs[-1], 0.0) * slope
        values: list[float] = (table * self.scale).tolist()
        return values


class Replayed(msgspec.Struct, frozen=True):
    """The result of a replay."""

    run: ScheduledRun
    over_ttft: int
    """queries over the limit of TTFT"""
    over_tpot: int
    """queries over the limit of TPOT"""
    tpot_p99_s: float
    cut_s: float | None
    """time at which too many queries are over a limit; None for never"""
    seconds: float
    """time of the last answer"""
    most_in_flight: int

    @property
    def passes(self) -> bool:
        """Whether the run would be VALID."""
        return max(self.over_ttft, self.over_tpot) <= self.run.most_over


def replay(
    model: PoolModel, schedule: Schedule, rate: float, ttft_limit_s: float, tpot_limit_s: float
) -> Replayed:
    """Replay the run at ``rate``."""
    run = schedule.run(rate)
    # Every n-th query against an n-th of the pool: loads vary around their mean as those of all queries do.
    part = -(-run.queries // _MOST_REPLAYED)
    arrivals = schedule.arrivals_s(rate, run.queries)[::part]
    random = np.random.Generator(np.random.PCG64(_SEED))
    lengths = _dealt(model.lengths, len(arrivals), random)
    first = _dealt(model.first_s, len(arrivals), random) * model.scale
    spread = _dealt(model.spread, len(arrivals), random)
    started, ended, most = _served(arrivals.tolist(), lengths.tolist(), first.tolist(), model, part)
    first_at = np.array(started) + first
    ttft = first_at - arrivals
    gaps = np.maximum(lengths - 1, 1)
    done = np.array(ended)
    tpot = np.where(lengths > 1, (done - first_at) / gaps * spread, 0.0)
    late, slow = ttft > ttft_limit_s, tpot > tpot_limit_s
    surely = slow & (tpot - LATE_REPORT_NS / 1e9 / gaps > tpot_limit_s)
    cuts = [_moment(times, run.most_over // part) for times in (arrivals[late] + ttft_limit_s, done[surely])]
    return Replayed(
        run,
        part * int(late.sum()),
        part * int(slow.sum()),
        percentile(tpot, _SHARE),
        min((cut for cut in cuts if cut is not None), default=None),
        float(done.max()),
        part * most,
    )


def _served(
    arrivals: Sequence[float], lengths: Sequence[float], first: Sequence[float], model: PoolModel, part: int
) -> tuple[list[float], list[float], int]:
    """The start and the end of each request, and the most that were in flight.

    ``made`` is the number of tokens that a request running since the start would have: a request that starts
    at ``made`` = m with L tokens ends at m + L. Its time to the first token is a delay after which it makes
    tokens.
    """
    count = len(arrivals)
    slots = count if math.isinf(model.slots) else max(1, round(model.slots / part))
    table = model.tpot_table(min(slots, count) + 1, part)
    started, ended = [0.0] * count, [0.0] * count
    ends: list[tuple[float, int]] = []  # sorted by ``made``
    begins: list[tuple[float, int]] = []  # first tokens that are on their way, by time
    queue: deque[int] = deque()
    made = now = 0.0
    free, running, arrived, most, in_flight = slots, 0, 0, 0, 0
    push, pop, inf = heapq.heappush, heapq.heappop, math.inf
    next_arrival = arrivals[0]
    while True:
        next_end = now + (ends[0][0] - made) * table[running] if ends else inf
        next_begin = begins[0][0] if begins else inf
        if next_arrival <= next_end and next_arrival <= next_begin:
            if next_arrival == inf:
                return started, ended, most
            if running:
                made += (next_arrival - now) / table[running]
            now = next_arrival
            in_flight += 1
            most = max(most, in_flight)
            if free:
                free -= 1
                started[arrived] = now
                push(begins, (now + first[arrived], arrived))
            else:
                queue.append(arrived)
            arrived += 1
            next_arrival = arrivals[arrived] if arrived < count else inf
        elif next_begin <= next_end:
            if running:
                made += (next_begin - now) / table[running]
            now, which = pop(begins)
            running += 1
            push(ends, (made + lengths[which] - 1, which))
        else:
            made, which = pop(ends)
            now = next_end
            ended[which] = now
            running -= 1
            in_flight -= 1
            if queue:
                which = queue.popleft()
                started[which] = now
                push(begins, (now + first[which], which))
            else:
                free += 1


def _dealt(values: Floats, count: int, random: np.random.Generator) -> Floats:
    """``count`` of the values, each as often as another, in a random order."""
    times = -(-count // len(values))
    dealt: Floats = np.concatenate([random.permutation(values) for _ in range(times)])[:count]
    return dealt


def _moment(times: Floats, most: int) -> float | None:
    """The time of the first one above ``most``; 0 where not even a run without any passes."""
    if most < 0:
        return 0.0
    return float(np.partition(times, most)[most]) if len(times) > most else None
