"""Finds the requests that are beyond their deadlines, without looking at all of them every time."""

from collections.abc import Iterator, Mapping

from harness.outcome import Failure, FailureKind
from harness.policy import Deadlines
from sut.replica import Request

# A worker may hold tens of thousands of streams: each call looks at a part, a few calls see them all.
_CALLS = 8
_LEAST = 256
_NEVER = 1 << 62


class DeadlineSweep:
    """Watches ``in_flight``, which holds requests in the order of their start."""

    def __init__(self, deadlines: Deadlines, in_flight: Mapping[int, Request]) -> None:
        self._in_flight = in_flight
        self._request_ns = int(deadlines.request_s * 1e9)
        self._first_ns = _ns(deadlines.first_token_s)
        self._stall_ns = _ns(deadlines.stall_s)
        self._round: list[Request] = []

    def late(self, now: int) -> dict[int, tuple[Request, Failure]]:
        """Requests that are late at ``now`` (monotonic ns) and how they failed, by query id."""
        silent = self._silent(now) if min(self._first_ns, self._stall_ns) < self._request_ns else ()
        found = {request.query_id: (request, failure) for request, failure in silent}
        for request in self._in_flight.values():
            if now - request.started_ns <= self._request_ns:
                break
            found[request.query_id] = (request, _failure(self._request_ns, "no end", request))
        return found

    def _silent(self, now: int) -> Iterator[tuple[Request, Failure]]:
        if not self._round:
            self._round = list(self._in_flight.values())
            self._slice = max(_LEAST, -(-len(self._round) // _CALLS))
        part, self._round = self._round[: self._slice], self._round[self._slice :]
        for request in part:
            if self._in_flight.get(request.query_id) is not request:
                continue  # ended since the round began
            reader = request.reader
            if not reader.first_token_ns:
                if now - request.started_ns > self._first_ns:
                    yield request, _failure(self._first_ns, "no token", request)
            elif now - reader.last_byte_ns > self._stall_ns:
                yield request, _failure(self._stall_ns, "nothing more", request)


def _ns(seconds: float | None) -> int:
    return _NEVER if seconds is None else int(seconds * 1e9)


def _failure(bound_ns: int, missing: str, request: Request) -> Failure:
    detail = f"{missing} within {bound_ns / 1e9:g} s; {request.reader.tokens} tokens had arrived"
    return Failure(FailureKind.TIMEOUT, detail)
