"""Reports the workers' messages to LoadGen: first token first, every query once, nothing that crashes it.

LoadGen crashes on unknown ids, on completions without a first token and on calls after the test
(loadgen/logging.cc), so each message is compared with the queries that its worker holds.
"""

import math
import time
from array import array
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from sut.ipc.counters import Counter
from sut.ipc.messages import FIRST, TokenMessage
from sut.issuers.dispatcher import WorkerChannel
from sut.loadgen import binding

_EMPTY = np.zeros(1, dtype=np.int32)  # LoadGen wants an address even for no data
_EMPTY_ADDRESS = int(_EMPTY.ctypes.data)


class Reporter:
    """Passes what the workers report on to LoadGen (sut.issuers.loop.Answers)."""

    def __init__(self, counters: memoryview, *, first_tokens: bool, late_ns: float = math.inf) -> None:
        """``first_tokens`` False: in LoadGen's Offline there are none.

        ``late_ns``: a first token that is reported later after its arrival is counted as late.
        """
        self.calls = array("q")
        """four int64 for each call to LoadGen: query id, FIRST, COMPLETE or FAILED, arrival of the bytes in
        the worker, time of the call"""
        self.lost: list[tuple[int, int]] = []
        """id and sample index of the queries whose worker died"""
        self.stopping = False
        """the test is over: LoadGen is called no more"""
        self._counters = counters
        self._first_tokens = first_tokens
        self._late_ns = late_ns

    def take(self, channel: WorkerChannel, buffer: bytes, messages: Sequence[TokenMessage]) -> bool:
        """Report what LoadGen waits for."""
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
        return bool(dones)

    def lose(self, queries: Mapping[int, int], first_token_sent: Set[int] = frozenset()) -> None:
        """End queries that no worker serves: LoadGen counts each as an error and can finish.

        Queries that LoadGen still issues after an abort are not lost.
        """
        if self.stopping:
            return
        self.lost.extend(queries.items())
        without_first = [
            _empty_response(query_id) for query_id in queries if query_id not in first_token_sent
        ]
        if without_first and self._first_tokens:
            binding.first_tokens(without_first)
        if queries:
            binding.completed([_empty_response(query_id) for query_id in queries])

    def _call(self, firsts: list[Any], dones: list[Any], messages: list[TokenMessage]) -> None:
        now, late = time.monotonic_ns(), 0
        if firsts:
            binding.first_tokens(firsts)
        if dones:
            binding.completed(dones)
        for message in messages:
            self.calls.extend((message.query_id, message.kind, message.arrived_ns, now))
            # An end may have waited for its ids, which are encoded of its text.
            late += message.kind == FIRST and now - message.arrived_ns > self._late_ns
        self._counters[Counter.LATE_FIRST_TOKENS] += late


def _empty_response(query_id: int) -> Any:
    return binding.response(query_id, _EMPTY_ADDRESS, 0, 0)


def _response(message: TokenMessage, base: int, tokens: int) -> Any:
    if not message.size:
        return _empty_response(message.query_id)
    return binding.response(message.query_id, base + message.offset, message.size, tokens)
