"""The request path: one epoll over persistent connections, one request on each at a time.

The client is independent of LoadGen. It starts requests, calls ``on_first_token`` once the first token of a
request has arrived, and ``on_done`` exactly once for every request with its Outcome.
"""

import errno
import itertools
import os
import select
import time
from collections.abc import Callable, Sequence

from harness.config.deadlines import Deadlines
from harness.errors import machine_failure
from harness.record.failure_details import with_times
from harness.record.outcome import Failure, FailureKind, Outcome
from harness.text import counted
from sut.client.balance import Balance
from sut.client.connections import Connection, ConnectionTimes, ReplicaPool, Request
from sut.client.deadline_watch import DeadlineWatch
from sut.client.endpoint import AddressPair, Endpoint
from sut.client.network_figures import (
    GIVEN_UP,
    Figures,
    Network,
    TcpInfo,
    count_closed,
    count_connect,
    since_received_ms,
)
from sut.client.poller import Poller
from sut.client.transport import KernelClock, Received

# With at least this number of requests in flight, streams are polled in batches: those with events this far
# apart, and those of which the next events are expected and read in C.
_BATCHED_FROM = 64
_PACED_GAP_NS = 5_000_000
MAX_CONNECTING = 256  # a listen backlog is finite
# After this time Linux sends the first SYN again: it was lost, and that of a new connection may not be.
_SYN_LOST_NS = 1_000_000_000
# If ticks are further apart, the process was suspended, and connects may have completed since.
_STOOD_STILL_NS = 1_500_000_000
_ARRIVALS_NS = 1_000_000_000  # how old what is known of a replica's arrivals may be
# Not the server's fault: this machine has no more descriptors, local ports or buffers.
_OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.EADDRINUSE, errno.ENOBUFS, errno.ENOMEM)
_ENDED_BY_OTHERS = (FailureKind.NO_RESPONSE, FailureKind.TRUNCATED, FailureKind.HTTP_STATUS)
_TIMES = ConnectionTimes()
_READ = select.EPOLLIN | select.EPOLLRDHUP
_READ_WRITE = _READ | select.EPOLLOUT


class HttpClient:
    """Sends requests to the replicas that ``balance`` chooses, reads their answers; times are monotonic ns.

    A replica that fails repeatedly gets no more requests, and ``on_suspect`` is called with its index, until
    ``trust`` is called after a successful health check. An address of a replica that gives no connection is
    not used again until then, its others are, and ``on_lost_address`` is called with a sentence.
    ``on_urgent_done`` is called in each poll, before the streams that are read in batches.
    ``network``: where to count what is known of each replica's network.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        deadlines: Deadlines,
        *,
        on_done: Callable[[Request, Outcome], None],
        on_urgent_done: Callable[[], None] = lambda: None,
        on_first_token: Callable[[Request], None] = lambda request: None,
        on_suspect: Callable[[int], None] = lambda index: None,
        on_lost_address: Callable[[str], None] = lambda text: None,
        balance: Balance | None = None,
        network: Sequence[Figures] | None = None,
        times: ConnectionTimes = _TIMES,
    ) -> None:
        self.opened = 0  # connections
        self._receptions = 0  # reads that brought a part of an answer, not its head alone
        self._partial_tokens = 0  # tokens so far of the answers in flight, but for those that are kept
        self.in_flight: dict[int, Request] = {}  # sorted by their start
        self._times = times
        figures: Sequence[Figures | None] = network or [None] * len(endpoints)
        self._replicas = [
            ReplicaPool(index, endpoint, figures[index]) for index, endpoint in enumerate(endpoints)
        ]
        self._trusted = list(self._replicas)
        self._balance = balance or Balance(len(endpoints))
        self._deadlines = DeadlineWatch(deadlines, self.in_flight)
        self._ticked_ns = self._arrivals_ns = time.monotonic_ns()
        self._on_first_token = on_first_token
        self._on_done = on_done
        self._on_urgent_done = on_urgent_done
        self._on_suspect = on_suspect
        self._on_lost_address = on_lost_address
        self._clock = KernelClock()
        plain = not any(endpoint.tls for endpoint in endpoints)
        self._poller = Poller(self._clock, self._deadlines.stall_ns, plain=plain)
        self._connections: dict[int, Connection] = {}
        self._connecting: dict[int, Connection] = {}
        self._begun: list[Request] = []  # whose first token has come in this poll
        self._watched: dict[int, Callable[[int], None]] = {}
        # Ids of all runs differ. They have one length, since SGLang aborts requests by an id's beginning.
        self._id_prefix = f"{int.from_bytes(os.urandom(8)):020d}"
        self._id_numbers = itertools.count()

    @property
    def can_start(self) -> bool:
        """Whether another request may begin: there is a replica, and not too many connects are pending."""
        return len(self._connecting) < MAX_CONNECTING and bool(self._trusted)

    @property
    def receptions(self) -> int:
        """Reads that brought bytes, so far."""
        return self._receptions + self._poller.kept

    @property
    def partial_tokens(self) -> int:
        """Tokens so far of the answers in flight."""
        return self._partial_tokens + self._poller.kept_tokens

    @property
    def clock_steps_ns(self) -> int:
        """The sum of the wall clock's jumps, in ns."""
        return self._clock.steps_ns

    def suspect(self, index: int) -> None:
        """Send nothing more to a replica; its requests in flight may still be answered."""
        self._trusted = [replica for replica in self._trusted if replica.index != index]
        self._balance.shun(index)

    def trust(self, index: int) -> None:
        """Use a replica again."""
        replica = self._replicas[index]
        replica.failed_in_a_row, replica.pairs = 0, replica.endpoint.pairs
        self._trusted = [r for r in self._replicas if r in self._trusted or r.index == index]
        self._balance.allow(index)

    def move(self, index: int, endpoint: Endpoint) -> None:
        """Open further connections of a replica to the addresses of ``endpoint``."""
        replica = self._replicas[index]
        replica.endpoint, replica.pairs = endpoint, endpoint.pairs

    def watch(self, descriptor: int, mask: int, callback: Callable[[int], None]) -> None:
        """Poll a foreign descriptor along with the connections."""
        if descriptor in self._watched:
            self._poller.modify(descriptor, mask)
        else:
            self._poller.register(descriptor, mask)
        self._watched[descriptor] = callback

    def warm(self, connections: int) -> None:
        """Open idle connections to each replica ahead of the first request; failures show later."""
        for replica in self._replicas:
            for _ in range(connections):
                try:
                    connection = self._open(replica)
                except OSError:
                    return
                replica.warming[connection.fd] = connection

    def start(self, request: Request) -> None:
        """Send a request on an idle connection, one that is warming, or a new one."""
        request.started_ns = time.monotonic_ns()
        request.id = f"{self._id_prefix}{next(self._id_numbers):012d}"
        request.replica = self._balance.choose(request.started_ns)
        replica = self._replicas[request.replica]
        self.in_flight[request.query_id] = request
        self._deadlines.add(request)
        self._connect(request, replica)

    def _connect(self, request: Request, replica: ReplicaPool) -> None:
        try:
            connection = self._take_made(replica, time.monotonic_ns()) or self._open(replica)
        except OSError as error:
            self._finish(request, _no_connection(replica, error))
            return
        connection.request = request
        request.connection = connection
        connection.unsent = [replica.endpoint.head, *_opened(request)]
        if connection.ready:
            self._send(connection, request)

    def poll(self, timeout_s: float) -> None:
        """Handle what has happened, or wait for it up to ``timeout_s``; end what is late."""
        wait_s = self._deadlines.wait_s(time.monotonic_ns(), timeout_s)
        for descriptor, mask in self._poller.poll(wait_s):
            connection = self._connections.get(descriptor)
            if connection is None:
                if descriptor in self._watched:
                    self._watched[descriptor](mask)
            elif mask == select.EPOLLIN and connection.ready:
                self._receive(connection)
            else:
                self._handle(connection, mask)
        self._on_urgent_done()
        self._read_begun()
        for descriptor, what in self._poller.read_batched():
            self._see(descriptor, what)
        self._end_late()

    def tick(self) -> None:
        """Check connections that are being opened or are idle; to be called a few times a second."""
        self._clock.refresh()
        now = time.monotonic_ns()
        if now - self._ticked_ns < _STOOD_STILL_NS:
            self._expire_connecting(now)
        self._ticked_ns = now
        if now - self._arrivals_ns > _ARRIVALS_NS:
            self._arrivals_ns = now
            self._note_arrivals(now)
        for replica in self._replicas:
            while replica.idle and now - replica.idle[0].used_ns > self._times.idle_ns:
                self._close(replica.idle.pop(0))

    def keeps_alive(self) -> list[bool]:
        """For each replica, whether it has left a used connection open."""
        return [bool(replica.idle) for replica in self._replicas]

    def close(self) -> None:
        """Close all connections; no callback is called."""
        for connection in list(self._connections.values()):
            self._close(connection)
        self._poller.close()

    # -- connections

    def _open(self, replica: ReplicaPool) -> Connection:
        while True:
            opened_ns = time.monotonic_ns()
            try:
                connection = replica.connect(self._clock)
                break
            except OSError as error:
                if not self._leave_address(replica, replica.pair, error):
                    raise
        connection.opened_ns = opened_ns
        self._connections[connection.fd] = connection
        self._connecting[connection.fd] = connection
        connection.mask = _READ_WRITE
        self._poller.register(connection.fd, _READ_WRITE)
        self.opened += 1
        return connection

    def _leave_address(self, replica: ReplicaPool, pair: AddressPair, error: OSError) -> bool:
        """Whether ``replica`` has other addresses than this one, which gave no connection; uses those."""
        others = replica.others(pair)
        if not others or error.errno in _OWN_LIMITS:
            return False
        if len(others) < len(replica.pairs):
            replica.pairs = others
            self._on_lost_address(
                f"{replica.endpoint.url}: its address {pair.address[0]} gave no connection "
                f"({error.strerror or error}); its other addresses are used"
            )
        return True

    def _take_made(self, replica: ReplicaPool, now: int) -> Connection | None:
        while replica.idle:
            connection = replica.idle.pop()
            if now - connection.used_ns <= self._times.idle_ns and connection.transport.alive():
                return connection
            self._close(connection)
        while replica.warming:
            connection = replica.warming.popitem()[1]
            if now - connection.opened_ns < _SYN_LOST_NS:
                return connection
        return None

    def _close(self, connection: Connection) -> None:
        self._connections.pop(connection.fd, None)
        self._connecting.pop(connection.fd, None)
        connection.replica.warming.pop(connection.fd, None)
        count_closed(connection.replica.network, TcpInfo.of(connection.transport.info()))
        connection.request = None  # breaks the reference cycle: workers run without a garbage collector
        self._poller.forget(connection.fd)
        connection.transport.close()

    def _release(self, connection: Connection) -> None:
        connection.request = None
        if connection.batched:
            connection.batched = False
            self._poller.to_immediate(connection.fd, connection.mask)
        connection.used_ns = time.monotonic_ns()
        connection.replica.idle.append(connection)

    # -- events

    def _handle(self, connection: Connection, mask: int) -> None:
        if not connection.ready and not self._advance(connection):
            return
        if mask & select.EPOLLOUT and connection.unsent and connection.request is not None:
            self._send(connection, connection.request)
        if mask & ~select.EPOLLOUT and connection.fd in self._connections:
            self._receive(connection)

    def _advance(self, connection: Connection) -> bool:
        """Advance the connect; True once the connection is established."""
        try:
            connection.ready = connection.transport.ready()
        except OSError as error:
            self._lost(connection, FailureKind.CONNECT, error)
            return False
        if not connection.ready:
            self._listen(connection, _READ_WRITE if connection.transport.wants_write else _READ)
        else:
            del self._connecting[connection.fd]
            request, now = connection.request, time.monotonic_ns()
            waited_ns = None if request is None else now - request.started_ns
            count_connect(connection.replica.network, now - connection.opened_ns, waited_ns)
            if request is None:
                connection.replica.warming.pop(connection.fd, None)
                self._listen(connection, _READ)
                self._release(connection)
            else:
                self._send(connection, request)
        return connection.ready

    def _send(self, connection: Connection, request: Request) -> None:
        try:
            sent = connection.transport.send(connection.unsent)
        except OSError as error:
            self._lost(connection, FailureKind.SEND, error)
            return
        request.accepted = request.accepted or sent > 0
        connection.unsent = _unsent(connection.unsent, sent)
        if not connection.unsent:
            request.sent_ns = time.monotonic_ns()
        self._listen(connection, _READ_WRITE if connection.unsent else _READ)

    def _listen(self, connection: Connection, mask: int) -> None:
        if connection.mask != mask:
            connection.mask = mask
            self._poller.modify(connection.fd, mask)

    def _see(self, descriptor: int, what: int | OSError | Received) -> None:
        """Handle what has come on a batched stream and may not be kept."""
        connection = self._connections[descriptor]
        if isinstance(what, int):
            self._handle(connection, what)
        elif isinstance(what, OSError):
            self._lost(connection, FailureKind.NO_RESPONSE, what)
        else:
            self._take(connection, *what)

    def _hand_over(self, connection: Connection) -> None:
        """Give a reader what is kept of its stream: before it gets more bytes, or is asked."""
        if connection.batched and connection.request is not None:
            ids, data, arrived_ns = self._poller.take(connection.fd)
            if arrived_ns:
                connection.request.reader.hold(data, arrived_ns, ids)
                self._count(connection.request)

    def _receive(self, connection: Connection) -> bool:
        """Whether something was read."""
        try:
            received = connection.transport.receive()
        except OSError as error:
            self._lost(connection, FailureKind.NO_RESPONSE, error)
            return False
        if received is not None:
            self._take(connection, *received)
        return received is not None

    def _take(self, connection: Connection, data: bytes, arrived_ns: int) -> None:
        request = connection.request
        if request is None:  # idle: closed by the server, or unexpected bytes
            self._forget_idle(connection)
            return
        self._hand_over(connection)
        before_ns = request.reader.last_byte_ns
        arrived_ns = connection.transport.complete_ns(arrived_ns)
        outcome = request.reader.feed(data, arrived_ns) if data else request.reader.closed()
        # Heads and comments are no sign of work: servers send them for an engine that hangs, too.
        reader = request.reader
        has_event = reader.first_token_ns and reader.last_event_ns == reader.last_byte_ns
        if data and (outcome is not None or has_event):
            self._receptions += 1
            connection.replica.arrived_ns = arrived_ns
        if outcome is not None:
            if not isinstance(outcome, Failure):
                refusal = request.refusal(outcome, self._replicas[request.replica].endpoint)
                outcome = refusal or self._deadlines.missed_at_end(request, before_ns) or outcome
            self._finish(request, outcome)
            return
        self._count(request)
        if request.reader.first_token_ns and not request.first_token_sent:
            request.first_token_sent = True
            self._on_first_token(request)
            self._begun.append(request)
            return
        paced = arrived_ns - before_ns > _PACED_GAP_NS
        if paced and (failure := self._deadlines.missed_between(request, before_ns)):
            self._finish(request, failure)
            return
        self._read_on(connection, request, paced=paced)

    def _read_begun(self) -> None:
        """Read on where a first token was reported, which does not wait for this."""
        for request in self._begun:
            if request.connection is not None:
                self._read_on(request.connection, request, paced=False)
        self._begun.clear()

    def _read_on(self, connection: Connection, request: Request, *, paced: bool) -> None:
        """Choose how the rest of an answer is read. ``paced``: the latest bytes came well after others."""
        reader = request.reader
        if not connection.batched and (len(self.in_flight) < _BATCHED_FROM or not reader.visible_ns):
            return
        expected = reader.expected if self._poller.is_native else None
        if not connection.batched:
            if not paced and expected is None:
                return
            connection.batched = True
            self._poller.to_batched(
                connection.fd, connection.mask, connection.transport, reader.last_byte_ns, holds=reader.holds
            )
        self._poller.expect(connection.fd, expected)

    def _count(self, request: Request) -> None:
        """Count the tokens that have come."""
        tokens = request.reader.answer.tokens
        self._partial_tokens += tokens - request.tokens
        request.tokens = tokens

    def _end_late(self) -> None:
        """Fail the requests that are beyond a deadline, by the arrival of what the kernel holds for them."""
        now = time.monotonic_ns()
        for request in self._deadlines.due(now):
            self._read_arrived(request, now)
            if request.connection is not None:
                self._hand_over(request.connection)
            if self.in_flight.get(request.query_id) is not request:
                continue
            if failure := request.reader.parse_held() or self._deadlines.missed(request, now):
                self._finish(request, failure)
            else:
                self._deadlines.add_again(request, now)

    def _read_arrived(self, request: Request, until_ns: int) -> None:
        """Read what arrived by ``until_ns`` and was not read yet: this process may have been suspended."""
        connection = request.connection
        while connection is not None and connection.ready and connection.request is request:
            if not self._receive(connection) or request.reader.last_byte_ns > until_ns:
                return

    def _lost(self, connection: Connection, kind: FailureKind, error: OSError) -> None:
        request, replica = connection.request, connection.replica
        another = kind is FailureKind.CONNECT and self._leave_address(replica, connection.pair, error)
        if kind is FailureKind.CONNECT:
            replica.network[Network.FAILED_CONNECTS] += 1
        if request is None:
            self._forget_idle(connection)
            return
        if another:  # no server has seen the request
            request.connection = None
            self._close(connection)
            self._connect(request, replica)
            return
        if kind is FailureKind.CONNECT:
            self._finish(request, _no_connection(replica, error))
            return
        self._hand_over(connection)
        if (outcome := request.reader.broken()) is not None:
            self._finish(request, outcome)
            return
        cause = f"{replica.endpoint.url}: {error.strerror or error}"
        if error.errno in GIVEN_UP:
            cause += f"; {TcpInfo.of(connection.transport.info()).nothing_came()}"
        if kind is FailureKind.NO_RESPONSE and request.reader.first_byte_ns:
            kind = FailureKind.TRUNCATED
            cause += f" after {counted(request.reader.answer.tokens, 'token')}"
        self._finish(request, Failure(kind, cause))

    def _forget_idle(self, connection: Connection) -> None:
        if connection in connection.replica.idle:
            connection.replica.idle.remove(connection)
        self._close(connection)

    def _finish(self, request: Request, outcome: Outcome) -> None:
        del self.in_flight[request.query_id]
        self._partial_tokens -= request.tokens
        replica = self._replicas[request.replica]
        self._balance.ended(replica.index)
        request.reader.release()
        connection, request.connection = request.connection, None
        if connection is not None:
            outcome = _with_evidence(outcome, request, connection)
            endpoint = connection.replica.endpoint
            if (
                not isinstance(outcome, Failure)
                and endpoint.keep_alive
                and request.reader.reusable
                and request.is_answered_by_id
            ):
                self._release(connection)
            else:
                self._close(connection)
        if replica.fails_again(outcome) and replica in self._trusted:
            self.suspect(replica.index)
            self._on_suspect(replica.index)
        self._on_done(request, outcome)

    def _note_arrivals(self, now: int) -> None:
        """Note when something came from each replica. Batched streams are read elsewhere: the kernel knows.

        One recent arrival of a replica is enough.
        """
        silent = {replica.index for replica in self._replicas if now - replica.arrived_ns > _ARRIVALS_NS}
        for descriptor in self._poller.batched:
            if not silent:
                break
            connection = self._connections[descriptor]
            replica = connection.replica
            if replica.index in silent:
                arrived_ns = now - since_received_ms(connection.transport.info()) * 1_000_000
                replica.arrived_ns = max(replica.arrived_ns, arrived_ns)
                if now - arrived_ns <= _ARRIVALS_NS:
                    silent.remove(replica.index)
        for replica in self._replicas:
            replica.network[Network.ARRIVED_NS] = replica.arrived_ns

    def _expire_connecting(self, now: int) -> None:
        times = self._times
        earliest_ns = now - min(times.next_address_ns, times.connect_ns)
        for connection in [c for c in self._connecting.values() if c.opened_ns < earliest_ns]:
            has_others = connection.replica.others(connection.pair)
            limit_ns = times.next_address_ns if has_others else times.connect_ns
            if now - connection.opened_ns > limit_ns:
                # TCP waits until it can write, a handshake for what it reads.
                what = "connection" if connection.mask == _READ_WRITE else "TLS handshake"
                late = TimeoutError(f"no {what} within {limit_ns / 1e9:g} s")
                self._lost(connection, FailureKind.CONNECT, late)


def _opened(request: Request) -> list[bytes | memoryview]:
    """The rest of a request behind its endpoint's head: the brace that begins its JSON is the opening's."""
    body = request.body
    if request.salt is None:
        return [request.opening(request.id, len(body)), body[1:]]
    first, *others = request.pieces
    size = len(first) + sum(map(len, others))
    return [request.opening(request.id, size), first[1:], *others]


def _no_connection(replica: ReplicaPool, error: OSError) -> Failure:
    if error.errno in _OWN_LIMITS:
        return Failure(FailureKind.LOCAL_LIMIT, f"{replica.endpoint.url}: {machine_failure(error)}")
    return Failure(FailureKind.CONNECT, f"{replica.endpoint.url}: {error.strerror or error}")


def _with_evidence(outcome: Outcome, request: Request, connection: Connection) -> Outcome:
    """A timeout with the kernel's figures of its connection, what others ended with the time until then."""
    if not isinstance(outcome, Failure):
        return outcome
    if outcome.kind is FailureKind.TIMEOUT:
        evidence = TcpInfo.of(connection.transport.info()).evidence()
        return Failure(outcome.kind, f"{outcome.detail}; {evidence}") if evidence else outcome
    if outcome.kind not in _ENDED_BY_OTHERS or not request.sent_ns:
        return outcome
    last_ns, now = request.reader.last_byte_ns, time.monotonic_ns()
    if outcome.kind is FailureKind.HTTP_STATUS:
        now, last_ns = last_ns, 0
    return Failure(outcome.kind, with_times(outcome.detail, now - request.sent_ns, last_ns and now - last_ns))


def _unsent(buffers: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    rest: list[bytes | memoryview] = []
    for buffer in buffers:
        if sent >= len(buffer):
            sent -= len(buffer)
        else:
            rest.append(memoryview(buffer)[sent:])
            sent = 0
    return rest
