"""The replicas compared with each other: their figures, and which are slower than the rest."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.analysis.queries import Queries
from harness.analysis.replicas import SLOWER, straggler_warnings
from harness.analysis.timeline import percentile
from harness.record.replica_figures import ReplicaBalance
from harness.report.html.page import Section, Table
from harness.text import milliseconds

_FOLDED_FROM = 24  # rows
_HEADER = (
    "replica",
    "queries",
    "failed",
    "tokens",
    "in flight, mean",
    "TTFT p99, ms",
    "TPOT p50, ms",
    "TPOT p99, ms",
)


@dataclass(frozen=True, slots=True)
class Replica:
    """Figures of one replica; seconds, NaN where unknown."""

    name: str
    queries: int
    failed: int
    tokens: int
    in_flight: float
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float

    @property
    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        times = (self.ttft_p99, self.tpot_p50, self.tpot_p99)
        counts = (self.queries, self.failed, self.tokens)
        return (self.name, *(f"{n:,}" for n in counts), f"{self.in_flight:.1f}", *map(_milliseconds, times))


def replicas_of(queries: Queries) -> list[Replica]:
    """Each replica that got a query."""
    order = np.argsort(queries.replica, kind="stable")
    edges = np.searchsorted(queries.replica[order], np.arange(len(queries.replicas) + 1))
    span = queries.span or 1.0
    found = []
    for number, name in enumerate(queries.replicas):
        rows = order[edges[number] : edges[number + 1]]
        good, latency, tpot = queries.completed[rows], queries.latency[rows], queries.tpot[rows]
        found.append(
            Replica(
                name,
                len(rows),
                int((~good).sum()),
                int(queries.osl[rows][good].sum(dtype=np.int64)),
                float(np.nansum(latency, dtype=np.float64)) / span,
                percentile(queries.ttft[rows], 0.99),
                percentile(tpot, 0.5),
                percentile(tpot, 0.99),
            )
        )
    return found


def replicas_section(queries: Queries, balance: ReplicaBalance | None = None) -> Section:
    """A row for each of several replicas, the one furthest from the median TPOT first."""
    replicas = replicas_of(queries)
    if len(replicas) < 2:
        return Section("replicas", "Replicas")
    known = [one.tpot_p50 for one in replicas if np.isfinite(one.tpot_p50)]
    middle = float(np.median(known)) if known else float("nan")
    replicas.sort(key=lambda one: np.nan_to_num(-abs(one.tpot_p50 - middle)))
    slow = frozenset(number for number, one in enumerate(replicas) if one.tpot_p50 > SLOWER * middle)
    line = (
        f"Replicas with a median TPOT over {SLOWER:g} times the median of all {len(replicas)}: "
        f"{len(slow) or 'none'}."
    )
    lines = [line, *_balance_lines(balance)]
    folded = f"All {len(replicas)} replicas" if len(replicas) > _FOLDED_FROM else ""
    return Section(
        "replicas",
        "Replicas",
        tuple(lines),
        tables=[Table(_HEADER, [one.cells for one in replicas], slow, folded)],
    )


def _balance_lines(balance: ReplicaBalance | None) -> Iterator[str]:
    if balance is None:
        return
    if balance.imbalance is not None:
        yield f"Imbalance: {balance.imbalance:.3f}, the largest mean number in flight over the mean of all."
    if balance.stragglers is None:
        yield "Stragglers are not judged: no replica ended ten streamed answers within a minute."
    for warning in straggler_warnings(balance.stragglers or (), len(balance.replicas)):
        yield f"{warning}."


def _milliseconds(seconds: float) -> str:
    return milliseconds(seconds * 1e9) if np.isfinite(seconds) else "-"
