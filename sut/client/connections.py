"""State of the request path inside one worker: replicas, their connections, the requests on them."""

from array import array
from collections.abc import Callable

from harness.record.outcome import Completion, FailureKind, Outcome
from sut.client.endpoint import AddressPair, Endpoint, tls_context
from sut.client.network import Figures, Network
from sut.client.response import ResponseReader
from sut.client.transport import KernelClock, PlainTransport, TlsTransport, Transport

_SUSPICIOUS = 3  # failures in a row
_SIGNS_OF_DEATH = (
    FailureKind.SEND,
    FailureKind.NO_RESPONSE,
    FailureKind.TRUNCATED,
    FailureKind.HTTP_STATUS,
    FailureKind.TIMEOUT,
)


class Request:
    """One query in flight.

    LoadGen's ids, the times so far in monotonic ns (0 until they came), and the reader of its answer.
    ``body``: the JSON of the request, ``opening``: the sut.wire.base.Wire's function of that name.
    ``id``: the one that the server is asked to repeat, another one in each attempt.
    ``accepted``: whether a byte of it was handed to the kernel for the server; ``attempt`` counts from 0.
    ``prompt_tokens``: the count that the server must report, where it reports one; None: any.
    """

    __slots__ = (
        "accepted",
        "attempt",
        "body",
        "connection",
        "first_token_sent",
        "id",
        "issued_ns",
        "look_ns",
        "opening",
        "prompt_tokens",
        "query_id",
        "reader",
        "replica",
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
        self.query_id = query_id
        self.sample_index = sample_index
        self.issued_ns = issued_ns
        self.body = body
        self.reader = reader
        self.opening = opening
        self.id = ""
        self.started_ns = 0
        self.look_ns = 0  # when its deadlines are checked next
        self.sent_ns = 0
        self.tokens = 0  # of its answer so far, as its client counts them
        self.replica = 0
        self.first_token_sent = False
        self.accepted = False
        self.attempt = 0
        self.prompt_tokens: int | None = None
        self.connection: Connection | None = None

    @property
    def is_answered_by_id(self) -> bool:
        """Whether its answer carries its id: nothing else on this connection can be taken for another's."""
        return self.id in self.reader.answer_id


class Replica:
    """One endpoint inside one worker, its idle connections, and the figures of its network.

    Connections take turns on ``pairs``: those of the endpoint, without addresses that gave no connection.
    """

    __slots__ = (
        "_context",
        "_turn",
        "endpoint",
        "failed_in_a_row",
        "idle",
        "index",
        "network",
        "pair",
        "pairs",
    )

    def __init__(self, index: int, endpoint: Endpoint, network: Figures | None = None) -> None:
        self.index = index
        self.endpoint = endpoint
        self.network: Figures = array("q", [0] * len(Network)) if network is None else network
        self.pairs = endpoint.pairs
        self.pair = self.pairs[0]  # of the latest connection
        self.failed_in_a_row = 0
        self.idle: list[Connection] = []  # the most recently used one last, and used first
        self._context = tls_context(endpoint.ca_file) if endpoint.tls else None
        self._turn = -1  # of the endpoint's routes

    def fails_again(self, outcome: Outcome) -> bool:
        """Count an outcome; True when the replica looks dead and needs a health check."""
        if isinstance(outcome, Completion):
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
        "in_flow",
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

    def __init__(self, replica: Replica, transport: Transport) -> None:
        self.replica = replica
        self.pair = replica.pair
        self.transport = transport
        self.fd = transport.fileno()
        self.ready = False
        self.in_flow = False  # nothing of its answer is urgent until the end
        self.batched = False  # see sut/client/poller.py
        self.mask = 0
        self.request: Request | None = None
        self.unsent: list[bytes | memoryview] = []
        self.opened_ns = 0
        self.used_ns = 0
