"""Queries that are sent again, where that is honest: their waiting counts into their latency."""

from collections.abc import Iterator

from harness.record.outcome import Failure
from sut.client.connections import Request

_FIRST_WAIT_NS = 250_000_000
_LONGEST_WAIT_NS = 8_000_000_000


class Retries:
    """Decides and holds what is to be sent again.

    A request of which the server accepted no byte may always be repeated; any other only where
    ``answers_only`` says that the answers count and their times do not.
    """

    def __init__(self, limit: int, *, answers_only: bool) -> None:
        self._limit = limit
        self._answers_only = answers_only
        self._waiting: list[tuple[int, Request]] = []

    @property
    def hold_first_tokens(self) -> bool:
        """Whether LoadGen hears of a first token only with its answer: another attempt may bring another."""
        return self._answers_only and self._limit > 0

    def takes(self, request: Request, failure: Failure, now: int) -> bool:
        """Whether the request that failed at ``now`` (monotonic ns) will be tried again."""
        if request.attempt >= self._limit or not (self._answers_only or not request.accepted):
            return False
        wait = min(_FIRST_WAIT_NS << request.attempt, _LONGEST_WAIT_NS)
        self._waiting.append((now + wait, request))
        return True

    def due(self, now: int) -> Iterator[Request]:
        """Take out the requests whose wait is over."""
        ready = [request for until, request in self._waiting if until <= now]
        self._waiting = [entry for entry in self._waiting if entry[0] > now]
        yield from ready
