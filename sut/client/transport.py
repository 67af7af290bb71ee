"""Non-blocking sockets with the arrival time of their bytes: plain TCP with kernel stamps, and TLS."""

import errno
import itertools
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from sut.client.endpoint import AddressPair
from sut.client.network_figures import TCP_INFO_BYTES, gaps_of


def realtime_offset_ns() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, in ns."""
    return _ahead_ns(time.time_ns)


def slewed_ns() -> int:
    """CLOCK_MONOTONIC minus the clock that nothing corrects: how far it was slewed."""
    return -_ahead_ns(partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW))


def _ahead_ns(read: Callable[[], int]) -> int:
    """Another clock minus CLOCK_MONOTONIC, in ns: the narrowest of a few readings."""
    best_gap, best_offset = 1 << 62, 0
    for _ in range(5):
        before = time.monotonic_ns()
        other = read()
        after = time.monotonic_ns()
        if after - before < best_gap:
            best_gap, best_offset = after - before, other - (before + after) // 2
    return best_offset


class KernelClock:
    """Converts kernel receive stamps; ``refresh`` follows a stepped or slewed wall clock."""

    __slots__ = ("offset_ns", "steps_ns")

    def __init__(self) -> None:
        self.offset_ns = realtime_offset_ns()
        self.steps_ns = 0  # sum of |jumps| beyond 1 ms: the wall clock was stepped

    def refresh(self) -> None:
        """Measure the offset anew."""
        offset = realtime_offset_ns()
        jump = abs(offset - self.offset_ns)
        if jump > 1_000_000:
            self.steps_ns += jump
        self.offset_ns = offset


RECEIVE_BYTES = 65536
# Every socket of a process is read into the same memory: a buffer for each read would split the heap.
_RECEIVED = memoryview(bytearray(RECEIVE_BYTES))
_BUFFERS = (_RECEIVED,)
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python does not name it
_IP_BIND_ADDRESS_NO_PORT = 24  # linux/in.h; the port is then chosen for the pair of addresses
_TIMESPEC = struct.Struct("@qq")
_timespec = _TIMESPEC.unpack
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
SLACK_NS = 1_000_000  # two clocks may differ by this, since one of them is slewed
# The stamp is the last segment's, which may have waited for a lost one before it. On a connection that has
# lost segments, bytes count as arrived when they are read, if that is at least this long after their stamp.
LATE_NS = 5_000_000
_monotonic_ns = time.monotonic_ns
_IN_PROGRESS = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)

# An answer that is not streamed may take an hour, in which nothing arrives. Keep-alive probes hold the
# connection open in routers, and detect a machine that has died after two minutes. The user timeout does the
# same for one that owes an acknowledgement, for which the kernel alone would wait a quarter of an hour. It
# replaces the number of probes, so it is as long as all of them: one lost probe must not end a connection.
# Connections take turns with their probes: Offline opens thousands of them at once, and Linux drops what a
# burst has beyond net.core.netdev_max_backlog (1,000 packets) on loopback, and so of each repetition.
_IDLE_S, _INTERVAL_S, _PROBES = 60, 15, 4
GIVE_UP_S = _IDLE_S + _INTERVAL_S * _PROBES
_idle_s = itertools.cycle(range(_INTERVAL_S, _IDLE_S + 1))
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GIVE_UP_S * 1000),
)

Buffers = Sequence[bytes | memoryview]
Received = tuple[bytes, int]
"""Bytes, b"" at the end of a connection, and the arrival of the last in monotonic ns."""


class Transport(Protocol):
    """One connection to a server; nothing blocks."""

    def fileno(self) -> int:
        """Descriptor for the poll loop."""

    def ready(self) -> bool:
        """Advance connecting or handshaking; True once bytes can be sent. Raises OSError."""

    @property
    def wants_write(self) -> bool:
        """While not ready: whether the next step waits until it can write, not for the peer."""

    def send(self, buffers: Buffers) -> int:
        """Bytes accepted, 0 when the socket is full. Raises OSError."""

    def receive(self) -> Received | None:
        """Bytes and the arrival of the last in monotonic ns, b"" at the end, None when there are none yet."""

    def complete_ns(self, arrived_ns: int) -> int:
        """When all bytes of the latest read had arrived, by the arrival of the last."""

    def alive(self) -> bool:
        """Whether an idle connection may carry another request, as far as can be seen without waiting."""

    def info(self) -> bytes:
        """The kernel's struct tcp_info, for sut.client.network_figures.TcpInfo."""

    def close(self) -> None:
        """Close the descriptor."""


class PlainTransport:
    """TCP; arrival is the kernel's receive stamp if it can be trusted, else the moment of the read."""

    __slots__ = ("_clock", "_connected", "_recvmsg_into", "_socket", "latest_ns")

    def __init__(self, route: AddressPair, clock: KernelClock) -> None:
        self._socket = _connecting_socket(route)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._recvmsg_into = self._socket.recvmsg_into
        self._clock = clock
        self._connected = False
        self.latest_ns = time.monotonic_ns()  # arrival of the latest bytes

    def fileno(self) -> int:
        """Descriptor for the poll loop."""
        return self._socket.fileno()

    def ready(self) -> bool:
        """True once the connection is established; raises the error of the connect."""
        if not self._connected:
            self._connected = _connected(self._socket)
        return self._connected

    @property
    def wants_write(self) -> bool:
        """A connect ends when the socket is writable."""
        return True

    def send(self, buffers: Buffers) -> int:
        """Bytes accepted, 0 when the socket is full."""
        try:
            return self._socket.sendmsg(buffers)
        except BlockingIOError:
            return 0

    def receive(self) -> Received | None:
        """Bytes and their arrival."""
        try:
            size, ancillary, _, _ = self._recvmsg_into(_BUFFERS, _ANCILLARY_BYTES)
        except BlockingIOError:
            return None
        now = _monotonic_ns()
        data = _RECEIVED[:size].tobytes()
        if ancillary:
            seconds, nanoseconds = _timespec(ancillary[0][2])
            arrived_ns = seconds * 1_000_000_000 + nanoseconds - self._clock.offset_ns
            if self.latest_ns - SLACK_NS <= arrived_ns <= now + SLACK_NS:
                self.latest_ns = arrived_ns
                return data, arrived_ns
            self._clock.refresh()  # the wall clock was stepped: stamps are used from the next one on
        self.latest_ns = now
        return data, now

    def complete_ns(self, arrived_ns: int) -> int:
        """As Transport: the moment of the read if the last segment may have waited for a lost one."""
        now = time.monotonic_ns()
        return arrived_ns if now - arrived_ns < LATE_NS or not gaps_of(self.info()) else now

    def alive(self) -> bool:
        """False when the peer has closed, or has sent unexpected bytes."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def info(self) -> bytes:
        """The kernel's struct tcp_info."""
        return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)

    def close(self) -> None:
        """Close the descriptor."""
        self._socket.close()


class TlsTransport:
    """TLS over TCP; arrival is the moment of the read, since kernel stamps are of encrypted records."""

    __slots__ = ("_context", "_host", "_plain", "_ready", "_tls", "_wants_write")

    def __init__(self, route: AddressPair, context: ssl.SSLContext, host: str) -> None:
        self._plain = _connecting_socket(route)
        self._context = context
        self._host = host
        self._tls: ssl.SSLSocket | None = None
        self._ready = False
        self._wants_write = True

    def fileno(self) -> int:
        """Descriptor for the poll loop; wrapping keeps it."""
        return (self._tls or self._plain).fileno()

    def ready(self) -> bool:
        """Advance the connection, then the handshake."""
        if self._ready:
            return True
        if self._tls is None:
            if not _connected(self._plain):
                return False
            # Not earlier: wrapping a socket that is still connecting tries to read and fails.
            self._tls = self._context.wrap_socket(
                self._plain,
                server_hostname=self._host,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,  # an end that TLS does not confirm is a broken connection
            )
        try:
            self._tls.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wanted:
            self._wants_write = isinstance(wanted, ssl.SSLWantWriteError)
            return False
        self._ready = True
        return True

    @property
    def wants_write(self) -> bool:
        """True while TCP connects; then as the handshake needs."""
        return self._wants_write

    def send(self, buffers: Buffers) -> int:
        """Bytes accepted, 0 when the socket is full."""
        try:
            return self._open().send(b"".join(buffers))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def receive(self) -> Received | None:
        """All decrypted bytes, since epoll does not report what TLS has buffered."""
        parts: list[bytes] = []
        tls = self._open()
        while True:
            try:
                data = tls.recv(RECEIVE_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                if parts:
                    break  # the next call raises it again
                raise
            if not data:
                return (b"".join(parts), time.monotonic_ns())
            parts.append(data)
            if not tls.pending():
                break
        return (b"".join(parts), time.monotonic_ns()) if parts else None

    def complete_ns(self, arrived_ns: int) -> int:
        """The moment of the read."""
        return arrived_ns

    def close(self) -> None:
        """Close the descriptor."""
        (self._tls or self._plain).close()

    def info(self) -> bytes:
        """The kernel's struct tcp_info."""
        return (self._tls or self._plain).getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)

    def alive(self) -> bool:
        """False when the peer has closed, or has sent unexpected bytes; session tickets are neither."""
        try:
            return self.receive() is None
        except OSError:
            return False

    def _open(self) -> ssl.SSLSocket:
        assert self._tls is not None, "the connection is not ready"
        return self._tls


def _connecting_socket(route: AddressPair) -> socket.socket:
    """A non-blocking socket that is being connected. Raises OSError when that fails at once."""
    plain = socket.socket(route.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for level, option, value in _KEEP_ALIVE:
            plain.setsockopt(level, option, value)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, next(_idle_s))
        if route.source:
            plain.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            plain.bind((route.source, 0))
        code = plain.connect_ex(route.address)
        if code not in _IN_PROGRESS:
            raise OSError(code, os.strerror(code))
    except OSError:
        plain.close()
        raise
    return plain


def _connected(plain: socket.socket) -> bool:
    """Whether the connection is established. Raises its OSError."""
    code = plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    try:
        plain.getpeername()
    except OSError:
        return False
    return True
