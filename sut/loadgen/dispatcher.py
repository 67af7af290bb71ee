"""LoadGen's issue callback: hands queries to the workers, least loaded first, and only that."""

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


class Lane:
    """One worker as the LoadGen process sees it.

    ``capacity`` 0 means no limit. ``outstanding`` maps the query ids it holds to their sample indexes; of
    those in ``told`` LoadGen knows the first token. A worker that does not read stops nobody: what its
    channel does not take waits in ``unsent``, and ``poll`` tells when there is room.
    """

    __slots__ = ("alive", "capacity", "channel", "outstanding", "poll", "told", "unsent")

    def __init__(self, channel: socket.socket, capacity: int) -> None:
        channel.setblocking(False)
        self.channel = channel
        self.poll: select.epoll | None = None
        self.unsent = bytearray()
        self.capacity = capacity or _UNLIMITED
        self.outstanding: dict[int, int] = {}
        self.told: set[int] = set()
        self.alive = True

    @property
    def room(self) -> int:
        """How many more queries it may hold."""
        return self.capacity - len(self.outstanding) if self.alive else 0

    def send(self, data: bytes = b"") -> None:
        """Send what waits, then ``data``; keep what the channel does not take."""
        waited = bool(self.unsent)
        self.unsent += data
        try:
            with suppress(BlockingIOError):
                while self.unsent:
                    del self.unsent[: self.channel.send(self.unsent)]
        except OSError:
            # The worker is gone: the reporter sees the end of its channel and fails what it held.
            self.alive = False
            self.unsent.clear()
        if self.poll is not None and waited != bool(self.unsent):
            self.poll.modify(self.channel, select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0))


class Dispatcher:
    """Queries that no worker has room for wait here, as arrays, in LoadGen's order.

    ``on_unserved`` receives the queries that no worker is left to take, sample indexes by id.
    """

    def __init__(
        self, lanes: Sequence[Lane], counters: memoryview, on_unserved: Callable[[dict[int, int]], None]
    ) -> None:
        self.lock = threading.Lock()
        self._lanes = lanes
        self._counters = counters
        self._on_unserved = on_unserved
        self._pending: list[npt.NDArray[np.void]] = []

    def issue(self, query_ids: list[int], sample_indexes: list[int]) -> None:
        """LoadGen's IssueQuery; the ids and indexes of one query's samples."""
        now = time.monotonic_ns()
        self._counters[Counter.ISSUED] += len(query_ids)
        with self.lock:
            lane = self._least_loaded()
            if len(query_ids) == 1 and not self._pending and lane is not None:
                lane.outstanding[query_ids[0]] = sample_indexes[0]
                lane.send(ASSIGNMENT_STRUCT.pack(query_ids[0], sample_indexes[0], now))
                return
            self._pending.append(_rows(query_ids, sample_indexes, now))
        self.pump()

    def pump(self) -> None:
        """Give waiting queries to workers with room; fail them when no worker is left."""
        with self.lock:
            while self._pending and (lane := self._least_loaded()) is not None:
                self._feed(lane)
            served = not self._pending or any(lane.alive for lane in self._lanes)
            unserved = {} if served else self._drain()
        if unserved:
            self._on_unserved(unserved)

    def _feed(self, lane: Lane) -> None:
        rows = self._pending[0]
        count = min(lane.room, len(rows), _SLICE)
        taken = rows[:count]
        if count == len(rows):
            del self._pending[0]
        else:
            self._pending[0] = rows[count:]
        lane.outstanding.update(_by_query(taken))
        lane.send(taken.tobytes())

    def _least_loaded(self) -> Lane | None:
        best = max(self._lanes, key=lambda lane: lane.room)
        return best if best.room > 0 else None

    def _drain(self) -> dict[int, int]:
        unserved = _by_query(np.concatenate(self._pending))
        self._pending.clear()
        return unserved


def _rows(query_ids: list[int], sample_indexes: list[int], now: int) -> npt.NDArray[np.void]:
    rows = np.empty(len(query_ids), dtype=ASSIGNMENT)
    rows["query_id"] = query_ids
    rows["sample_index"] = sample_indexes
    rows["issued_ns"] = now
    return rows


def _by_query(rows: npt.NDArray[np.void]) -> dict[int, int]:
    return dict(zip(rows["query_id"].tolist(), rows["sample_index"].tolist(), strict=True))
