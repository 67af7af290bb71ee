"""A number of requests in flight: each one that ends is replaced at once.

The command ("concurrency", (requests, seconds)) changes the number: in even steps over the seconds, so that
the new requests do not stay in step with each other. The loop ends by an abort only. Samples come in the
order of the dataset, and again from its start, without a break between two numbers. A query's id counts the
queries.
"""

import time
from typing import Any

import msgspec

from sut.issuers.loop import IssuingLoop, IssuingProcess

_SHORTEST_S = 0.001  # between two new requests of a rise: what epoll can wait


class ClosedLoop(msgspec.Struct, frozen=True):
    """Issues samples of a dataset of this size, again and again."""

    samples: int
    name: str = "the process that keeps requests in flight"
    first_tokens: bool = False
    keeps_answers: bool = False
    wall_clock: bool = False
    text_after: int | None = None

    def run(self, process: IssuingProcess) -> None:
        """Keep the commanded number in flight until an abort."""
        InFlightLoop(self.samples, process).run()


class Rise:
    """A number that changes from ``start`` to ``end`` over ``seconds``, beginning at ``began``."""

    def __init__(self, start: int, end: int, seconds: float, began: float) -> None:
        self.end = end
        self._start = start
        self._seconds = seconds
        self._began = began

    def at(self, now: float) -> int:
        """The number at a time. A fall happens at once."""
        passed = now - self._began
        if self.end <= self._start or passed >= self._seconds:
            return self.end
        return self._start + int((self.end - self._start) * passed / self._seconds)

    def pause(self, now: float) -> float | None:
        """Seconds between two changes; None when it has ended."""
        if self.at(now) == self.end:
            return None
        return max(_SHORTEST_S, self._seconds / (self.end - self._start))


class InFlightLoop(IssuingLoop):
    """Replaces what has ended, up to the current number."""

    def __init__(self, samples: int, process: IssuingProcess) -> None:
        super().__init__(process)
        self._samples = samples
        self._rise = Rise(0, 0, 0, 0)
        self._next = 0

    @property
    def done(self) -> bool:
        """Whether no worker is left; otherwise the supervisor ends the loop."""
        return not self.is_served

    def commanded(self, word: str, value: Any) -> bool:
        """Change the number."""
        if word != "concurrency":
            return False
        requests, seconds = value
        now = time.monotonic()
        self._rise = Rise(min(self.waiting, self._rise.at(now)), requests, seconds, now)
        return True

    def proceed(self) -> float:
        """Issue the requests that are missing."""
        now = time.monotonic()
        for _ in range(self._rise.at(now) - self.waiting):
            self.issue([self._next], [self._next % self._samples])  # one by one, each where the fewest are
            self._next += 1
        pause, most = self._rise.pause(now), super().proceed()
        return most if pause is None else min(pause, most)
