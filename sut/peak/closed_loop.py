"""The process that keeps a number of requests in flight: each one that ends is replaced at once.

Its dialogue is that of sut/rows/issuer.py, and ("concurrency", (requests, seconds)) changes the number: in
even steps over the seconds, so that the new requests do not stay in step with each other. It ends by an abort
only. Samples come in the order of the dataset, and again from its start, without a break between
two numbers. A query's id counts the queries.
"""

import socket
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from typing import Any

from harness.record.resolved_plan import Cpus
from sut.ipc.counters import CounterBoard
from sut.loadgen.dispatcher import WorkerChannel
from sut.rows.issuer import Issuer, issue_until_done

_SHORTEST_S = 0.001  # between two new requests of a rise: what epoll can wait


def closed_loop_main(
    samples: int, sockets: Sequence[socket.socket], board: CounterBoard, control: Pipe, cores: Cpus
) -> None:
    """Entry point of the process."""
    issue_until_done(lambda *parts: ClosedLoop(samples, *parts), sockets, board, control, cores)


class Rise:
    """A number that changes from ``start`` to ``end`` over ``seconds``, beginning at ``began``."""

    def __init__(self, start: int, end: int, seconds: float, began: float) -> None:
        self.end = end
        self._start = start
        self._seconds = seconds
        self._began = began

    def at(self, now: float) -> int:
        """The number at a time. A fall happens at once."""
        passed = now - self._began
        if self.end <= self._start or passed >= self._seconds:
            return self.end
        return self._start + int((self.end - self._start) * passed / self._seconds)

    def pause(self, now: float) -> float | None:
        """Seconds between two changes; None when it has ended."""
        if self.at(now) == self.end:
            return None
        return max(_SHORTEST_S, self._seconds / (self.end - self._start))


class ClosedLoop(Issuer):
    """Replaces what has ended, up to the number of now."""

    def __init__(
        self, samples: int, channels: Sequence[WorkerChannel], counters: memoryview, control: Pipe
    ) -> None:
        super().__init__(channels, counters, control)
        self._samples = samples
        self._rise = Rise(0, 0, 0, 0)
        self._next = 0

    @property
    def done(self) -> bool:
        """Whether no worker is left; otherwise the supervisor ends the loop."""
        return not self.served

    def commanded(self, word: str, value: Any) -> bool:
        """Change the number."""
        if word != "concurrency":
            return False
        requests, seconds = value
        now = time.monotonic()
        self._rise = Rise(min(self.waiting, self._rise.at(now)), requests, seconds, now)
        return True

    def proceed(self) -> float:
        """Issue the requests that are missing."""
        now = time.monotonic()
        for _ in range(self._rise.at(now) - self.waiting):
            self.issue([self._next], [self._next % self._samples])  # one by one, each where the fewest are
            self._next += 1
        pause, most = self._rise.pause(now), super().proceed()
        return most if pause is None else min(pause, most)
