"""Two sets of descriptors to wait for: those that are served at once, and streams in full flow.

Most of the CPU time of a paced event is its own wake-up of the process. A stream whose first token has been
told has nothing urgent until its end, and the kernel has stamped its bytes on arrival: looking at all such
streams together, about once in a millisecond, makes an event cheaper and leaves the core to those that wait
for a first token.
"""

import select

NAP_S = 0.001
_EVENTS_A_ROUND = 64  # reports leave after each round: the fewer, the sooner

Event = tuple[int, int]  # descriptor and mask


class Poller:
    """Every descriptor is in one of the two sets; closing it takes it out."""

    __slots__ = ("_batched", "_immediate", "_more", "batched")

    def __init__(self) -> None:
        self._immediate = select.epoll()
        self._batched = select.epoll()
        self._more = False
        self.batched = 0  # descriptors that ``to_batched`` has moved; whoever closes one counts it down

    def register(self, descriptor: int, mask: int) -> None:
        """Serve a new descriptor at once."""
        self._immediate.register(descriptor, mask)

    def modify(self, descriptor: int, mask: int, *, batched: bool = False) -> None:
        """Wait for something else."""
        (self._batched if batched else self._immediate).modify(descriptor, mask)

    def to_batched(self, descriptor: int, mask: int) -> None:
        """From now on together with others."""
        self._immediate.unregister(descriptor)
        self._batched.register(descriptor, mask)
        self.batched += 1

    def to_immediate(self, descriptor: int, mask: int) -> None:
        """From now on at once again."""
        self._batched.unregister(descriptor)
        self._immediate.register(descriptor, mask)
        self.batched -= 1

    def poll(self, timeout_s: float) -> list[Event]:
        """What has happened: at once for the prompt set, within a nap for the other, [] after the timeout."""
        if not self.batched:
            return self._immediate.poll(timeout_s, _EVENTS_A_ROUND)
        events = self._immediate.poll(0 if self._more else min(timeout_s, NAP_S), _EVENTS_A_ROUND)
        batched = self._batched.poll(0, _EVENTS_A_ROUND)
        self._more = len(batched) == _EVENTS_A_ROUND
        return events + batched

    def close(self) -> None:
        """Give both descriptors back."""
        self._immediate.close()
        self._batched.close()
