"""Snapshots of a run's progress, from the live counters."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from harness.analysis.replicas import imbalance
from harness.config.server_urls import folded
from harness.progress.progress_line import SILENT_S, ProgressSnapshot
from harness.record.outcome import FailureKind
from sut.ipc.counters import Counter

_RATE_OVER_S = 10.0  # the rate of tokens is a mean over this time
_BALANCE_LOOKS = 60  # looks at the replicas' loads, one a second
# The last answers take this part of the time that the longest takes among others: the fewer a server runs,
# the faster each is. Simulated for servers that are 4 and 10 times as fast with one request as with all.
_LAST_ANSWERS = 1 / 3

Failures = Mapping[FailureKind, int]


class RunLength(msgspec.Struct, frozen=True):
    """The length of a run, as far as it is known before."""

    queries: int
    scheduled_s: float | None = None
    """when the last query is issued, where a schedule decides that"""
    least_s: float = 0.0
    """queries are issued for at least this time"""


class ProgressMeter:
    """Makes snapshots of a run from its counters, with the rate of the last seconds and the time left.

    ``failures`` gives the failed queries by kind, ``in_flight`` the requests on each of ``urls``, whose
    number may be ``limited``, ``servers_rate`` the tokens a second that the servers say. ``at_once``: the
    most requests that run at once; others wait, here or in the servers' queues.
    """

    def __init__(
        self,
        length: RunLength,
        failures: Callable[[], Failures] = dict,
        clock: Callable[[], float] = time.monotonic,
        in_flight: Callable[[], npt.NDArray[np.int64]] = lambda: np.zeros(1, np.int64),
        *,
        urls: Sequence[str] = (),
        limited: bool = False,
        at_once: int,
        servers_rate: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._length = length
        self._failures = failures
        self._clock = clock
        self._start = clock()
        self._tokens = deque([(self._start, 0)])
        self._in_flight = in_flight
        self._urls = urls
        self._limited = limited
        self._at_once = at_once
        self._servers_rate = servers_rate
        self._loads: deque[npt.NDArray[np.int64]] = deque(maxlen=_BALANCE_LOOKS)
        self._most_sent = 0  # requests at the servers
        self._arrived = (self._start, 0)  # when anything arrived last, and how much had by then

    def __call__(self, totals: npt.NDArray[np.int64]) -> ProgressSnapshot:
        """A snapshot; ``totals`` are indexed by Counter."""
        now = self._clock()
        values = {counter: int(totals[counter]) for counter in Counter}
        failures, loads = self._failures(), self._in_flight()
        silent_s, last_at = self._silent_s(values, now), self._last_at(values, loads)
        sent = int(loads.sum())
        self._most_sent = max(self._most_sent, sent)
        remaining_s = self._remaining(values, now - self._start)
        if last_at or silent_s >= SILENT_S or self._is_emptying(values, sent):
            remaining_s = None
        return ProgressSnapshot(
            elapsed_s=now - self._start,
            issued=values[Counter.ISSUED],
            completed=values[Counter.COMPLETED],
            failed=values[Counter.FAILED],
            total=self._total(values),
            tokens_per_s=self._rate(values[Counter.OUTPUT_TOKENS] + values[Counter.PARTIAL_TOKENS], now),
            ttft_ns=_mean(values[Counter.TTFT_SUM_NS], values[Counter.FIRST_TOKENS]),
            tpot_ns=_mean(values[Counter.TPOT_SUM_NS], values[Counter.TPOT_COUNT]),
            remaining_s=remaining_s,
            failures={kind.label: count for kind, count in failures.items()},
            imbalance=self._imbalance(loads),
            first_tokens=values[Counter.FIRST_TOKENS],
            sent=sent if self._limited else None,
            last_at=last_at,
            silent_s=silent_s,
            servers_tokens_per_s=self._servers_rate(),
        )

    def _last_at(self, values: Mapping[Counter, int], loads: npt.NDArray[np.int64]) -> str:
        """The replicas that have the last queries, while others have none; "" before."""
        busy = [url for url, load in zip(self._urls, loads.tolist(), strict=False) if load > 0]
        waits = self._to_come(values) > int(loads.sum())
        return "" if waits or not busy or len(busy) == len(loads) else folded(busy, 2)

    def _is_emptying(self, values: Mapping[Counter, int], sent: int) -> bool:
        """Whether the servers have only the last answers, which are the long ones, and come ever slower.

        ``sent``: requests at the servers. While more wait in a queue there, answers come as fast as before.
        """
        return self._to_come(values) <= sent < min(self._at_once, self._most_sent)

    def _total(self, values: Mapping[Counter, int]) -> int:
        """As many as are planned, or more where answers come faster than LoadGen expects."""
        return max(self._length.queries, values[Counter.ISSUED])

    def _to_come(self, values: Mapping[Counter, int]) -> int:
        """The queries that have not ended, issued or not."""
        return self._total(values) - _ended(values)

    def _silent_s(self, values: Mapping[Counter, int], now: float) -> float:
        """How long nothing has arrived; 0 where nothing is waited for. A failure alone brings nothing."""
        arrived = values[Counter.RECEPTIONS] + values[Counter.COMPLETED]
        if values[Counter.ISSUED] <= _ended(values) or arrived != self._arrived[1]:
            self._arrived = (now, arrived)
        return now - self._arrived[0]

    def _rate(self, tokens: int, now: float) -> float | None:
        """Tokens per second over the last seconds; tokens of an answer that failed are subtracted."""
        self._tokens.append((now, tokens))
        while len(self._tokens) > 2 and self._tokens[1][0] <= now - _RATE_OVER_S:
            self._tokens.popleft()
        since, before = self._tokens[0]
        return max(tokens - before, 0) / (now - since) if now > since else None

    def _imbalance(self, loads: npt.NDArray[np.int64]) -> float | None:
        self._loads.append(loads)
        means = np.mean(self._loads, axis=0)
        return imbalance(means) if len(means) > 1 else None

    def _remaining(self, values: Mapping[Counter, int], elapsed: float) -> float | None:
        """Seconds until the last query is issued and answered, at the rate of answers so far.

        While fewer have been answered than run at once, there is no such rate: those began together, and only
        the shortest answers have ended. Where more are in flight than run at once, queries come faster than
        answers, and those of the schedule's rest wait behind them. The last answers, once none waits, end at
        no such rate: their time follows from the longest answer so far, and is at least that of a mean one.
        """
        length, ended = self._length, _ended(values)
        answered, in_flight = ended - values[Counter.RESUMED], values[Counter.ISSUED] - ended
        issues = max(0.0, (length.scheduled_s or length.least_s) - elapsed)
        running = min(self._at_once, in_flight)
        if answered <= 0 or answered < running:
            return issues or None
        if length.scheduled_s is not None and in_flight <= self._at_once:
            return issues + in_flight * elapsed / answered
        mean_s, tokens = running * elapsed / answered, values[Counter.OUTPUT_TOKENS]
        longest_s = running * elapsed * values[Counter.LONGEST_ANSWER] / max(tokens, 1)
        last_s = max(mean_s, _LAST_ANSWERS * longest_s)
        return max(issues, (self._to_come(values) - running) * elapsed / answered + last_s)


def _ended(values: Mapping[Counter, int]) -> int:
    return values[Counter.COMPLETED] + values[Counter.FAILED]


def _mean(total: int, count: int) -> float | None:
    return total / count if count else None
