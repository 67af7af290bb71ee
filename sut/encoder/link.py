"""A worker's end of its encoder: it sends texts, and gets their ids later, without waiting for either."""

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from harness.record.outcome import Completion, Failure, FailureKind, TextCompletion
from sut.client.connections import Request
from sut.encoder.process import IDS_STRUCT, NO_COUNT, TEXT_STRUCT

_RECEIVE_BYTES = 1 << 16
_STUCK_NS = 30_000_000_000
_GONE = "its answer had come as text, and the process that encodes it has ended"


class _Held(NamedTuple):
    """An answer whose ids are not there yet."""

    request: Request
    finish_reason: str
    prompt_tokens: int | None
    counted: int | None


class EncoderLink:
    """Answers in the order of their end. ``on_encoded`` is called once for each, also if the encoder dies.

    ``watch`` polls the channel along with the worker's connections.
    """

    def __init__(
        self,
        channel: socket.socket,
        on_encoded: Callable[[Request, Completion | Failure], None],
        watch: Callable[[int, int, Callable[[int], None]], None],
    ) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._on_encoded = on_encoded
        self._watch = watch
        self._held: deque[_Held] = deque()
        self._unsent = bytearray()
        self._received = bytearray()
        self._moved_ns = 0
        self._mask = select.EPOLLIN
        self.is_open = True
        watch(channel.fileno(), self._mask, self._on_event)

    @property
    def waiting(self) -> int:
        """Answers whose ids are not there yet."""
        return len(self._held)

    def is_stuck(self, now: int) -> bool:
        """Whether answers wait, and none was encoded for a long time before ``now`` (monotonic ns)."""
        return bool(self._held) and now - self._moved_ns > _STUCK_NS

    def send(self, request: Request, answer: TextCompletion) -> None:
        """Have an answer encoded."""
        if not self.is_open:
            self._on_encoded(request, Failure(FailureKind.ENCODER_LOST, _GONE))
            return
        if not self._held:
            self._moved_ns = time.monotonic_ns()
        text = answer.text.encode("utf-8", "replace")
        self._held.append(_Held(request, answer.finish_reason, answer.prompt_tokens, answer.counted))
        self._unsent += TEXT_STRUCT.pack(len(text), NO_COUNT if answer.counted is None else answer.counted)
        self._unsent += text
        self._flush()

    def close(self) -> None:
        """Hang up: the encoder ends. What is held stays without an outcome."""
        self.is_open = False
        self._held.clear()
        self._channel.close()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._channel.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._lose()
            return
        mask = select.EPOLLIN | (select.EPOLLOUT if self._unsent else 0)
        if mask != self._mask:
            self._mask = mask
            self._watch(self._channel.fileno(), mask, self._on_event)

    def _on_event(self, mask: int) -> None:
        if mask & select.EPOLLOUT and self.is_open:
            self._flush()
        if mask & ~select.EPOLLOUT and self.is_open:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._channel.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._lose()
            return
        self._received += data
        self._moved_ns = time.monotonic_ns()
        begin = 0
        while len(self._received) >= (start := begin + IDS_STRUCT.size):
            size, kind = IDS_STRUCT.unpack_from(self._received, begin)
            if len(self._received) < start + size:
                break
            held, begin = self._held.popleft(), start + size
            self._on_encoded(held.request, _outcome(held, kind, bytes(self._received[start:begin])))
        del self._received[:begin]

    def _lose(self) -> None:
        """The encoder has died: the answers that it held are lost."""
        held = list(self._held)
        self.close()
        for each in held:
            self._on_encoded(each.request, Failure(FailureKind.ENCODER_LOST, _GONE))


def _outcome(held: _Held, kind: int, data: bytes) -> Completion | Failure:
    if kind:
        return Failure(FailureKind(kind), data.decode())
    ids = np.frombuffer(data, "<i4")
    return Completion(ids, held.finish_reason, held.prompt_tokens, held.counted)
