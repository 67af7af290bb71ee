"""Carries the workers' reports to LoadGen: first token first, every query once, nothing that crashes it.

In LoadGen's Offline there are no first tokens (``first_tokens`` False).

LoadGen dies of unknown ids, of completions without a first token and of callers that outlive the test
(loadgen/logging.cc), so each report is held against what the worker really holds.
"""

import select
import threading
import time
from array import array
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from sut.ipc.messages import FAILED, FIRST, Report, ReportReader
from sut.loadgen import binding
from sut.loadgen.dispatcher import Dispatcher, Lane

_RECEIVE_BYTES = 1 << 20
_EMPTY = np.zeros(1, dtype=np.int32)  # LoadGen wants an address even for no data
_EMPTY_ADDRESS = int(_EMPTY.ctypes.data)


class Reporter:
    """Runs in a thread of its own until every worker's channel has ended.

    ``calls`` holds four int64 for each call to LoadGen: query id, FIRST or COMPLETE, arrival of the bytes in
    the worker, time of the call. ``lost`` holds id and sample index of
    the queries whose worker died.
    """

    def __init__(self, lanes: Sequence[Lane], *, first_tokens: bool) -> None:
        self._first_tokens = first_tokens
        self.calls = array("q")
        self.lost: list[tuple[int, int]] = []
        self.stopping = False
        self._lanes = lanes
        self._dispatcher: Dispatcher | None = None
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self, dispatcher: Dispatcher) -> None:
        """Begin to listen to the workers."""
        self._dispatcher = dispatcher
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the workers to hang up; False when one has not."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def fail(self, queries: Mapping[int, int]) -> None:
        """End queries that no worker serves: LoadGen counts each as an error and can finish.

        A test that is being ended has hung up on its workers; what LoadGen still issues then is not lost.
        """
        if not self.stopping:
            self._end(queries, told=frozenset())

    def _run(self) -> None:
        readers = [ReportReader() for _ in self._lanes]
        lanes = {lane.channel.fileno(): index for index, lane in enumerate(self._lanes)}
        poll = select.epoll()
        for lane in self._lanes:
            poll.register(lane.channel, select.EPOLLIN)
            lane.poll = poll
        while lanes:
            for descriptor, mask in poll.poll():
                index = lanes[descriptor]
                lane = self._lanes[index]
                if mask & select.EPOLLOUT:
                    self._send_more(lane)
                data = self._receive(lane)
                if data:
                    self._take(lane, *readers[index].feed(data))
                elif data is not None:
                    del lanes[descriptor]
                    self._hung_up(lane)

    def _send_more(self, lane: Lane) -> None:
        if self._dispatcher is not None:
            with self._dispatcher.lock:
                lane.send()

    def _receive(self, lane: Lane) -> bytes | None:
        """Bytes, b"" when the worker is gone, None when there is nothing now."""
        try:
            return lane.channel.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def _take(self, lane: Lane, buffer: bytes, reports: list[Report]) -> None:
        base = int(np.frombuffer(buffer, dtype=np.uint8).ctypes.data)
        firsts, dones, passed_on = [], [], []
        for report in reports:
            query_id = report.query_id
            unasked = not self._first_tokens or query_id in lane.told
            if query_id not in lane.outstanding or (report.kind == FIRST and unasked):
                continue  # LoadGen crashes on ids that it does not wait for and counts repetitions as errors
            passed_on.append(report)
            if report.kind == FIRST:
                lane.told.add(query_id)
                firsts.append(_response(report, base, 1))
                continue
            del lane.outstanding[query_id]
            if self._first_tokens and query_id not in lane.told:
                firsts.append(_nothing(query_id))
            lane.told.discard(query_id)
            dones.append(_response(report, base, report.size // 4))
        if not self.stopping:
            self._call(firsts, dones, passed_on)
        if dones and self._dispatcher is not None:
            self._dispatcher.pump()

    def _call(self, firsts: list[Any], dones: list[Any], reports: list[Report]) -> None:
        now = time.monotonic_ns()
        if firsts:
            binding.first_tokens(firsts)
        if dones:
            binding.completed(dones)
        for report in reports:
            if report.kind != FAILED:
                self.calls.extend((report.query_id, report.kind, report.arrived_ns, now))

    def _hung_up(self, lane: Lane) -> None:
        if self._dispatcher is None:
            return
        with self._dispatcher.lock:
            lane.alive = False
            if lane.poll is not None:
                lane.poll.unregister(lane.channel)
                lane.poll = None
            held = dict(lane.outstanding)
            lane.outstanding.clear()
        if not self.stopping:
            self._end(held, told=lane.told)
            self._dispatcher.pump()

    def _end(self, queries: Mapping[int, int], told: Set[int]) -> None:
        self.lost.extend(queries.items())
        untold = [_nothing(query_id) for query_id in queries if query_id not in told]
        if untold and self._first_tokens:
            binding.first_tokens(untold)
        if queries:
            binding.completed([_nothing(query_id) for query_id in queries])


def _nothing(query_id: int) -> Any:
    return binding.response(query_id, _EMPTY_ADDRESS, 0, 0)


def _response(report: Report, base: int, tokens: int) -> Any:
    if not report.size:
        return _nothing(report.query_id)
    return binding.response(report.query_id, base + report.offset, report.size, tokens)
