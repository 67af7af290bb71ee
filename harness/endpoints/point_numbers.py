"""The numbers of a point in this project's definitions, and signs that the client was its bottleneck."""

from collections.abc import Iterator

import msgspec
import numpy as np

from harness.analysis.statistics import completed, issue_delay_ns, latency_ns, percentile, tpot_ns, ttft_ns
from harness.arrays import Integers
from harness.endpoints.curve import Point
from harness.endpoints.point_run import WARM_UP, OwnNumbers, WarmUp
from harness.peak.ladder.measurement import bottlenecks, latency_of, mean_in_flight, too_slow
from harness.record.journal import Rows

_NS = 1e9


class PointRows(msgspec.Struct, frozen=True):
    """The requests of a point that ended, and those that were lost."""

    counted: Rows
    warm_up: Rows

    @classmethod
    def of(cls, rows: Rows) -> "PointRows":
        """The rows of a journal by phase."""
        is_warm_up = rows["query_id"] >= WARM_UP
        return cls(rows[~is_warm_up], rows[is_warm_up])

    @property
    def issue_ns(self) -> tuple[int, int]:
        """The first issue and the last of the counted; 0 without one."""
        issued = _times(self.counted, "issued_ns")
        return (int(issued.min()), int(issued.max())) if len(issued) else (0, 0)

    @property
    def last_completion_ns(self) -> int:
        """Of the counted; the last issue where none is later."""
        ends = _times(completed(self.counted), "last_byte_ns")
        return max(int(ends.max(initial=0)), self.issue_ns[1])


def own_numbers(rows: PointRows) -> OwnNumbers | None:
    """None where no request was completed."""
    good, (first, _) = completed(rows.counted), rows.issue_ns
    seconds = (rows.last_completion_ns - first) / _NS
    if not len(good) or seconds <= 0:
        return None
    tokens = int(good["osl"].sum(dtype=np.int64))
    return OwnNumbers(
        queries=len(good),
        tokens=tokens,
        seconds=seconds,
        tokens_per_s=tokens / seconds,
        queries_per_s=len(good) / seconds,
        ttft=latency_of(ttft_ns(good)),
        tpot=latency_of(tpot_ns(good)),
        latency=latency_of(latency_ns(good)),
    )


def warm_up_of(rows: PointRows, issued: int, concurrency: int, source: str, steps: tuple[str, ...]) -> WarmUp:
    """What was sent before the first counted request. Its duration ends there, or with its last answer."""
    begun, first = _times(rows.warm_up, "issued_ns"), rows.issue_ns[0]
    end = first or int(_times(rows.warm_up, "last_byte_ns").max(initial=0))
    return WarmUp(
        duration_s=max(end - int(begun.min()), 0) / _NS if len(begun) else 0.0,
        requests_issued=issued,
        requests_completed=len(completed(rows.warm_up)),
        data_source=source,
        concurrency=concurrency,
        initialization_steps=steps,
    )


def client_bound(point: Point, rows: PointRows, cpu: Integers) -> Iterator[str]:
    """Signs that the client was the bottleneck while it issued requests, not the servers.

    ``cpu``: rows of CLOCK_MONOTONIC ns and each process's CPU ns.
    """
    first, last = rows.issue_ns
    inside = cpu[(cpu[:, 0] >= first) & (cpu[:, 0] <= rows.last_completion_ns)]
    yield from bottlenecks(inside, first)
    if point.offline == "dedicated" or last <= first:
        return
    held = mean_in_flight(np.concatenate([rows.warm_up, rows.counted]), first, last)
    ttft = ttft_ns(completed(rows.counted))
    median_ns = percentile(ttft, 0.5) if len(ttft) else None
    yield from too_slow(held, point.concurrency, issue_delay_ns(rows.counted), median_ns)


def _times(rows: Rows, name: str) -> Integers:
    """The times that are known: a request that was lost with its worker has none."""
    found: Integers = rows[name][rows[name] > 0]
    return found
