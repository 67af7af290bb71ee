"""The deadlines of the requests in flight: when the next one passes, and who has missed one."""

import heapq
from collections.abc import Iterator, Mapping

from harness.config.deadlines import Deadlines
from harness.record.outcome import Failure, FailureKind
from harness.text import counted
from sut.client.connections import Request

_NEVER = 1 << 62
_SPARE = 1024  # this many entries of ended requests may stay in the heap


class DeadlineWatch:
    """Watches ``in_flight``; times are monotonic ns.

    A heap holds, for each request, the earliest moment at which it can be late. It is checked then and not
    earlier, so that a deadline costs nothing while answers arrive. Entries of ended requests stay until
    their moment.
    """

    def __init__(self, deadlines: Deadlines, in_flight: Mapping[int, Request]) -> None:
        self._in_flight = in_flight
        self._request_ns = int(deadlines.request_s * 1e9)
        self._first_ns = _ns(deadlines.first_token_s)
        self.stall_ns = _ns(deadlines.stall_s)
        self._heap: list[tuple[int, int]] = []  # when, query id

    def add(self, request: Request) -> None:
        """Add a request that has started."""
        if len(self._heap) > 2 * len(self._in_flight) + _SPARE:
            self._heap = [entry for entry in self._heap if self._request_of(entry) is not None]
            heapq.heapify(self._heap)
        self.add_again(request, request.started_ns)

    def add_again(self, request: Request, now: int) -> None:
        """Add a request again that is not late at ``now``."""
        request.next_check_ns = self._due(request, now)
        heapq.heappush(self._heap, (request.next_check_ns, request.query_id))

    def wait_s(self, now: int, longest_s: float) -> float:
        """Seconds until the next check, ``longest_s`` at most."""
        if not self._heap:
            return longest_s
        return min(longest_s, max(0.0, (self._heap[0][0] - now) / 1e9))

    def due(self, now: int) -> Iterator[Request]:
        """Remove and return the requests to be checked; ``add_again`` those that are not late."""
        while self._heap and self._heap[0][0] <= now:
            request = self._request_of(heapq.heappop(self._heap))
            if request is not None:
                yield request

    def missed(self, request: Request, now: int) -> Failure | None:
        """The Failure of a request that is late at ``now``, judged by what has arrived."""
        if now - request.started_ns > self._request_ns:
            return _failure(self._request_ns, "no end", request)
        reader = request.reader
        if not reader.first_token_ns:
            if now - request.started_ns > self._first_ns:
                return _failure(self._first_ns, "no token", request)
        elif now - reader.last_event_ns > self.stall_ns:
            return _failure(self.stall_ns, "nothing more", request)
        return None

    def missed_at_end(self, request: Request, before_ns: int) -> Failure | None:
        """The Failure of an answer whose end came too late; the bytes before it came at ``before_ns``."""
        reader = request.reader
        if reader.last_byte_ns - request.started_ns > self._request_ns:
            return _failure(self._request_ns, "no end", request)
        if reader.first_token_ns - request.started_ns > self._first_ns:
            return _failure(self._first_ns, "no token", request)
        return self.missed_between(request, before_ns)

    def missed_between(self, request: Request, before_ns: int) -> Failure | None:
        """The Failure of an answer that was silent for too long between its tokens, since ``before_ns``."""
        reader = request.reader
        if 0 < reader.first_token_ns <= before_ns and reader.last_byte_ns - before_ns > self.stall_ns:
            return _failure(self.stall_ns, "nothing more", request)
        return None

    def _request_of(self, entry: tuple[int, int]) -> Request | None:
        """The request; None if it has ended, or if a later attempt has another entry."""
        when, query_id = entry
        request = self._in_flight.get(query_id)
        return request if request is not None and request.next_check_ns == when else None

    def _due(self, request: Request, now: int) -> int:
        """The earliest moment after ``now`` at which the request can be late.

        Before the first token, that token may come at any moment and start the stall deadline.
        """
        reader, end = request.reader, request.started_ns + self._request_ns
        if reader.first_token_ns:
            return min(end, reader.last_event_ns + self.stall_ns) + 1
        return min(end, request.started_ns + self._first_ns, now + self.stall_ns) + 1


def _ns(seconds: float | None) -> int:
    return _NEVER if seconds is None else int(seconds * 1e9)


def _failure(bound_ns: int, missing: str, request: Request) -> Failure:
    detail = (
        f"{missing} within {bound_ns / 1e9:g} s; {counted(request.reader.answer.tokens, 'token')} had arrived"
    )
    return Failure(FailureKind.TIMEOUT, detail)
