"""Retry policy: which failed requests are sent again. Waiting for a retry counts towards the latency."""

from collections.abc import Iterator

from harness.record.outcome import Failure
from sut.client.connections import Request

_FIRST_WAIT_NS = 250_000_000
_LONGEST_WAIT_NS = 8_000_000_000


class Retries:
    """Decides which requests are sent again, and holds them until then.

    A request of which the server accepted no byte may always be repeated; any other only with
    ``answers_only``, where the times of answers do not matter.
    """

    def __init__(self, limit: int, *, answers_only: bool) -> None:
        self._limit = limit
        self._answers_only = answers_only
        self._waiting: list[tuple[int, Request]] = []

    @property
    def hold_first_tokens(self) -> bool:
        """Whether a first token is reported only with its answer: another attempt may return another."""
        return self._answers_only and self._limit > 0

    def takes(self, request: Request, failure: Failure, now: int) -> bool:
        """Whether the request that failed at ``now`` (monotonic ns) will be sent again."""
        if request.attempt >= self._limit or not (self._answers_only or not request.accepted):
            return False
        wait = min(_FIRST_WAIT_NS << request.attempt, _LONGEST_WAIT_NS)
        self._waiting.append((now + wait, request))
        return True

    def due(self, now: int) -> Iterator[Request]:
        """Remove and return the requests that are due."""
        ready = [request for until, request in self._waiting if until <= now]
        self._waiting = [entry for entry in self._waiting if entry[0] > now]
        yield from ready
