"""Sends queries to the workers, least loaded first, and does nothing else: LoadGen's issue callback."""

import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from sut.ipc.counters import Counter
from sut.ipc.messages import ASSIGNMENT, ASSIGNMENT_STRUCT

_UNLIMITED = 1 << 62
_SLICE = 1024  # rows for one worker at a time, so that all of them start at once
_AHEAD = 16  # rows that a worker holds beyond its capacity, so that a freed slot is filled at once


class WorkerChannel:
    """One worker as the issuing process sees it.

    ``capacity``: requests that it sends at once, 0 for no limit. ``outstanding`` maps the query ids it holds
    to their sample indexes; ``first_token_sent`` are those whose first token the issuer has. A slow reader
    delays no other worker: bytes that its socket does not take wait in ``unsent``, and ``poll`` reports when
    it takes more.
    """

    __slots__ = ("alive", "capacity", "first_token_sent", "outstanding", "poll", "socket", "unsent")

    def __init__(self, connection: socket.socket, capacity: int) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.poll: select.epoll | None = None
        self.unsent = bytearray()
        self.capacity = capacity or _UNLIMITED
        self.outstanding: dict[int, int] = {}
        self.first_token_sent: set[int] = set()
        self.alive = True

    @property
    def free_slots(self) -> int:
        """The number of further requests that it would send now; below 0 where queries wait in it."""
        return self.capacity - len(self.outstanding) if self.alive else -_UNLIMITED

    def send(self, data: bytes = b"") -> None:
        """Send the waiting bytes, then ``data``; keep what the socket does not take."""
        waited = bool(self.unsent)
        self.unsent += data
        try:
            with suppress(BlockingIOError):
                while self.unsent:
                    del self.unsent[: self.socket.send(self.unsent)]
        except OSError:
            # The worker is gone: the loop sees the end of its channel and loses what it held.
            self.alive = False
            self.unsent.clear()
        if self.poll is not None and waited != bool(self.unsent):
            self.poll.modify(self.socket, select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0))


class Dispatcher:
    """Queries for which no worker has a free slot wait here, as arrays, in the order of their issue.

    While many wait, each worker holds a few beyond its capacity. The last ones stay here, for whichever
    worker has a free slot first: in a full one they would wait while others run dry.

    ``on_unserved`` receives the queries that are left when all workers have died, sample indexes by id.
    """

    def __init__(
        self,
        channels: Sequence[WorkerChannel],
        counters: memoryview,
        on_unserved: Callable[[dict[int, int]], None],
    ) -> None:
        self.lock = threading.Lock()
        self._channels = channels
        self._counters = counters
        self._on_unserved = on_unserved
        self._pending: list[npt.NDArray[np.void]] = []
        self._waiting = 0  # rows in _pending

    def issue(self, query_ids: list[int], sample_indexes: list[int]) -> None:
        """The ids and sample indexes of queries; for LoadGen its IssueQuery, with one query's samples."""
        now = time.monotonic_ns()
        self._counters[Counter.ISSUED] += len(query_ids)
        with self.lock:
            channel = self._least_loaded()
            if len(query_ids) == 1 and not self._pending and channel is not None:
                channel.outstanding[query_ids[0]] = sample_indexes[0]
                channel.send(ASSIGNMENT_STRUCT.pack(query_ids[0], sample_indexes[0], now))
                return
            self._pending.append(_rows(query_ids, sample_indexes, now))
            self._waiting += len(query_ids)
        self.pump()

    def pump(self) -> None:
        """Send waiting queries to workers with free slots; fail them when no worker is left."""
        with self.lock:
            while self._pending and (channel := self._least_loaded()) is not None:
                self._feed(channel)
            served = not self._pending or any(channel.alive for channel in self._channels)
            unserved = {} if served else self._drain()
        if unserved:
            self._on_unserved(unserved)

    def _feed(self, channel: WorkerChannel) -> None:
        rows = self._pending[0]
        count = min(self._room(channel), len(rows), _SLICE)
        taken = rows[:count]
        if count == len(rows):
            del self._pending[0]
        else:
            self._pending[0] = rows[count:]
        self._waiting -= count
        channel.outstanding.update(_by_query(taken))
        channel.send(taken.tobytes())

    def _least_loaded(self) -> WorkerChannel | None:
        best = max(self._channels, key=lambda channel: channel.free_slots)
        return best if self._room(best) > 0 else None

    def _room(self, channel: WorkerChannel) -> int:
        """The number of rows that it may get: for its free slots, else ahead, but not the last ones."""
        free = channel.free_slots
        return free if free > 0 else min(free + _AHEAD, self._waiting - _AHEAD * len(self._channels))

    def _drain(self) -> dict[int, int]:
        unserved = _by_query(np.concatenate(self._pending))
        self._pending.clear()
        self._waiting = 0
        return unserved


def _rows(query_ids: list[int], sample_indexes: list[int], now: int) -> npt.NDArray[np.void]:
    rows = np.empty(len(query_ids), dtype=ASSIGNMENT)
    rows["query_id"] = query_ids
    rows["sample_index"] = sample_indexes
    rows["issued_ns"] = now
    return rows


def _by_query(rows: npt.NDArray[np.void]) -> dict[int, int]:
    return dict(zip(rows["query_id"].tolist(), rows["sample_index"].tolist(), strict=True))
