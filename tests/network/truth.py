"""What the link knows of each query: when its request left and when its first token was handed over."""

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.network.link import DOWN, UP, Packet

_REQUEST = re.compile(rb'POST /generate.*?\r\n\r\n(\{"(?:rid|input_ids)".*?"stream":true\})', re.DOTALL)
_PROMPT = re.compile(rb'"input_ids":\[(\d+)')
_FIRST_EVENT = re.compile(rb"HTTP/1\.1 200 OK\r\n.*?\ndata: \{.*?\n\n", re.DOTALL)
_SPAN = 1 << 32


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and the first token of its answer; times are CLOCK_MONOTONIC ns."""

    first_id: int
    """The first id of the prompt."""
    left_ns: int
    """When the first byte of the request left the client."""
    arrived_ns: int
    """When its last byte reached the server."""
    answered_ns: int
    """When the first event left the server."""
    handed_ns: int
    """Before the packet that completed the first event was given to the client's kernel."""
    taken_ns: int
    """After it."""
    data: tuple[tuple[int, int], ...] = field(repr=False)
    """The last two times for each packet of the connection from then on."""


@dataclass
class _Stream:
    """One direction of a connection, put together again."""

    begin: int = -1
    data: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)  # offsets up to which it was complete
    at: list[Packet] = field(default_factory=list)  # the packet that made it so
    early: dict[int, Packet] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)  # by offset: when it left for the first time

    def take(self, packet: Packet) -> None:
        if packet.syn:
            self.begin = packet.number + 1
            return
        offset = (packet.number - self.begin) % _SPAN
        if not packet.payload or offset >= _SPAN // 2:
            return
        self.left[offset] = min(packet.left_ns, self.left.get(offset, packet.left_ns))
        if not packet.lost:
            self.early.setdefault(offset, packet)
            self._join(packet)

    def _join(self, cause: Packet) -> None:
        grown = False
        for offset in sorted(self.early):
            if offset > len(self.data):
                break
            self.data += self.early.pop(offset).payload[len(self.data) - offset :]
            grown = True
        if grown:
            self.ends.append(len(self.data))
            self.at.append(cause)

    def complete_at(self, offset: int) -> Packet:
        return self.at[bisect.bisect_left(self.ends, offset)]

    def left_at(self, offset: int) -> int:
        starts = sorted(self.left)
        return self.left[starts[bisect.bisect_right(starts, offset) - 1]]


def _streams(packets: Iterable[Packet]) -> dict[tuple[tuple[bytes, int], int], _Stream]:
    """By connection and way."""
    streams: dict[tuple[tuple[bytes, int], int], _Stream] = defaultdict(_Stream)
    for packet in packets:
        streams[packet.connection, packet.way].take(packet)
    return streams


def exchanges(packets: Iterable[Packet], tokens: int) -> dict[int, list[Exchange]]:
    """Exchanges for answers of at most ``tokens``, by the first id of the prompt, in order of their time."""
    streams = _streams(packets)
    found: dict[int, list[Exchange]] = defaultdict(list)
    for connection, way in list(streams):
        if way == UP:
            for one in _of_connection(streams[connection, UP], streams[connection, DOWN], tokens):
                found[one.first_id].append(one)
    return {key: sorted(ones, key=lambda one: one.left_ns) for key, ones in found.items()}


def _of_connection(up: _Stream, down: _Stream, tokens: int) -> Iterator[Exchange]:
    requests = list(_REQUEST.finditer(bytes(up.data)))
    answers = list(_FIRST_EVENT.finditer(bytes(down.data)))
    for request, answer in zip(requests, answers, strict=False):
        prompt = _PROMPT.search(request[1])
        if prompt is None or b'"max_new_tokens":%d' % tokens not in request[1]:
            continue
        first = down.complete_at(answer.end())
        yield Exchange(
            int(prompt[1]),
            up.left_at(request.start()),
            up.complete_at(request.end()).handed_ns,
            down.left_at(answer.end() - 1),
            first.handed_ns,
            first.taken_ns,
            tuple((one.handed_ns, one.taken_ns) for one in down.at if one.handed_ns >= first.handed_ns),
        )


def lost_to_server(packets: Sequence[Packet], tokens: int) -> int:
    """Segments that did not reach the server, so that the client sent them again; only on connections with
    queries for at most ``tokens``: the trial request's are not the run's.
    """
    up = [packet for packet in packets if packet.way == UP]
    asked = b'"max_new_tokens":%d' % tokens
    ours = {connection for (connection, _), stream in _streams(up).items() if asked in stream.data}
    sent = [packet for packet in up if packet.connection in ours and (packet.syn or packet.payload)]
    return sum(packet.lost for packet in sent)
