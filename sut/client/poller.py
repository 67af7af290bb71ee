"""Two sets of descriptors to poll: those that are served at once, and streams that are polled in batches.

Most of the CPU time of a paced event is its own wake-up of the process. A stream whose first token was
reported has nothing urgent until its end, and the kernel stamps its bytes on arrival. Polling all such
streams together, about once in a millisecond, makes an event cheaper and leaves CPU time for requests that
wait for a first token.
"""

import select

NAP_S = 0.001
_EVENTS_A_ROUND = 64  # messages are sent after each round: fewer events, earlier messages

Event = tuple[int, int]  # descriptor and mask


class Poller:
    """Every descriptor is in one of the two sets; ``forget`` it when it is closed."""

    __slots__ = ("_batched", "_immediate", "_more", "batched")

    def __init__(self) -> None:
        self._immediate = select.epoll()
        self._batched = select.epoll()
        self._more = False
        self.batched: set[int] = set()

    def register(self, descriptor: int, mask: int) -> None:
        """Serve a new descriptor at once."""
        self._immediate.register(descriptor, mask)

    def modify(self, descriptor: int, mask: int) -> None:
        """Wait for other events."""
        (self._batched if descriptor in self.batched else self._immediate).modify(descriptor, mask)

    def to_batched(self, descriptor: int, mask: int) -> None:
        """Poll it in batches from now on."""
        self._immediate.unregister(descriptor)
        self._batched.register(descriptor, mask)
        self.batched.add(descriptor)

    def to_immediate(self, descriptor: int, mask: int) -> None:
        """Serve it at once again from now on."""
        self._batched.unregister(descriptor)
        self._immediate.register(descriptor, mask)
        self.batched.remove(descriptor)

    def forget(self, descriptor: int) -> None:
        """Note that a descriptor is closed, which removes it from its set."""
        self.batched.discard(descriptor)

    def poll(self, timeout_s: float) -> list[Event]:
        """Events: at once for the immediate set, within NAP_S for the batched one; [] after the timeout."""
        if not self.batched:
            return self._immediate.poll(timeout_s, _EVENTS_A_ROUND)
        events = self._immediate.poll(0 if self._more else min(timeout_s, NAP_S), _EVENTS_A_ROUND)
        batched = self._batched.poll(0, _EVENTS_A_ROUND)
        self._more = len(batched) == _EVENTS_A_ROUND
        return events + batched

    def close(self) -> None:
        """Close both descriptors."""
        self._immediate.close()
        self._batched.close()
