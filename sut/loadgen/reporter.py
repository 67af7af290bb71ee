"""Reports the workers' messages to LoadGen: first token first, every query once, nothing that crashes it.

In LoadGen's Offline there are no first tokens (``first_tokens`` False).

LoadGen crashes on unknown ids, on completions without a first token and on calls after the test
(loadgen/logging.cc), so each message is compared with the queries that its worker holds.
"""

import select
import threading
import time
from array import array
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from sut.ipc.messages import FAILED, FIRST, TokenMessage, TokenMessageReader
from sut.loadgen import binding
from sut.loadgen.dispatcher import Dispatcher, WorkerChannel

# malloc maps, clears and unmaps memory of its own for more: that costs more than the rest of a read.
_RECEIVE_BYTES = 1 << 16
_EMPTY = np.zeros(1, dtype=np.int32)  # LoadGen wants an address even for no data
_EMPTY_ADDRESS = int(_EMPTY.ctypes.data)


class Reporter:
    """Runs in a thread of its own until every worker's channel has ended.

    ``calls`` holds four int64 for each call to LoadGen: query id, FIRST or COMPLETE, arrival of the bytes in
    the worker, time of the call. ``lost`` holds id and sample index of
    the queries whose worker died.
    """

    def __init__(self, channels: Sequence[WorkerChannel], *, first_tokens: bool) -> None:
        self._first_tokens = first_tokens
        self.calls = array("q")
        self.lost: list[tuple[int, int]] = []
        self.stopping = False
        self._channels = channels
        self._dispatcher: Dispatcher | None = None
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self, dispatcher: Dispatcher) -> None:
        """Start to read the workers' channels."""
        self._dispatcher = dispatcher
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the workers to close their channels; False when one has not."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def fail(self, queries: Mapping[int, int]) -> None:
        """End queries that no worker serves: LoadGen counts each as an error and can finish.

        An abort has closed the channels; queries that LoadGen still issues after it are not lost.
        """
        if not self.stopping:
            self._end(queries, first_token_sent=frozenset())

    def _run(self) -> None:
        readers = [TokenMessageReader() for _ in self._channels]
        channels = {channel.socket.fileno(): index for index, channel in enumerate(self._channels)}
        poll = select.epoll()
        for channel in self._channels:
            poll.register(channel.socket, select.EPOLLIN)
            channel.poll = poll
        while channels:
            for descriptor, mask in poll.poll():
                index = channels[descriptor]
                channel = self._channels[index]
                if mask & select.EPOLLOUT:
                    self._send_more(channel)
                data = self._receive(channel)
                if data:
                    self._take(channel, *readers[index].feed(data))
                elif data is not None:
                    del channels[descriptor]
                    self._hung_up(channel)

    def _send_more(self, channel: WorkerChannel) -> None:
        if self._dispatcher is not None:
            with self._dispatcher.lock:
                channel.send()

    def _receive(self, channel: WorkerChannel) -> bytes | None:
        """Bytes, b"" when the worker is gone, None when there is nothing now."""
        try:
            return channel.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def _take(self, channel: WorkerChannel, buffer: bytes, messages: list[TokenMessage]) -> None:
        base = int(np.frombuffer(buffer, dtype=np.uint8).ctypes.data)
        firsts, dones, passed_on = [], [], []
        for message in messages:
            query_id = message.query_id
            unexpected = not self._first_tokens or query_id in channel.first_token_sent
            if query_id not in channel.outstanding or (message.kind == FIRST and unexpected):
                continue  # LoadGen crashes on ids that it does not wait for and counts repetitions as errors
            passed_on.append(message)
            if message.kind == FIRST:
                channel.first_token_sent.add(query_id)
                firsts.append(_response(message, base, 1))
                continue
            del channel.outstanding[query_id]
            if self._first_tokens and query_id not in channel.first_token_sent:
                firsts.append(_empty_response(query_id))
            channel.first_token_sent.discard(query_id)
            dones.append(_response(message, base, message.size // 4))
        if not self.stopping:
            self._call(firsts, dones, passed_on)
        if dones and self._dispatcher is not None:
            self._dispatcher.pump()

    def _call(self, firsts: list[Any], dones: list[Any], messages: list[TokenMessage]) -> None:
        now = time.monotonic_ns()
        if firsts:
            binding.first_tokens(firsts)
        if dones:
            binding.completed(dones)
        for message in messages:
            if message.kind != FAILED:
                self.calls.extend((message.query_id, message.kind, message.arrived_ns, now))

    def _hung_up(self, channel: WorkerChannel) -> None:
        if self._dispatcher is None:
            return
        with self._dispatcher.lock:
            channel.alive = False
            if channel.poll is not None:
                channel.poll.unregister(channel.socket)
                channel.poll = None
            held = dict(channel.outstanding)
            channel.outstanding.clear()
        if not self.stopping:
            self._end(held, first_token_sent=channel.first_token_sent)
            self._dispatcher.pump()

    def _end(self, queries: Mapping[int, int], first_token_sent: Set[int]) -> None:
        self.lost.extend(queries.items())
        without_first = [
            _empty_response(query_id) for query_id in queries if query_id not in first_token_sent
        ]
        if without_first and self._first_tokens:
            binding.first_tokens(without_first)
        if queries:
            binding.completed([_empty_response(query_id) for query_id in queries])


def _empty_response(query_id: int) -> Any:
    return binding.response(query_id, _EMPTY_ADDRESS, 0, 0)


def _response(message: TokenMessage, base: int, tokens: int) -> Any:
    if not message.size:
        return _empty_response(message.query_id)
    return binding.response(message.query_id, base + message.offset, message.size, tokens)
