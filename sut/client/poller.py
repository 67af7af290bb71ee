"""Two sets of descriptors to poll: those that are served at once, and streams that are polled in batches.

Most of the CPU time of a paced event is its own wake-up of the process. A stream whose first token was
reported has nothing urgent until its end, and the kernel stamps its bytes on arrival. Polling all such
streams together, about once in a millisecond, makes an event cheaper and leaves CPU time for requests that
wait for a first token.
"""

import select
from collections.abc import Iterable

from sut.client.native_streams import NativeStreams, library
from sut.client.streams import EVENTS_A_ROUND, Arrival, BatchedStreams, Held, Streams
from sut.client.transport import KernelClock, Transport
from sut.wire.answer_checks import Expected

Event = tuple[int, int]  # descriptor and mask


class Poller:
    """Every descriptor is served at once or in batches; ``forget`` it when it is closed."""

    __slots__ = ("_batched", "_immediate", "_streams", "batched", "is_native")

    def __init__(self, clock: KernelClock, stall_ns: int, *, plain: bool = True) -> None:
        """``stall_ns``: what comes on a batched stream so long after its last bytes is not kept.

        ``plain``: whether all connections are plain TCP.
        """
        self._immediate = select.epoll()
        self._batched = select.epoll()
        native = library() if plain else None
        self.is_native = native is not None  # whether batched streams are read in C
        self._streams: Streams
        if native is None:
            self._streams = BatchedStreams(self._batched, self._immediate, stall_ns)
        else:
            self._streams = NativeStreams(native, self._batched, self._immediate, stall_ns, clock)
        self.batched: set[int] = set()

    @property
    def kept(self) -> int:
        """Reads of batched streams so far whose bytes were kept."""
        return self._streams.kept

    @property
    def kept_tokens(self) -> int:
        """The ids of batched streams that are kept at the moment."""
        return self._streams.kept_tokens

    def register(self, descriptor: int, mask: int) -> None:
        """Serve a new descriptor at once."""
        self._immediate.register(descriptor, mask)

    def modify(self, descriptor: int, mask: int) -> None:
        """Wait for other events."""
        if descriptor in self.batched:
            self._streams.listen(descriptor, mask)
        else:
            self._immediate.modify(descriptor, mask)

    def to_batched(
        self, descriptor: int, mask: int, transport: Transport, last_ns: int, *, holds: bool
    ) -> None:
        """Read it in batches from now on: see Streams.begin."""
        self._immediate.unregister(descriptor)
        self.batched.add(descriptor)
        self._streams.begin(descriptor, mask, transport, last_ns, holds=holds)

    def expect(self, descriptor: int, expected: Expected | None) -> None:
        """Note the form of a batched stream's next events: see Streams.expect."""
        self._streams.expect(descriptor, expected)

    def to_immediate(self, descriptor: int, mask: int) -> None:
        """Serve it at once again from now on."""
        self._immediate.register(descriptor, mask)
        self.batched.remove(descriptor)
        self._streams.end(descriptor)

    def forget(self, descriptor: int) -> None:
        """Note that a descriptor is closed, which removes it from its sets."""
        if descriptor in self.batched:
            self.batched.remove(descriptor)
            self._streams.end(descriptor)

    def poll(self, timeout_s: float) -> list[Event]:
        """Events of the immediate set, at once; [] after the timeout, or when the batched one is due."""
        if self.batched:
            timeout_s = self._streams.wait(timeout_s)
        return self._immediate.poll(timeout_s, EVENTS_A_ROUND)

    def read_batched(self) -> Iterable[Arrival]:
        """Read the batched set, within NAP_S, until the immediate one has events."""
        return self._streams.read() if self.batched else ()

    def take(self, descriptor: int) -> Held:
        """Remove and return what is kept of a batched stream."""
        return self._streams.take(descriptor)

    def close(self) -> None:
        """Close both sets."""
        self._streams.close()
        self._immediate.close()
        self._batched.close()
