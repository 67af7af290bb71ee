"""Two sets of descriptors to poll: those that are served at once, and streams that are polled in batches.

Most of the CPU time of a paced event is its own wake-up of the process. A stream whose first token was
reported has nothing urgent until its end, and the kernel stamps its bytes on arrival. Polling all such
streams together, about once in a millisecond, makes an event cheaper and leaves CPU time for requests that
wait for a first token.
"""

import select
from collections.abc import Iterator

NAP_S = 0.001
_EVENTS_A_ROUND = 64  # messages are sent after each round: fewer events, earlier messages
_BATCHED_AT_A_TIME = 16  # between two looks at what is urgent

Event = tuple[int, int]  # descriptor and mask


class Poller:
    """Every descriptor is served at once or in batches; ``forget`` it when it is closed."""

    __slots__ = ("_batched", "_immediate", "_known", "_more", "batched")

    def __init__(self) -> None:
        self._immediate = select.epoll()
        self._batched = select.epoll()
        self._more = False
        self.batched: set[int] = set()
        self._known: set[int] = set()  # descriptors that were served in batches once: they stay in that set

    def register(self, descriptor: int, mask: int) -> None:
        """Serve a new descriptor at once."""
        self._immediate.register(descriptor, mask)

    def modify(self, descriptor: int, mask: int) -> None:
        """Wait for other events."""
        (self._batched if descriptor in self.batched else self._immediate).modify(descriptor, mask)

    def to_batched(self, descriptor: int, mask: int) -> None:
        """Poll it in batches from now on."""
        self._immediate.unregister(descriptor)
        if descriptor not in self._known:
            self._known.add(descriptor)
            self._batched.register(descriptor, mask)
        self.batched.add(descriptor)

    def to_immediate(self, descriptor: int, mask: int) -> None:
        """Serve it at once again from now on."""
        self._immediate.register(descriptor, mask)
        self.batched.remove(descriptor)

    def forget(self, descriptor: int) -> None:
        """Note that a descriptor is closed, which removes it from its sets."""
        self.batched.discard(descriptor)
        self._known.discard(descriptor)

    def poll(self, timeout_s: float) -> list[Event]:
        """Events of the immediate set, at once; [] after the timeout, or when the batched one is due."""
        if self.batched:
            timeout_s = 0 if self._more else min(timeout_s, NAP_S)
        return self._immediate.poll(timeout_s, _EVENTS_A_ROUND)

    def poll_batched(self) -> Iterator[list[Event]]:
        """Events of the batched set, within NAP_S: a few at a time, until the immediate set has some."""
        if not self.batched:
            return
        events = self._batched.poll(0, _EVENTS_A_ROUND)
        self._more = len(events) == _EVENTS_A_ROUND
        for start in range(0, len(events), _BATCHED_AT_A_TIME):
            if start and self._immediate.poll(0, 1):
                self._more = True
                return
            yield events[start : start + _BATCHED_AT_A_TIME]

    def close(self) -> None:
        """Close both descriptors."""
        self._immediate.close()
        self._batched.close()
