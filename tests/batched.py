"""An answer of which all that may be kept is kept, by the reader of batched streams in C or in Python.

And the same without the library, by which both are judged.
"""

import select
import time
from collections.abc import Iterable

import pytest

from harness.record.outcome import Outcome
from sut.client import response
from sut.client.poller import Poller
from sut.client.response import ResponseReader
from sut.client.transport import KernelClock
from tests.kit import PATIENCE_S, connected

_MASK = select.EPOLLIN | select.EPOLLRDHUP
_STALL_NS = 1 << 62


def read_batched(reader: ResponseReader, pieces: Iterable[bytes]) -> tuple[Outcome, int]:
    """The outcome of an answer that arrives in these pieces, and how many ids it got without their events.

    It is batched from its first token on, as sut.client.client does with many requests in flight; the
    connection is closed after the last piece.
    """
    polls, ids = Poller(KernelClock(), _STALL_NS), 0
    try:
        with connected() as (transport, server):
            stream = transport.fileno()
            polls.register(stream, _MASK)
            for piece in filter(None, pieces):
                data = piece
                if polls.batched:
                    server.sendall(piece)
                    if (seen := _seen(polls)) is None:
                        continue
                    data = seen
                    ids += _hand_over(reader, polls, stream)
                outcome = reader.feed(data, time.monotonic_ns())
                if outcome is not None:
                    return outcome, ids
                if not polls.batched and reader.visible_ns:
                    polls.to_batched(stream, _MASK, transport, 0, holds=reader.holds)
                if polls.batched:
                    polls.expect(stream, reader.expected)
            if polls.batched:
                ids += _hand_over(reader, polls, stream)
            return reader.closed(), ids
    finally:
        polls.close()


def read_at_once(reader: ResponseReader, pieces: Iterable[bytes]) -> Outcome:
    """The outcome of an answer that is never batched."""
    for piece in filter(None, pieces):
        if outcome := reader.feed(piece, 1):
            return outcome
    return reader.closed()


def read_plainly(reader: ResponseReader, pieces: Iterable[bytes]) -> Outcome:
    """The same if every event is parsed in Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(response, "leading_ids", lambda *_: (b"", 0))
        return read_at_once(reader, pieces)


def _seen(polls: Poller) -> bytes | None:
    """What has come and was not kept, of one piece; None where all of it was."""
    before, until = polls.kept, time.monotonic() + PATIENCE_S
    while polls.kept == before:
        assert time.monotonic() < until
        for _, what in polls.read_batched():
            assert isinstance(what, tuple), what
            return what[0]
    return None


def _hand_over(reader: ResponseReader, polls: Poller, stream: int) -> int:
    """Give the reader what was kept; the number of ids."""
    ids, data, arrived_ns = polls.take(stream)
    if arrived_ns:
        reader.hold(data, arrived_ns, ids)
    return len(ids) // 4
