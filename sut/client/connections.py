"""State of the request path inside one worker: replicas, their connections, the requests on them."""

import re
from array import array
from collections.abc import Callable

import msgspec

from harness.record.outcome import Completion, Failure, FailureKind, Outcome, TextCompletion
from sut.client.endpoint import AddressPair, Endpoint
from sut.client.network_figures import Figures, Network
from sut.client.response import ResponseReader
from sut.client.transport import KernelClock, PlainTransport, TlsTransport, Transport
from sut.wire.answer_checks import ANOTHER_PROMPT, excerpt

_SUSPICIOUS = 3  # failures in a row
_SHOWN_BYTES = 80  # of a prompt
_SIGNS_OF_DEATH = (
    FailureKind.SEND,
    FailureKind.NO_RESPONSE,
    FailureKind.TRUNCATED,
    FailureKind.HTTP_STATUS,
    FailureKind.TIMEOUT,
)


# What stands before the prompt's ids in a request's body; a prompt of text or of messages has none.
_before_ids = re.compile(rb'\{(?:"\w+":\{?)+(?=\[\d)').match
_ids_of = msgspec.json.Decoder(list[int]).decode


class Request:
    """One query in flight. Times are monotonic ns, 0 until they came."""

    __slots__ = (
        "accepted",
        "attempt",
        "body",
        "connection",
        "first_token_sent",
        "id",
        "issued_ns",
        "next_check_ns",
        "opening",
        "prompt_tokens",
        "query_id",
        "reader",
        "replica",
        "salt",
        "sample_index",
        "sent_ns",
        "started_ns",
        "tokens",
    )

    def __init__(
        self,
        query_id: int,
        sample_index: int,
        issued_ns: int,
        body: memoryview,
        reader: ResponseReader,
        opening: Callable[[str, int], bytes],
    ) -> None:
        self.query_id = query_id  # this and the two that follow are LoadGen's
        self.sample_index = sample_index
        self.issued_ns = issued_ns
        self.body = body  # the JSON of the request
        self.salt: tuple[int, bytes, int] | None = None  # what is sent between two places of it
        self.reader = reader  # reads its answer
        self.opening = opening  # its protocol's: sut.wire.wire.Wire.opening
        self.id = ""  # the server is asked to repeat it; another one in each attempt
        self.started_ns = 0
        self.next_check_ns = 0  # when its deadlines are looked at
        self.sent_ns = 0
        self.tokens = 0  # tokens of its answer so far, as its client counts them
        self.replica = 0
        self.first_token_sent = False
        self.accepted = False  # whether a byte of it was handed to the kernel for the server
        self.attempt = 0  # counts from 0
        self.prompt_tokens: int | None = None  # the count that a server must report if it reports one
        self.connection: Connection | None = None

    def refusal(self, answer: Completion | TextCompletion, endpoint: Endpoint) -> Failure | None:
        """The Failure of a complete answer that came too early, or is to another request.

        If a server does not repeat ids, its connections carry one request only.
        """
        if self.connection is not None and self.connection.unsent:
            return Failure(FailureKind.HTTP_PROTOCOL, "an answer came before its request was sent")
        if endpoint.repeats_ids and not self.is_answered_by_id:
            found = excerpt(self.reader.answer.id.encode())
            return Failure(FailureKind.OTHER_REQUEST, f"the answer has the id {found!r}, expected {self.id}")
        if (repeated := self.reader.answer.prompt_ids) and not _same_ids(repeated, b"".join(self.pieces)):
            more = "" if len(repeated) <= _SHOWN_BYTES else "…"
            detail = f"{ANOTHER_PROMPT}: {excerpt(repeated[:_SHOWN_BYTES])}{more}"
            return Failure(FailureKind.OTHER_REQUEST, detail)
        counted, known = answer.prompt_tokens, self.prompt_tokens
        if counted is None and known is not None and endpoint.counts_prompts:
            return Failure(FailureKind.TOKEN_COUNT, "the answer has no count of the prompt's tokens")
        if counted is not None and known is not None and counted != known:
            detail = f"the answer is to a prompt of {counted} tokens, the query's has {known}"
            return Failure(FailureKind.TOKEN_COUNT, detail)
        return None

    @property
    def pieces(self) -> tuple[bytes | memoryview, ...]:
        """The JSON of the request as it is sent."""
        if self.salt is None:
            return (self.body,)
        begin, salt, end = self.salt
        return self.body[:begin], salt, self.body[end:]

    @property
    def is_answered_by_id(self) -> bool:
        """Whether its answer carries its id: nothing else on this connection can be taken for another's."""
        return self.id in self.reader.answer.id


def _same_ids(repeated: bytes, body: bytes) -> bool:
    """Whether a JSON list is the prompt of a request's body, where it is ids.

    The ids of a text or of messages are the server's own: their number has to be that of the prompt.
    """
    if (before := _before_ids(body)) is None:
        return True
    start = before.end()
    if body.startswith(repeated, start):
        return True
    end = body.index(b"]", start) + 1
    try:
        return _ids_of(repeated) == _ids_of(body[start:end])
    except msgspec.DecodeError:
        return False


class ConnectionTimes(msgspec.Struct, frozen=True):
    """How long connections may take and stay idle."""

    connect_ns: int = 10_000_000_000
    """Until a connection is established."""
    next_address_ns: int = 2_000_000_000
    """The same if the name has another address: time for one lost SYN."""
    idle_ns: int = 2_000_000_000
    """An older connection is not used for a query: uvicorn closes those that were idle for 5 s."""


class ReplicaPool:
    """One replica in one worker: its connections and the figures of its network.

    Connections take turns on ``pairs``: those of the endpoint, without addresses that gave no connection.
    """

    __slots__ = (
        "_context",
        "_turn",
        "arrived_ns",
        "endpoint",
        "failed_in_a_row",
        "idle",
        "index",
        "network",
        "pair",
        "pairs",
        "warming",
    )

    def __init__(self, index: int, endpoint: Endpoint, network: Figures | None = None) -> None:
        self.index = index
        self.endpoint = endpoint
        self.network: Figures = array("q", [0] * len(Network)) if network is None else network
        self.arrived_ns = 0  # when the latest part of an answer came, as far as it was looked at
        self.pairs = endpoint.pairs
        self.pair = self.pairs[0]  # the latest connection's
        self.failed_in_a_row = 0
        self.idle: list[Connection] = []  # the most recently used one last, and used first
        self.warming: dict[int, Connection] = {}  # by descriptor: not made yet, and without a request
        self._context = endpoint.access.tls_context() if endpoint.tls else None
        self._turn = -1  # index of the latest connection's pair

    def fails_again(self, outcome: Outcome) -> bool:
        """Count an outcome; True when the replica looks dead and needs a health check."""
        if not isinstance(outcome, Failure):
            self.failed_in_a_row = 0
            return False
        if outcome.kind is FailureKind.CONNECT:
            return True
        self.failed_in_a_row += outcome.kind in _SIGNS_OF_DEATH
        return self.failed_in_a_row >= _SUSPICIOUS

    def connect(self, clock: KernelClock) -> "Connection":
        """Begin a new connection. Raises OSError when that fails at once."""
        self._turn = (self._turn + 1) % len(self.pairs)
        self.pair = self.pairs[self._turn]
        transport: Transport
        if self._context is None:
            transport = PlainTransport(self.pair, clock)
        else:
            transport = TlsTransport(self.pair, self._context, self.endpoint.host)
        return Connection(self, transport)

    def others(self, pair: AddressPair) -> tuple[AddressPair, ...]:
        """The pairs with another destination address."""
        return tuple(other for other in self.pairs if other.address != pair.address)


class Connection:
    """One transport of a replica and the request that it carries, if any."""

    __slots__ = (
        "batched",
        "fd",
        "mask",
        "opened_ns",
        "pair",
        "ready",
        "replica",
        "request",
        "transport",
        "unsent",
        "used_ns",
    )

    def __init__(self, replica: ReplicaPool, transport: Transport) -> None:
        self.replica = replica
        self.pair = replica.pair
        self.transport = transport
        self.fd = transport.fileno()
        self.ready = False
        self.batched = False  # nothing of its answer is urgent until the end: see sut/client/poller.py
        self.mask = 0
        self.request: Request | None = None
        self.unsent: list[bytes | memoryview] = []
        self.opened_ns = 0
        self.used_ns = 0
