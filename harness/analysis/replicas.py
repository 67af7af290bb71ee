"""Replicas compared: how slow each is, which are stragglers, how evenly requests are spread."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness.analysis.statistics import completed, percentile, tokens, tpot_ns, ttft_ns
from harness.arrays import Floats, Integers
from harness.config.server_urls import folded
from harness.record.journal import Rows
from harness.record.replica_figures import ReplicaBalance, ReplicaFigures, Straggler, StragglerTime
from harness.text import counted, first_few

SLOWER = 1.1  # a straggler's TPOT is longer than this times the replicas' median, and stays so
_LASTS_S = 60.0
_FEWEST = 10  # answers of a replica; with fewer it is not judged
# A replica's median must exceed that of all by this many standard deviations of a sample's median.
_SURE = 4.0
_NAMED = 5
_IDLE_S, _IDLE_PART = 5.0, 0.05  # of a run, at its end: less is the length of answers
_TIME_BITS = 44  # five hours in ns
_LONGEST_NS = (1 << _TIME_BITS) - 1
_REMEDY = "compare its options, clocks, temperatures and other programs with the others'"


class _Compared(NamedTuple):
    """A time of answers by which replicas are compared."""

    name: StragglerTime
    slower: float
    """how many times the median of all the median of a straggler is"""
    equal: float
    """a slow replica stays slow until its ratio falls to this"""
    least_ns: int = 0
    """the difference of a straggler's to the median of all"""


# Requests queue, so that the times of first tokens of equal replicas differ more than their steps.
_TPOT = _Compared("TPOT", SLOWER, 1.05)
_TTFT = _Compared("TTFT", 2.0, 1.5, 50_000_000)
_WHOLE = _Compared("time per token", SLOWER, 1.05)  # of answers that are not streamed, from their request on
_TIMES = (_TPOT, _TTFT, _WHOLE)


class ReplicaWatch:
    """Follows the replicas' median TPOT and TTFT over a run, or the time per token of complete answers.

    ``look`` takes the answers of the last minute.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._of_time = {kind: _Comparison(kind, urls) for kind in _TIMES}

    @property
    def medians_ns(self) -> Floats:
        """Each replica's TPOT at the last look, NaN where unknown."""
        return self._of_time[_TPOT].medians_ns

    @property
    def ratios(self) -> Floats:
        """Each of them over the median of all."""
        return self._of_time[_TPOT].ratios

    def look(self, now_s: float, recent: Rows) -> tuple[Straggler, ...]:
        """The replicas that become stragglers for the first time with these answers, the slowest first.

        ``now_s`` counts from the beginning of the run.
        """
        new = [
            straggler
            for kind, times in _times(recent)
            for straggler in self._of_time[kind].look(now_s, *times)
        ]
        return _slowest_first(new)

    @property
    def stragglers_now(self) -> tuple[Straggler, ...]:
        """The stragglers of the last look, the slowest first."""
        return _slowest_first(one for compared in self._of_time.values() for one in compared.now)

    @property
    def stragglers(self) -> tuple[Straggler, ...] | None:
        """All that have been stragglers, the slowest first; None where none could be found."""
        judged = [compared for compared in self._of_time.values() if compared.judged]
        return _slowest_first(one for compared in judged for one in compared.found) if judged else None


class _Comparison:
    """One time of the replicas over a run."""

    def __init__(self, compared: _Compared, urls: Sequence[str]) -> None:
        self.medians_ns: Floats = np.full(len(urls), np.nan)
        self.ratios: Floats = self.medians_ns
        self.judged = False  # whether the medians of several replicas could be compared for a minute
        self._compared = compared
        self._urls = urls
        self._comparable_since = np.nan
        self._since = np.full(len(urls), np.nan)  # when each began to be slower
        self._found: dict[int, Straggler] = {}
        self._now: list[int] = []

    @property
    def now(self) -> list[Straggler]:
        """The stragglers of the last look."""
        return [self._found[index] for index in self._now]

    @property
    def found(self) -> list[Straggler]:
        """All until now."""
        return list(self._found.values())

    def look(self, now_s: float, replicas: Integers, times_ns: Integers) -> list[Straggler]:
        """The new stragglers by times of answers, of which ``replicas`` are the replicas."""
        self.medians_ns, least = _medians(replicas, times_ns, len(self._urls))
        middle, (_, slower, equal, least_ns) = middle_of(self.medians_ns), self._compared
        if np.isfinite(middle):
            self._comparable_since = np.fmin(self._comparable_since, now_s)
        self.judged |= bool(now_s - self._comparable_since >= _LASTS_S)
        self.ratios = self.medians_ns / middle
        slow = np.where((least > middle) & (self.medians_ns - middle >= least_ns), self.ratios, 0.0)
        over = (slow > slower) | (np.isfinite(self._since) & (slow > equal))
        self._since = np.where(over, np.fmin(self._since, now_s), np.nan)
        known, self._now = set(self._found), np.flatnonzero(now_s - self._since >= _LASTS_S).tolist()
        for index in self._now:
            self._note(now_s, index)
        return [self._found[index] for index in self._now if index not in known]

    def _note(self, now_s: float, index: int) -> None:
        ratio, since = float(self.ratios[index]), float(self._since[index])
        if before := self._found.get(index):
            ratio, since = max(ratio, before.ratio), before.from_s
        self._found[index] = Straggler(
            self._urls[index], round(ratio, 3), round(since, 1), round(now_s, 1), self._compared.name
        )


def middle_of(medians: Floats) -> float:
    """The median of the replicas' medians, the lower of the middle two; NaN for one replica, or for 0.

    Of two replicas the slower one is compared with the other, not with the mean of both.
    """
    known = np.sort(medians[np.isfinite(medians)])
    return float(known[(len(known) - 1) // 2]) or np.nan if len(known) > 1 else np.nan


def straggler_alarm(one: Straggler) -> str:
    """``straggler: http://node3:30000: median TPOT 1.93 x that of all replicas for a minute; ...``."""
    return (
        f"straggler: {one.url}: median {one.time} {one.ratio:.2f} x that of all replicas for a minute; "
        f"{_REMEDY}"
    )


def straggling_text(stragglers: Sequence[Straggler]) -> str:
    """``STRAGGLER http://node3:30000 (TPOT 1.93 x)``, of several the slowest; "" for none."""
    if not stragglers:
        return ""
    count = len({one.url for one in stragglers})
    worst = f"{stragglers[0].url} ({stragglers[0].time} {stragglers[0].ratio:.2f} x)"
    return f"STRAGGLER {worst}" if count == 1 else f"{count} STRAGGLERS, {worst}"


def stragglers_text(balance: ReplicaBalance, seconds: float) -> str:
    """``no stragglers``, ``2 stragglers``, or why they were not judged in a run of this length."""
    if balance.stragglers is not None:
        count = len({one.url for one in balance.stragglers})
        return counted(count, "straggler") if count else "no stragglers"
    if seconds < _LASTS_S:
        why = f"{seconds:.0f} s, {_LASTS_S:.0f} s needed"
    else:
        why = "too few answers of each for a minute"
    return f"stragglers not judged ({why})"


def straggler_warnings(stragglers: Sequence[Straggler], replicas: int) -> Iterator[str]:
    """One warning for all of them by each time."""
    for name, slower, *_ in _TIMES:
        of_time = [one for one in stragglers if one.time == name]
        shown = (f"{one.url} ({one.ratio:.2f} x, {one.from_s:.0f} to {one.to_s:.0f} s)" for one in of_time)
        if of_time:
            yield (
                f"{len(of_time)} of {replicas} replicas had a median {name} above {slower:g} x that of all "
                f"replicas for at least {_LASTS_S:.0f} s: {first_few(shown, _NAMED)}"
            )


def end_warnings(rows: Rows, urls: Sequence[str]) -> Iterator[str]:
    """A warning where half of the replicas waited at the end of a run whose queries were issued at once."""
    rows = rows[(rows["last_byte_ns"] > 0) & (rows["issued_ns"] > 0)]
    last = np.zeros(len(urls), np.int64)
    np.maximum.at(last, rows["replica"], rows["last_byte_ns"])
    if len(urls) < 2 or not last.any():
        return
    end, middle = int(last.max()), int(np.sort(last)[(len(last) - 1) // 2])
    middle = max(middle, int(rows["issued_ns"].min()))
    idle_s, part = (end - middle) / 1e9, (end - middle) / (end - rows["issued_ns"].min())
    if idle_s < _IDLE_S or part < _IDLE_PART:
        return
    late = [url for url, at in zip(urls, last.tolist(), strict=True) if 2 * at > end + middle]
    count = int((rows["last_byte_ns"] > middle).sum())
    queries = f"{counted(count, 'query')} {'was' if count == 1 else 'were'}"
    yield (
        f"for the last {idle_s:.0f} s, {part:.0%} of the run, half of the replicas had nothing to do: "
        f"{queries} left at others, the last at {folded(late, 3)}; a slow replica does that, and long "
        "answers that were sent late"
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


def _figures(rows: Rows, span_ns: int) -> ReplicaFigures:
    good = completed(rows)
    sent = rows[rows["sent_ns"] > 0]
    # Below 0 without an end, and where a busy machine recorded the sending after the answer had arrived.
    busy_ns = int((sent["last_byte_ns"] - sent["sent_ns"]).clip(min=0).sum())
    ttft, tpot = ttft_ns(good), tpot_ns(good)
    return ReplicaFigures(
        queries=len(rows),
        failed=len(rows) - len(good),
        output_tokens=tokens(good),
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


def _times(rows: Rows) -> Iterator[tuple[_Compared, tuple[Integers, Integers]]]:
    """The times of answers with their replicas."""
    streamed = rows["first_token_ns"] > 0
    timed, whole = rows[streamed], rows[~streamed & (rows["osl"] > 0) & (rows["sent_ns"] > 0)]
    several = timed[timed["osl"] >= 2]
    yield _TPOT, (several["replica"], tpot_ns(several))
    # From the request on: a query may have waited for it.
    yield _TTFT, (timed["replica"], timed["first_token_ns"] - timed["sent_ns"])
    yield (
        _WHOLE,
        (whole["replica"], (whole["last_byte_ns"] - whole["sent_ns"]) // whole["osl"].astype(np.int64)),
    )


def _medians(replicas: Integers, times_ns: Integers, count: int) -> tuple[Floats, Floats]:
    """Each replica's median time and its lower confidence bound; NaN for too few answers."""
    # Sorting integers that hold replica and time is faster than sorting row numbers by both.
    times = np.sort(replicas.astype(np.int64) << _TIME_BITS | times_ns.clip(0, _LONGEST_NS))
    edges = np.searchsorted(times, np.arange(count + 1) << _TIME_BITS)
    begin, sizes = edges[:-1], np.diff(edges)
    medians, least = np.full(count, np.nan), np.full(count, np.nan)
    enough = sizes >= _FEWEST
    # The rank of the true median in a sample of n has the standard deviation sqrt(n) / 2.
    low = (sizes / 2 - _SURE * np.sqrt(sizes) / 2).clip(min=0).astype(np.int64)
    medians[enough] = times[(begin + sizes // 2)[enough]] & _LONGEST_NS
    least[enough] = times[(begin + low)[enough]] & _LONGEST_NS
    return medians, least


def _slowest_first(stragglers: Iterable[Straggler]) -> tuple[Straggler, ...]:
    return tuple(sorted(stragglers, key=lambda one: -one.ratio))
