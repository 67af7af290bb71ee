"""Streams of which nothing is urgent until their end: what has come is kept until it may be that end.

``BatchedStreams`` is plain Python and reads any transport; sut/client/native_streams.py does the same in C
for plain TCP, and reads events that have an expected pattern.
"""

import select
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from sut.client.transport import Received, Transport
from sut.wire.answer_checks import Expected
from sut.wire.sse import EVENT_END

NAP_S = 0.001
EVENTS_A_ROUND = 64  # messages are sent after each round: fewer events, earlier messages
AT_A_TIME = 16  # between two looks at what is urgent
MOST_HELD_BYTES = 1 << 13

Arrival = tuple[int, int | OSError | Received]
"""A descriptor and what is to be done about it: a mask that says more than that bytes have come, the error of
a read, or received bytes, b"" at the end of the connection."""


class Held(NamedTuple):
    """What is kept of a stream."""

    ids: bytes
    """Unsigned 32-bit integers, of events that were as expected."""
    data: bytes
    """What came after them."""
    arrived_ns: int
    """The arrival of the last byte, in monotonic ns."""


NOTHING_HELD = Held(b"", b"", 0)


class Streams(Protocol):
    """The streams of the descriptors in one epoll set."""

    more: bool
    """Whether the latest ``read`` left some unread."""
    kept: int
    """Reads so far whose bytes were kept."""

    @property
    def kept_tokens(self) -> int:
        """The ids that are kept at the moment."""

    def begin(self, descriptor: int, mask: int, transport: Transport, last_ns: int, *, holds: bool) -> None:
        """Read a stream whose latest bytes came at ``last_ns``. ``holds``: whether its events may be kept."""

    def listen(self, descriptor: int, mask: int) -> None:
        """Wait for other events of it."""

    def expect(self, descriptor: int, expected: Expected | None) -> None:
        """Note the form of its next events, of which the ids may be kept instead of the bytes.

        It holds until something else comes; None: it is not known.
        """

    def end(self, descriptor: int) -> None:
        """Read it no more, and drop what is kept of it."""

    def wait(self, timeout_s: float) -> float:
        """Wait for what has to be looked at; return how much longer what is urgent may be awaited."""

    def read(self) -> Iterator[Arrival]:
        """Read what has come, until something urgent has, and return what may not be kept.

        That is: what may be the end of an answer, what came too late, and all once enough is kept.
        """

    def take(self, descriptor: int) -> Held:
        """Remove and return what is kept of a stream."""

    def close(self) -> None:
        """Drop everything."""


class _Stream:
    __slots__ = ("_bytes", "_held_ns", "_holds", "_last_ns", "_pieces", "transport")

    def __init__(self, transport: Transport, last_ns: int, holds: bool) -> None:
        self.transport = transport
        self._holds = holds
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._held_ns = 0
        self._last_ns = last_ns

    def keeps(self, data: bytes, arrived_ns: int, stall_ns: int) -> bool:
        """Whether these bytes are kept."""
        gap_ns, self._last_ns = arrived_ns - self._last_ns, arrived_ns
        if (
            not self._holds
            or gap_ns > stall_ns
            or self._bytes > MOST_HELD_BYTES
            or not data.endswith(EVENT_END)
        ):
            return False
        self._pieces.append(data)
        self._bytes += len(data)
        self._held_ns = arrived_ns
        return True

    def take(self) -> Held:
        """As Streams."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._bytes = 0
        return Held(b"", data, self._held_ns) if data else NOTHING_HELD


class BatchedStreams:
    """Streams of any transport, in Python."""

    def __init__(self, batched: select.epoll, urgent: select.epoll, stall_ns: int) -> None:
        """``batched``: the set of the streams. ``urgent``: another one, looked at while reading."""
        self.more = False
        self.kept = 0
        self._batched, self._urgent, self._stall_ns = batched, urgent, stall_ns
        self._streams: dict[int, _Stream] = {}

    @property
    def kept_tokens(self) -> int:
        """As Streams: none, since all is kept as bytes."""
        return 0

    def begin(self, descriptor: int, mask: int, transport: Transport, last_ns: int, *, holds: bool) -> None:
        """As Streams."""
        try:
            self._batched.modify(descriptor, mask)
        except FileNotFoundError:  # its connection has not been batched before: it stays in that set
            self._batched.register(descriptor, mask)
        self._streams[descriptor] = _Stream(transport, last_ns, holds)

    def listen(self, descriptor: int, mask: int) -> None:
        """As Streams."""
        self._batched.modify(descriptor, mask)

    def expect(self, descriptor: int, expected: Expected | None) -> None:
        """As Streams: all is kept as bytes."""

    def end(self, descriptor: int) -> None:
        """As Streams."""
        del self._streams[descriptor]

    def wait(self, timeout_s: float) -> float:
        """As Streams: a nap."""
        return 0.0 if self.more else min(timeout_s, NAP_S)

    def read(self) -> Iterator[Arrival]:
        """As Streams."""
        events = self._batched.poll(0, EVENTS_A_ROUND)
        self.more = len(events) == EVENTS_A_ROUND
        for number, (descriptor, mask) in enumerate(events):
            if number and number % AT_A_TIME == 0 and self._urgent.poll(0, 1):
                self.more = True
                return
            stream = self._streams.get(descriptor)
            if stream is None:  # it has ended since
                continue
            if mask != select.EPOLLIN:
                yield descriptor, mask
                continue
            try:
                received = stream.transport.receive()
            except OSError as error:
                yield descriptor, error
                continue
            if received is None:
                continue
            if stream.keeps(*received, self._stall_ns):
                self.kept += 1
            else:
                yield descriptor, received

    def take(self, descriptor: int) -> Held:
        """As Streams."""
        return self._streams[descriptor].take()

    def close(self) -> None:
        """As Streams."""
        self._streams.clear()
