"""Replicas compared: how slow each is, which are stragglers, how evenly requests are spread."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from harness.analysis.queries import Queries
from harness.analysis.statistics import completed, percentile, tpot_ns, ttft_ns
from harness.arrays import Floats
from harness.record.journal import Rows
from harness.record.replica_figures import ReplicaBalance, ReplicaFigures, Straggler
from harness.text import counted

SLOWER = 1.1  # a straggler's TPOT is longer than this times the replicas' median, and stays so
_LASTS_S = 60.0
_FEWEST = 10  # answers of a replica; with fewer it is not judged
# A replica's median must exceed that of all by this many standard deviations of a sample's median.
_SURE = 4.0
_EQUAL = 1.05  # a slow replica stays slow until its ratio falls to this
_NAMED = 5
_TIME_BITS = 44  # five hours in ns
_LONGEST_NS = (1 << _TIME_BITS) - 1


class ReplicaWatch:
    """Follows the replicas' median TPOT over a run.

    ``look`` takes the answers of the last minute; it sets ``medians_ns`` (NaN where unknown) and ``ratios``,
    each median over the median of all.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.medians_ns: Floats = np.full(len(urls), np.nan)
        self.ratios: Floats = self.medians_ns
        self._comparable_since = np.nan  # when medians of several replicas could first be compared
        self.judged = False  # whether they could be for a minute
        self._urls = urls
        self._since = np.full(len(urls), np.nan)  # when each began to be slower
        self._found: dict[int, Straggler] = {}
        self._now: list[int] = []

    def look(self, now_s: float, recent: Rows) -> tuple[Straggler, ...]:
        """The replicas that become stragglers for the first time with these answers, the slowest first.

        ``now_s`` counts from the beginning of the run.
        """
        self.medians_ns, least = _medians(recent, len(self._urls))
        middle = _middle(self.medians_ns)
        if np.isfinite(middle):
            self._comparable_since = np.fmin(self._comparable_since, now_s)
        self.judged |= bool(now_s - self._comparable_since >= _LASTS_S)
        self.ratios = self.medians_ns / middle
        slow = np.where(least > middle, self.ratios, 0.0)
        over = (slow > SLOWER) | (np.isfinite(self._since) & (slow > _EQUAL))
        self._since = np.where(over, np.fmin(self._since, now_s), np.nan)
        known, self._now = set(self._found), np.flatnonzero(now_s - self._since >= _LASTS_S).tolist()
        for index in self._now:
            self._note(now_s, index)
        return _slowest_first(self._found[index] for index in self._now if index not in known)

    @property
    def stragglers_now(self) -> tuple[Straggler, ...]:
        """The stragglers of the last look, the slowest first."""
        return _slowest_first(self._found[index] for index in self._now)

    @property
    def stragglers(self) -> tuple[Straggler, ...] | None:
        """All that have been stragglers, the slowest first; None where none could be found."""
        return _slowest_first(self._found.values()) if self.judged else None

    def _note(self, now_s: float, index: int) -> None:
        ratio, since = float(self.ratios[index]), float(self._since[index])
        if before := self._found.get(index):
            ratio, since = max(ratio, before.ratio), before.from_s
        self._found[index] = Straggler(self._urls[index], round(ratio, 3), round(since, 1), round(now_s, 1))


def stragglers_text(balance: ReplicaBalance, seconds: float) -> str:
    """``no stragglers``, ``2 stragglers``, or why they were not judged in a run of this length."""
    if balance.stragglers is not None:
        return counted(len(balance.stragglers), "straggler") if balance.stragglers else "no stragglers"
    if seconds < _LASTS_S:
        why = f"{seconds:.0f} s, {_LASTS_S:.0f} s needed"
    elif all(one.tpot_p50 is None for one in balance.replicas.values()):
        why = "no TPOT is known: answers are not streamed"
    else:
        why = "too few answers of each for a minute"
    return f"stragglers not judged ({why})"


def straggler_warnings(stragglers: Sequence[Straggler], replicas: int) -> Iterator[str]:
    """One warning for all of them."""
    if not stragglers:
        return
    shown = [
        f"{one.url} ({one.ratio:.2f} x, {one.from_s:.0f} to {one.to_s:.0f} s)" for one in stragglers[:_NAMED]
    ]
    if len(stragglers) > _NAMED:
        shown.append(f"and {len(stragglers) - _NAMED} more")
    yield (
        f"{len(stragglers)} of {replicas} replicas had a median TPOT above {SLOWER:g} x that of all replicas "
        f"for at least {_LASTS_S:.0f} s: {', '.join(shown)}"
    )


def replica_balance(
    rows: Rows, urls: Sequence[str], stragglers: tuple[Straggler, ...] | None
) -> ReplicaBalance | None:
    """Figures of a run that has ended; None where there is one replica. ``rows`` in any order."""
    if len(urls) < 2:
        return None
    span_ns, parts = _span_ns(rows), _by_replica(rows, len(urls))
    figures = {url: _figures(part, span_ns) for url, part in zip(urls, parts, strict=True)}
    loads = np.array([one.in_flight for one in figures.values()])
    return ReplicaBalance(imbalance=imbalance(loads), stragglers=stragglers, replicas=figures)


def imbalance(loads: npt.NDArray[np.floating]) -> float | None:
    """The largest over the mean; None where nothing was in flight."""
    return round(float(loads.max() / loads.mean()), 4) if loads.any() else None


def figures_of_replicas(queries: Queries) -> dict[str, ReplicaFigures]:
    """Figures of each replica that got a query, by URL, from the columns of requests.parquet."""
    order = np.argsort(queries.replica, kind="stable")
    edges = np.searchsorted(queries.replica[order], np.arange(len(queries.replicas) + 1)).tolist()
    held = np.maximum(queries.ended - queries.sent, 0)
    span = _span(queries) or 1.0
    found = {}
    for url, (begin, end) in zip(queries.replicas, itertools.pairwise(edges), strict=True):
        rows = order[begin:end]
        good, tpot = queries.completed[rows], queries.tpot[rows]
        found[url] = ReplicaFigures(
            queries=len(rows),
            failed=int((~good).sum()),
            output_tokens=int(queries.osl[rows][good].sum(dtype=np.int64)),
            in_flight=float(np.nansum(held[rows], dtype=np.float64)) / span,
            ttft_p99=_known_percentile(queries.ttft[rows], 0.99),
            tpot_p50=_known_percentile(tpot, 0.5),
            tpot_p99=_known_percentile(tpot, 0.99),
        )
    return found


def _span(queries: Queries) -> float:
    """First request to last end, in seconds; 0 where none was sent."""
    first = float(np.fmin.reduce(queries.sent, initial=np.inf))
    return max(float(np.fmax.reduce(queries.ended, initial=0.0)) - first, 0.0)


def _known_percentile(seconds: Floats, share: float) -> int | None:
    """In ns; None where no value is known."""
    known = seconds[~np.isnan(seconds)]
    return round(percentile(known, share) * 1e9) if len(known) else None


def _figures(rows: Rows, span_ns: int) -> ReplicaFigures:
    good = completed(rows)
    ended = rows[(rows["last_byte_ns"] > 0) & (rows["sent_ns"] > 0)]
    # On a busy machine the client may record the sending after the answer has arrived.
    busy_ns = int((ended["last_byte_ns"] - ended["sent_ns"]).clip(min=0).sum())
    ttft, tpot = ttft_ns(good), tpot_ns(good)
    return ReplicaFigures(
        queries=len(rows),
        failed=len(rows) - len(good),
        output_tokens=int(good["osl"].sum(dtype=np.int64)),
        in_flight=round(busy_ns / span_ns, 2) if span_ns else 0.0,
        ttft_p99=int(percentile(ttft, 0.99)) if len(ttft) else None,
        tpot_p50=int(percentile(tpot, 0.5)) if len(tpot) else None,
        tpot_p99=int(percentile(tpot, 0.99)) if len(tpot) else None,
    )


def _span_ns(rows: Rows) -> int:
    """First request to last answer."""
    sent, last = rows["sent_ns"][rows["sent_ns"] > 0], rows["last_byte_ns"]
    return max(int(last.max() - sent.min()), 0) if len(sent) else 0


def _by_replica(rows: Rows, count: int) -> Iterator[Rows]:
    """The rows of each replica. One sort is faster than a mask for each of hundreds."""
    order = np.argsort(rows["replica"], kind="stable")
    edges = np.searchsorted(rows["replica"][order], np.arange(count + 1))
    for begin, end in itertools.pairwise(edges.tolist()):
        yield rows[order[begin:end]]


def _medians(rows: Rows, count: int) -> tuple[Floats, Floats]:
    """Each replica's median TPOT in ns and its lower confidence bound; NaN for too few answers."""
    timed = rows[(rows["osl"] >= 2) & (rows["first_token_ns"] > 0)]
    # Sorting integers that hold replica and time is faster than sorting row numbers by both.
    times = np.sort(timed["replica"].astype(np.int64) << _TIME_BITS | tpot_ns(timed).clip(0, _LONGEST_NS))
    edges = np.searchsorted(times, np.arange(count + 1) << _TIME_BITS)
    begin, sizes = edges[:-1], np.diff(edges)
    medians, least = np.full(count, np.nan), np.full(count, np.nan)
    enough = sizes >= _FEWEST
    # The rank of the true median in a sample of n has the standard deviation sqrt(n) / 2.
    low = (sizes / 2 - _SURE * np.sqrt(sizes) / 2).clip(min=0).astype(np.int64)
    medians[enough] = times[(begin + sizes // 2)[enough]] & _LONGEST_NS
    least[enough] = times[(begin + low)[enough]] & _LONGEST_NS
    return medians, least


def _middle(medians: Floats) -> float:
    """The median of the replicas' medians, the lower of the middle two; NaN for one replica, or for 0."""
    known = np.sort(medians[np.isfinite(medians)])
    return float(known[(len(known) - 1) // 2]) or np.nan if len(known) > 1 else np.nan


def _slowest_first(stragglers: Iterable[Straggler]) -> tuple[Straggler, ...]:
    return tuple(sorted(stragglers, key=lambda one: -one.ratio))
