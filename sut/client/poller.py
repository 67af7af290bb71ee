"""Two sets of descriptors to poll: those that are served at once, and streams that are polled in batches.

Most of the CPU time of a paced event is its own wake-up of the process. A stream whose first token was
reported has nothing urgent until its end, and the kernel stamps its bytes on arrival. Polling all such
streams together, about once in a millisecond, makes an event cheaper and leaves CPU time for requests that
wait for a first token.

With thousands of requests in flight, wake-ups for new queries and first tokens cost as much as all else.
Then everything is polled together (*paced*), and no descriptor changes its set.
"""

import select
import time

NAP_S = 0.001
_FEW_EVENTS = 8  # after a round with fewer, a paced nap is twice as long
_EVENTS_A_PACED_ROUND = 256
_EVENTS_A_ROUND = 64  # messages are sent after each round: fewer events, earlier messages

Event = tuple[int, int]  # descriptor and mask


class Poller:
    """Every descriptor is in one of the two sets; closing it removes it."""

    __slots__ = ("_batched", "_immediate", "_more", "_nap_s", "batched", "paced")

    def __init__(self) -> None:
        self._immediate = select.epoll()
        self._batched = select.epoll()
        self._more = False
        self._nap_s = NAP_S
        self.paced = False  # to be set by the owner
        self.batched = 0  # descriptors that ``to_batched`` has moved; to be decreased when one is closed

    def register(self, descriptor: int, mask: int) -> None:
        """Serve a new descriptor at once."""
        self._immediate.register(descriptor, mask)

    def modify(self, descriptor: int, mask: int, *, batched: bool = False) -> None:
        """Wait for other events."""
        (self._batched if batched else self._immediate).modify(descriptor, mask)

    def to_batched(self, descriptor: int, mask: int) -> None:
        """Poll it in batches from now on."""
        self._immediate.unregister(descriptor)
        self._batched.register(descriptor, mask)
        self.batched += 1

    def to_immediate(self, descriptor: int, mask: int) -> None:
        """Serve it at once again from now on."""
        self._batched.unregister(descriptor)
        self._immediate.register(descriptor, mask)
        self.batched -= 1

    def poll(self, timeout_s: float) -> list[Event]:
        """Events: at once for the immediate set, within NAP_S for the batched one; [] after the timeout.

        Where paced: those of both sets after at most 2 * NAP_S.
        """
        if self.paced:
            return self._poll_paced()
        if not self.batched:
            return self._immediate.poll(timeout_s, _EVENTS_A_ROUND)
        events = self._immediate.poll(0 if self._more else min(timeout_s, NAP_S), _EVENTS_A_ROUND)
        batched = self._batched.poll(0, _EVENTS_A_ROUND)
        self._more = len(batched) == _EVENTS_A_ROUND
        return events + batched

    def _poll_paced(self) -> list[Event]:
        if not self._more:
            time.sleep(self._nap_s)
        events = self._immediate.poll(0, _EVENTS_A_PACED_ROUND)
        if self.batched:
            events += self._batched.poll(0, _EVENTS_A_PACED_ROUND)
        self._more = len(events) >= _EVENTS_A_PACED_ROUND
        self._nap_s = NAP_S if len(events) >= _FEW_EVENTS else 2 * NAP_S
        return events

    def close(self) -> None:
        """Close both descriptors."""
        self._immediate.close()
        self._batched.close()
