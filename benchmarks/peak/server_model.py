"""A made-up server in virtual time, the times of whose answers follow from a few numbers.

The same rules as the stub's decode batch (benchmarks/stub/batch.c). A replica decodes all of its running
requests together: with N of them a token of each takes ``tpot(N)``. A request that arrives at full slots
waits in the replica's queue, first in, first out. A prefill stops the decoding for its own time, prefills
follow one another, and the end of a prefill is the request's first token. The client sends each request to
the replica with the fewest in flight.

Running requests of a replica advance at one pace, so that one number for each replica, the tokens that a
request would have had since the start, gives the end of each of them: an event for each arrival and each end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

TICK_S = 10.0  # time for which the pace of a noisy or drifting server is constant
NEVER = math.inf

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Server:
    """``replicas`` of one server; seconds everywhere.

    A token of each of N running requests takes ``step_s + stream_s * N + square_s * N**2``. ``slow``
    multiplies all times of the last replica. ``noise`` is the standard deviation of the logarithm of the pace
    of each replica, an autoregressive process with a correlation time of ``noise_s``. ``drift`` is the share
    by which the server gets slower in the end, with a time constant of ``drift_s`` (a machine that warms up).
    """

    step_s: float
    stream_s: float
    square_s: float = 0.0
    slots: int = 1_000_000
    prefill_s: float = 0.0
    replicas: int = 1
    slow: float = 1.0
    noise: float = 0.0
    noise_s: float = 60.0
    drift: float = 0.0
    drift_s: float = 1800.0

    def tpot(self, running: int) -> float:
        """Seconds for one token of each of ``running`` requests."""
        return self.step_s + self.stream_s * running + self.square_s * running * running


@dataclass(frozen=True, slots=True)
class Limits:
    """A simulation ends once more than ``most_over`` requests are over one of the limits."""

    ttft_s: float
    tpot_s: float
    most_over: int


@dataclass(frozen=True, slots=True)
class Answers:
    """Times of the requests in the order of their arrival; NaN where the simulation ended before.

    ``produced`` tokens of the ``tokens`` of each were there at its end, ``ended_s``.
    """

    arrived: Floats
    first: Floats
    done: Floats
    tokens: npt.NDArray[np.int64]
    produced: Floats
    replica: npt.NDArray[np.int64]
    ended_s: float

    @property
    def ttft(self) -> Floats:
        """From the arrival to the first token."""
        return self.first - self.arrived

    @property
    def tpot(self) -> Floats:
        """(last - first) / (tokens - 1), as LoadGen counts."""
        return (self.done - self.first) / np.maximum(self.tokens - 1, 1)


def open_loop(
    server: Server,
    arrivals: Sequence[float],
    tokens: Sequence[int],
    *,
    limits: Limits | None = None,
    seed: int = 0,
    age_s: float = 0.0,
) -> Answers:
    """Answers to requests at ``arrivals`` with ``tokens`` each, by a server ``age_s`` old at time 0."""
    machine = _Machine(server, limits or Limits(NEVER, NEVER, 0), seed, age_s)
    machine.expect(arrivals, tokens)
    for index, at in enumerate(arrivals):
        while machine.next_at <= at and not machine.decided:
            machine.advance()
        if machine.decided:
            break
        machine.arrive(index, at)
    while machine.busy and not machine.decided:
        machine.advance()
    return machine.answers()


def closed_loop(
    server: Server,
    in_flight: int,
    tokens: Iterator[int],
    until_s: float,
    *,
    seed: int = 0,
    age_s: float = 0.0,
) -> Answers:
    """Answers until ``until_s``, from an idle server on, while ``in_flight`` are always under way."""
    machine = _Machine(server, Limits(NEVER, NEVER, 0), seed, age_s)
    count = 0

    def start(at: float) -> None:
        nonlocal count
        machine.expect([at], [next(tokens)])
        machine.arrive(count, at)
        count += 1

    for _ in range(in_flight):
        start(0.0)
    while (at := machine.next_at) < until_s:
        for _ in range(machine.advance()):
            start(at)
    machine.stop(until_s)
    return machine.answers()


class _Machine:
    """The replicas' state, moved from event to event."""

    def __init__(self, server: Server, limits: Limits, seed: int, age_s: float) -> None:
        count = server.replicas
        self._server, self._limits, self._age_s = server, limits, age_s
        self._tpot = [server.tpot(n) for n in range(min(server.slots, 100_000) + 1)]
        self._random = np.random.default_rng(seed)
        self._steady = not server.noise and not server.drift
        self._slow = np.ones(count)
        self._slow[-1] = server.slow
        self._log_pace = server.noise * self._random.standard_normal(count)
        self._pace: list[float] = self._paces(0.0)
        self._running = [0] * count
        self._in_flight = [0] * count
        self._progress = [0.0] * count  # tokens of a request that runs since the start
        self._moved = [0.0] * count  # time of that progress
        self._prefilled = [0.0] * count  # end of the replica's prefills
        self._ends: list[list[tuple[float, int]]] = [[] for _ in range(count)]
        self._queues: list[deque[int]] = [deque() for _ in range(count)]
        self._planned = [NEVER] * count  # the time of each replica's next end, to know stale entries
        self._agenda: list[tuple[float, int]] = []
        self._tick = NEVER if self._steady else TICK_S
        self._arrived: list[float] = []
        self._tokens: list[int] = []
        self._first: list[float] = []
        self._done: list[float] = []
        self._at: list[int] = []
        self._over = [0, 0]  # TTFT, TPOT
        self._now = 0.0
        self.decided = False
        self.next_at = self._tick

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return any(self._in_flight)

    def expect(self, arrivals: Sequence[float], tokens: Sequence[int]) -> None:
        """Requests that will arrive, with the tokens of their answers."""
        self._arrived += arrivals
        self._tokens += tokens
        missing = [math.nan] * len(tokens)
        self._first += missing
        self._done += missing
        self._at += [-1] * len(tokens)

    def arrive(self, index: int, now: float) -> None:
        """One request, to the replica with the fewest in flight."""
        in_flight = self._in_flight
        replica = in_flight.index(min(in_flight))
        in_flight[replica] += 1
        self._at[index] = replica
        if self._running[replica] < self._server.slots:
            self._move(replica, now)
            self._admit(replica, index, now)
            self._plan(replica, now)
        else:
            self._queues[replica].append(index)

    def advance(self) -> int:
        """Move to the next event; the number of requests that ended (0 or 1)."""
        now = self._now = self.next_at
        if now == self._tick:
            self._change_pace(now)
            return 0
        _, replica = heappop(self._agenda)
        self._move(replica, now)
        _, index = heappop(self._ends[replica])
        self._done[index] = now
        if now - self._first[index] > self._limits.tpot_s * (self._tokens[index] - 1):
            self._miss(1)
        self._running[replica] -= 1
        self._in_flight[replica] -= 1
        if self._queues[replica]:
            self._admit(replica, self._queues[replica].popleft(), now)
        self._plan(replica, now)
        return 1

    def stop(self, now: float) -> None:
        """Move all replicas to ``now``, where nothing happens."""
        self._now = now
        for replica in range(self._server.replicas):
            self._move(replica, now)

    def answers(self) -> Answers:
        """The answers so far."""
        produced = np.array(self._tokens, np.float64)
        produced[np.isnan(self._done)] = 0.0
        for replica, ends in enumerate(self._ends):
            for target, index in ends:
                had = self._tokens[index] - max(target - self._progress[replica], 0.0)
                produced[index] = had if self._first[index] <= self._now else 0.0
        return Answers(
            np.array(self._arrived),
            np.array(self._first),
            np.array(self._done),
            np.array(self._tokens),
            produced,
            np.array(self._at),
            self._now,
        )

    def _miss(self, which: int) -> None:
        self._over[which] += 1
        self.decided |= self._over[which] > self._limits.most_over

    def _move(self, replica: int, now: float) -> None:
        """Bring the replica's progress up to ``now``: it stands still during prefills."""
        since = max(self._moved[replica], self._prefilled[replica])
        if now > since and (running := self._running[replica]):
            self._progress[replica] += (now - since) / (self._tpot[running] * self._pace[replica])
        self._moved[replica] = now

    def _admit(self, replica: int, index: int, now: float) -> None:
        self._running[replica] += 1
        ready = max(now, self._prefilled[replica]) + self._server.prefill_s * self._pace[replica]
        self._prefilled[replica] = ready
        self._first[index] = ready
        if ready - self._arrived[index] > self._limits.ttft_s:
            self._miss(0)
        heappush(self._ends[replica], (self._progress[replica] + self._tokens[index] - 1, index))

    def _plan(self, replica: int, now: float) -> None:
        """Store the time at which the replica's next request ends at the present load."""
        if ends := self._ends[replica]:
            left = ends[0][0] - self._progress[replica]
            since = max(now, self._prefilled[replica])
            at = since + max(left, 0.0) * self._tpot[self._running[replica]] * self._pace[replica]
            self._planned[replica] = at
            heappush(self._agenda, (at, replica))
        else:
            self._planned[replica] = NEVER
        agenda, planned = self._agenda, self._planned
        while agenda and agenda[0][0] != planned[agenda[0][1]]:
            heappop(agenda)
        self.next_at = min(agenda[0][0], self._tick) if agenda else self._tick

    def _change_pace(self, now: float) -> None:
        server = self._server
        if server.noise:
            keep = math.exp(-TICK_S / server.noise_s)
            fresh = self._random.standard_normal(server.replicas)
            self._log_pace = keep * self._log_pace + server.noise * math.sqrt(1 - keep * keep) * fresh
        for replica in range(server.replicas):
            self._move(replica, now)
        self._pace = self._paces(now)
        self._tick = now + TICK_S
        for replica in range(server.replicas):
            self._plan(replica, now)

    def _paces(self, now: float) -> list[float]:
        """The factors of each replica's times from ``now`` on."""
        server = self._server
        drift = 1 + server.drift * (1 - math.exp(-(self._age_s + now) / server.drift_s))
        return [float(pace) for pace in self._slow * drift * np.exp(self._log_pace)]
