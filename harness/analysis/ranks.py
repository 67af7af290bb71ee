"""Figures of the servers' data-parallel ranks, from server_metrics.parquet.

SGLang labels the metrics of each scheduler with ``dp_rank``, vLLM those of each engine with ``engine``. A
server with one rank is not listed: its figures are those of the replica.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from harness.arrays import Floats
from harness.grouping import by_key
from harness.record.replica_figures import RankFigures
from harness.record.server_metrics import MAPPED, RANK_LABEL, Part

_NS = 1e9
_LISTED = 16  # the most lines of ranks
_KEPT = ("running", "queued", "kv_use", "output_tokens", "output_rate", "computed_tokens")
_OF_DECODING = re.compile(r'[{,]mode="decode"')

_Rank = tuple[str, int]  # server, rank


class _Series(msgspec.Struct):
    """The values of one series, in order of time."""

    times: list[npt.NDArray[np.int64]] = msgspec.field(default_factory=list)
    values: list[Floats] = msgspec.field(default_factory=list)

    def increase(self) -> tuple[float, float]:
        """The increase of a count, which begins again at 0 where its process restarts, and its seconds."""
        values, times = np.concatenate(self.values), np.concatenate(self.times)
        steps = np.diff(values)
        return float(np.where(steps < 0, values[1:], steps).sum()), float(times[-1] - times[0]) / _NS


class RankReading:
    """Takes the series of ranks out of the parts of the table."""

    def __init__(self) -> None:
        self._series: dict[tuple[_Rank, str], _Series] = {}
        self._chosen: dict[tuple[_Rank, str], tuple[str, str]] = {}

    def add(self, part: Part) -> None:
        """Add the rows of one part."""
        for one in part.series:
            rank = RANK_LABEL.search(one.labels)
            if rank is None or (quantity := MAPPED[one.name]) not in _KEPT:
                continue
            if quantity == "computed_tokens" and not _OF_DECODING.search(one.labels):
                continue
            key = ((one.replica, int(rank[1])), quantity)
            # The first counts, as the processes of a rank all report the same.
            if self._chosen.setdefault(key, (one.name, one.labels)) == (one.name, one.labels):
                series = self._series.setdefault(key, _Series())
                series.times.append(part.times_ns[one.rows])
                series.values.append(part.values[one.rows])

    def figures(self) -> tuple[RankFigures, ...]:
        """The ranks of every server that reports several, in the order of the servers."""
        series, by_server = self._series, by_key(dict.fromkeys(rank for rank, _ in self._series))
        ranks = [
            (server, rank) for server, found in by_server.items() if len(found) > 1 for rank in sorted(found)
        ]
        rates = {rank: _tokens_per_s(rank, series) for rank in ranks}
        total = sum(rate for rate in rates.values() if rate is not None)
        return tuple(
            RankFigures(
                server=rank[0],
                rank=rank[1],
                running=_mean(series.get((rank, "running"))),
                queued=_mean(series.get((rank, "queued"))),
                kv_use=_mean(series.get((rank, "kv_use"))),
                tokens_per_s=rates[rank],
                share=None if (rate := rates[rank]) is None or not total else rate / total,
            )
            for rank in ranks
        )


def _mean(series: _Series | None) -> float | None:
    return None if series is None else float(np.concatenate(series.values).mean())


def _tokens_per_s(rank: _Rank, series: Mapping[tuple[_Rank, str], _Series]) -> float | None:
    """From the rank's own count, or else the mean of the rate that it reports."""
    for name in ("computed_tokens", "output_tokens"):
        if (found := series.get((rank, name))) is not None:
            increase, seconds = found.increase()
            if seconds > 0:
                return increase / seconds
    return _mean(series.get((rank, "output_rate")))


def rank_lines(ranks: Sequence[RankFigures]) -> Iterator[str]:
    """``dp_rank 1 of URL: 3.0 running, 0.0 queued, 19 tokens/s, 2% of all``, the least busy ranks first."""
    for one in sorted(ranks, key=lambda one: one.share or 0.0)[:_LISTED]:
        parts = [
            "" if one.running is None else f"{one.running:,.1f} running",
            "" if one.queued is None else f"{one.queued:,.1f} queued",
            "" if one.tokens_per_s is None else f"{one.tokens_per_s:,.0f} tokens/s",
            "" if one.share is None else f"{one.share:.0%} of all",
        ]
        yield f"{one.name}: {', '.join(part for part in parts if part)}"
