"""Messages between the LoadGen process and its workers: fixed binary layouts, batched, never pickled.

To a worker: ASSIGNMENT rows. From a worker: TOKEN_MESSAGE_STRUCTs, each followed by ``size`` bytes of
little-endian int32 token ids. One FIRST and one COMPLETE or FAILED come for each query, in that order.
"""

import socket
import struct
from typing import NamedTuple

import numpy as np

ASSIGNMENT = np.dtype([("query_id", "<u8"), ("sample_index", "<u8"), ("issued_ns", "<i8")])
ASSIGNMENT_STRUCT = struct.Struct("<QQq")

FIRST, COMPLETE, FAILED = 1, 2, 3
TOKEN_MESSAGE_STRUCT = struct.Struct("<QIIq")  # query id, size in bytes, kind, arrival in monotonic ns


class TokenMessage(NamedTuple):
    """One message from a worker."""

    query_id: int
    kind: int
    """FIRST, COMPLETE or FAILED."""
    arrived_ns: int
    offset: int
    """The place of its token bytes in the buffer."""
    size: int
    """The number of its token bytes."""


class TokenMessageReader:
    """Splits the byte stream of one worker into messages.

    ``feed`` returns the buffer that holds the tokens of the messages it returns.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> tuple[bytes, list[TokenMessage]]:
        """Messages completed by ``data``, in order."""
        buffer = self._rest + data if self._rest else data
        messages: list[TokenMessage] = []
        position, end, header = 0, len(buffer), TOKEN_MESSAGE_STRUCT.size
        while end - position >= header:
            query_id, size, kind, arrived_ns = TOKEN_MESSAGE_STRUCT.unpack_from(buffer, position)
            if end - position - header < size:
                break
            messages.append(TokenMessage(query_id, kind, arrived_ns, position + header, size))
            position += header + size
        self._rest = buffer[position:]
        return buffer, messages


class TokenMessageWriter:
    """Appends messages and sends as many bytes as the socket takes."""

    __slots__ = ("_buffer", "_socket")

    def __init__(self, channel: socket.socket) -> None:
        self._socket = channel
        self._buffer = bytearray()

    @property
    def waiting(self) -> bool:
        """Whether there is something to send."""
        return bool(self._buffer)

    def add(self, query_id: int, kind: int, arrived_ns: int, tokens: bytes = b"") -> None:
        """Queue one message; ``tokens`` are little-endian int32 ids."""
        self._buffer += TOKEN_MESSAGE_STRUCT.pack(query_id, len(tokens), kind, arrived_ns)
        self._buffer += tokens

    def flush(self) -> bool:
        """Send; True when everything is sent. Raises OSError when the LoadGen process is gone."""
        while self._buffer:
            try:
                sent = self._socket.send(self._buffer)
            except BlockingIOError:
                return False
            del self._buffer[:sent]
        return True
