"""One step of a ladder: its filling, its window, the test for a plateau, and which requests count.

The filling ends when as many requests have ended at the new concurrency as are in flight: one mean latency
by Little's law, in which the lengths of the answers in flight have come to their own distribution. From then
on the window of the last ``seconds`` moves with the time until it is steady, or until patience ends.

Counted are, of the window: every token that arrived, of whatever request; every request that ended, for the
rates; and for TTFT and TPOT those of them that were also issued at this concurrency. A request ends once, so
none is counted in two steps. Long answers that began before are missing among the latencies, more of them the
shorter the window is against the latency.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from harness.analysis.client_overhead import LARGEST_PART, ClientReadings, client_load
from harness.analysis.statistics import (
    completed,
    failures_by_kind,
    has_tpot,
    issue_delay_ns,
    latency_ns,
    mean_latency_s,
    percentile,
    tokens,
    tpot_ns,
    ttft_ns,
)
from harness.arrays import Integers
from harness.peak.ladder.steady_state import unsteady
from harness.peak.ladder.steps import Latency, ReplicaStep, Step
from harness.progress.progress_line import SILENT_S
from harness.record.journal import LOADGEN_CALL_ROW, QUERY_ROW, Rows
from harness.text import milliseconds

_SETTLED_NS = 500_000_000  # After this time the workers have written the requests that ended.
_PATIENCE = 3  # A step that is not steady gets at most this number of further windows.
_LEAST_HELD = 0.95  # The client is the bottleneck where it holds a smaller part of the concurrency.
_LATE = 10 * LARGEST_PART  # At p99, a delay above this part of TTFT decides the measured times.
_RECENT = 10  # The progress line shows the mean tokens/s of the last looks.
_FEW = 100  # Of fewer requests, p99 is the largest value.
_NONE = "no request began and ended at this concurrency"
_ISSUER = "the issuing process"
_NS = 1e9


class Look(msgspec.Struct, frozen=True):
    """The counters at a moment."""

    time_ns: int
    tokens: int
    """all tokens so far"""
    in_flight: int
    cpu_ns: tuple[int, ...]
    """CPU time of each process"""


class StepSettings(msgspec.Struct, frozen=True):
    """The settings of a step."""

    concurrency: int
    seconds: float
    """the shortest window"""
    replicas: Sequence[str]
    """URLs"""
    limits_ns: dict[str, int]
    """limits of TTFT and TPOT"""


class StepRows(msgspec.Struct, frozen=True):
    """The requests that ended while a step lasted."""

    concurrency: int
    rows: Rows
    in_window: npt.NDArray[np.bool_]
    """which rows count for the rates"""
    in_latencies: npt.NDArray[np.bool_]
    """which rows count for the latencies"""


class Measurement:
    """A step while it lasts. ``risen_ns``: when the last of its requests is to be issued."""

    def __init__(self, settings: StepSettings, began_ns: int, risen_ns: int) -> None:
        self._settings = settings
        self._began_ns = began_ns
        self._risen_ns = risen_ns
        self._full_ns: int | None = None  # when its number of requests was first in flight
        self._filled_ns: int | None = None
        self._ended = 0  # since all are in flight
        self._looks: list[Look] = []
        self._rows: Rows = np.empty(0, QUERY_ROW)
        self._reasons: tuple[str, ...] = ()
        self.done = False

    def look(self, look: Look, rows: Rows) -> None:
        """Take the counters of now and the rows that are new."""
        self._looks.append(look)
        self._rows = np.concatenate([self._rows, rows])
        now = look.time_ns - _SETTLED_NS
        if self._full_ns is None:
            if look.time_ns >= self._risen_ns and look.in_flight <= self._settings.concurrency:
                self._full_ns = look.time_ns
            return
        if self._filled_ns is None:
            self._ended += self._ends_since_full(rows, look.time_ns)
            if self._ended >= self._settings.concurrency:
                self._filled_ns = look.time_ns
            return
        begin = now - self._width_ns
        if begin < self._filled_ns:
            return
        self._reasons = tuple(self._unsteady(begin, now))
        late = now - self._filled_ns > (1 + _PATIENCE) * self._width_ns
        self.done = not self._reasons or late

    def phase(self, now_ns: int) -> str:
        """``filling: 12 of 64 have ended``, ``measuring: 30 of 60 s``, for the progress line."""
        silent_s = self._silent_s(now_ns)
        silent = f", nothing has arrived for {silent_s:.0f} s" if silent_s >= SILENT_S else ""
        return f"{self._where(now_ns)}{silent}"

    def _where(self, now_ns: int) -> str:
        if self._filled_ns is None:
            rate = self._tokens_per_s_now()
            return f"filling: {self._ended} of {self._settings.concurrency} have ended, {rate:.0f} tokens/s"
        wanted_ns = self._width_ns + _SETTLED_NS
        passed_ns = min(now_ns - self._filled_ns, wanted_ns)
        unsteady = f", not steady yet: {self._reasons[0]}" if self._reasons else ""
        return f"measuring: {passed_ns / _NS:.0f} of {wanted_ns / _NS:.0f} s{unsteady}"

    def _silent_s(self, now_ns: int) -> float:
        """Since the latest look with fewer tokens than now."""
        tokens = self._looks[-1].tokens
        before = (look.time_ns for look in reversed(self._looks) if look.tokens != tokens)
        return (now_ns - next(before, self._began_ns)) / _NS

    def _tokens_per_s_now(self) -> float:
        before, now = self._looks[-_RECENT:][0], self._looks[-1]
        return (now.tokens - before.tokens) / max((now.time_ns - before.time_ns) / _NS, 1e-9)

    def step(self) -> Step:
        """The step, once it is done."""
        settings, now = self._settings, self._looks[-1].time_ns - _SETTLED_NS
        begin = now - self._width_ns
        seconds = self._width_ns / _NS
        inside = self._inside(begin, now)
        counted = self._issued_here(inside)
        times, counts = self._tokens()
        first, last = np.interp([begin, now], times, counts.astype(np.float64))
        held = self._held(begin, now)
        client = tuple(self._client_bound(begin, now, held, counted))
        return Step(
            concurrency=settings.concurrency,
            seconds=seconds,
            filling_s=(begin - self._began_ns) / _NS,
            steady=not self._reasons,
            queries=len(inside),
            queries_per_s=len(inside) / seconds,
            tokens_per_s=float(last - first) / seconds,
            in_flight=held,
            client_bound=bool(client),
            failures=failures_by_kind(self._rows),
            latency_s=mean_latency_s(inside),
            osl_mean=float(inside["osl"].mean()) if len(inside) else None,
            ttft=latency_of(ttft_ns(counted)),
            tpot=latency_of(tpot_ns(counted)),
            replicas=tuple(self._replica_steps(inside, seconds)),
            notes=(*self._longer(), *self._reasons, *client, *_few(counted)),
            ttft_samples_ns=tuple(ttft_ns(counted).tolist()),
            tpot_samples_ns=tuple(tpot_ns(counted).tolist()),
            osl_samples=tuple(inside["osl"].tolist()),
        )

    def kept(self) -> StepRows:
        """The requests of the step, also of one that was cut."""
        now = self._looks[-1].time_ns - _SETTLED_NS if self._looks else 0
        begin = now - self._width_ns
        ends, ok = self._rows["last_byte_ns"], self._rows["failure"] == 0
        inside = ok & (ends >= begin) & (ends < now) & self.done
        counted = inside & (self._rows["issued_ns"] >= self._since_full)
        return StepRows(self._settings.concurrency, self._rows, inside, counted)

    @property
    def _width_ns(self) -> int:
        """``seconds``, or one mean latency where that is longer, so that it can hold complete answers."""
        return max(int(self._settings.seconds * _NS), int((self._latency_s() or 0) * _NS))

    def _latency_s(self) -> float | None:
        """Mean of the requests that ended after the start of the filling."""
        return mean_latency_s(self._rows[self._rows["last_byte_ns"] >= self._since_full])

    @property
    def _since_full(self) -> int:
        """When its number of requests was first in flight; far in the future while it never was."""
        return np.iinfo(np.int64).max if self._full_ns is None else self._full_ns

    def _issued_here(self, rows: Rows) -> Rows:
        """The rows that were issued at this concurrency."""
        found: Rows = rows[rows["issued_ns"] >= self._since_full]
        return found

    def _ends_since_full(self, rows: Rows, now_ns: int) -> int:
        """The number of rows that ended since then; a failure may have no such time."""
        ends = np.where(rows["last_byte_ns"] > 0, rows["last_byte_ns"], now_ns)
        return int((ends >= self._since_full).sum())

    def _inside(self, begin: int, end: int) -> Rows:
        """The completed requests that ended in a window."""
        good = completed(self._rows)
        found: Rows = good[(good["last_byte_ns"] >= begin) & (good["last_byte_ns"] < end)]
        return found

    def _tokens(self) -> tuple[Integers, Integers]:
        times = np.array([look.time_ns for look in self._looks], dtype=np.int64)
        return times, np.array([look.tokens for look in self._looks], dtype=np.int64)

    def _unsteady(self, begin: int, end: int) -> Sequence[str]:
        inside = self._inside(begin, end)
        tpot = np.zeros(len(inside), dtype=np.int64)
        tpot[has_tpot(inside)] = tpot_ns(inside)
        found = tuple(unsteady(begin, end, *self._tokens(), inside["last_byte_ns"], tpot))
        return found if len(self._issued_here(inside)) else (*found, _NONE)

    def _held(self, begin: int, end: int) -> float:
        """Mean of the requests in flight over a window, by the looks or by the times of what has ended.

        Of eight looks one that falls between two short answers is an eighth. The times are exact and at most
        too few, since what is still in flight has none yet.
        """
        held = [look.in_flight for look in self._looks if begin <= look.time_ns <= end]
        looked = sum(held) / len(held) if held else float(self._looks[-1].in_flight)
        return max(looked, mean_in_flight(completed(self._rows), begin, end))

    def _client_bound(self, begin: int, end: int, held: float, counted: Rows) -> Iterator[str]:
        """Signs that the client was the bottleneck, not the servers."""
        rows = [[look.time_ns, *look.cpu_ns] for look in self._looks if begin <= look.time_ns <= end]
        cpu = np.array(rows, dtype=np.int64).reshape(len(rows), 1 + len(self._looks[-1].cpu_ns))
        yield from bottlenecks(cpu, begin)
        limit_ns = self._settings.limits_ns.get("TTFT")
        yield from too_slow(held, self._settings.concurrency, issue_delay_ns(counted), limit_ns)

    def _longer(self) -> Iterator[str]:
        asked = self._settings.seconds
        if self._width_ns > asked * _NS:
            width = self._width_ns / _NS
            yield f"measured for one mean latency, {width:.1f} s: --seconds {asked:g} is shorter"

    def _replica_steps(self, inside: Rows, seconds: float) -> Iterator[ReplicaStep]:
        for number, url in enumerate(self._settings.replicas):
            rows = inside[inside["replica"] == number]
            counted = self._issued_here(rows)
            yield ReplicaStep(
                url=url,
                queries=len(rows),
                queries_per_s=len(rows) / seconds,
                ended_tokens_per_s=tokens(rows) / seconds,
                in_flight=int(latency_ns(rows).sum()) / _NS / seconds,
                ttft=latency_of(ttft_ns(counted)),
                tpot=latency_of(tpot_ns(counted)),
            )


def mean_in_flight(rows: Rows, first: int, last: int) -> float:
    """The mean of the requests at the servers; one of which no end is known counts to the end."""
    sent = rows[rows["sent_ns"] > 0]
    ends = np.where(sent["last_byte_ns"] > 0, sent["last_byte_ns"], last)
    spans = np.clip(ends, first, last) - np.clip(sent["sent_ns"], first, last)
    return float(np.maximum(spans, 0).sum() / (last - first))


def too_slow(held: float, wanted: int, delays_ns: Integers, ttft_ns: float | None) -> Iterator[str]:
    """That the client held too few requests, or sent them too late. ``ttft_ns``: limit or median, if any."""
    if held < _LEAST_HELD * wanted:
        yield f"the client held {held:.1f} requests in flight, not {wanted}"
    if ttft_ns and len(delays_ns) and (p99 := percentile(delays_ns, 0.99)) > _LATE * ttft_ns:
        yield f"the client sent requests {milliseconds(p99)} ms late at p99"


def bottlenecks(cpu: Integers, begin_ns: int) -> Iterator[str]:
    """Where the client's processes were; ``cpu``: rows of CLOCK_MONOTONIC ns and each process's CPU ns."""
    no_calls = np.empty(0, LOADGEN_CALL_ROW)
    load = client_load(ClientReadings(cpu), no_calls, begin_ns, None, issuer=_ISSUER)
    yield from (f"the client was the bottleneck: {found.reason}" for found in load.bottlenecks)


def _few(counted: Rows) -> Iterator[str]:
    if 0 < len(counted) < _FEW:
        yield f"p99 is of {len(counted)} requests only"


def latency_of(values: Integers) -> Latency | None:
    """Percentiles of at least one value."""
    if not len(values):
        return None
    p50, p90, p99 = (int(percentile(values, share)) for share in (0.5, 0.9, 0.99))
    return Latency(count=len(values), p50_ns=p50, p90_ns=p90, p99_ns=p99)
