"""Batched streams of plain TCP, and events that are as expected, in C.

./setup.sh compiles sut/client/native where there is a compiler.

    python -m sut.client.native_streams

compiles it into this environment's folder. The file's name has the digest of the source, so that a library of
another version of the source is not used.
"""

import ctypes
import functools
import hashlib
import os
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sut.client.streams import (
    AT_A_TIME,
    EVENTS_A_ROUND,
    MOST_HELD_BYTES,
    NAP_S,
    NOTHING_HELD,
    Arrival,
    Held,
)
from sut.client.transport import RECEIVE_BYTES, SLACK_NS, KernelClock, PlainTransport, Transport
from sut.wire.answer_checks import Expected
from sut.wire.sse import EVENT_END

_SOURCES = sorted(Path(__file__).parent.glob("native/*.[ch]"))
# What leading_ids finds. A type of array that is made for each call would cost more than the call.
_IDS, _USED = (ctypes.c_uint32 * (RECEIVE_BYTES // 2))(), ctypes.c_int64()
_FOUND = _IDS, ctypes.byref(_USED), ctypes.byref(ctypes.c_int())
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")


class _Exchange(ctypes.Structure):
    """``struct exchange``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batched", "urgent", "events_a_round", "at_a_time")),
        *((name, ctypes.c_int64) for name in ("most_held_bytes", "stall_ns", "slack_ns", "offset_ns")),
        ("nap_ms", ctypes.c_int64),
        ("event_end", ctypes.c_char_p),
        ("event_end_bytes", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("mask", "code", "start", "size", "arrived_ns")),
        *((name, ctypes.c_int64) for name in ("held_bytes", "held_ids", "held_ns")),
        *((name, ctypes.c_int64) for name in ("more", "kept", "kept_ids", "stepped")),
    )


class NativeStreams:
    """Streams of plain TCP connections, whose stamps ``clock`` converts."""

    def __init__(
        self,
        library: ctypes.CDLL,
        batched: select.epoll,
        urgent: select.epoll,
        stall_ns: int,
        clock: KernelClock,
    ) -> None:
        """``batched``: the set of the streams. ``urgent``: another one, looked at while reading."""
        self.more = False
        self.kept = 0
        self._clock = clock
        self._transports: dict[int, PlainTransport] = {}
        self._exchange = _Exchange(
            batched=batched.fileno(),
            urgent=urgent.fileno(),
            events_a_round=EVENTS_A_ROUND,
            at_a_time=AT_A_TIME,
            most_held_bytes=MOST_HELD_BYTES,
            stall_ns=stall_ns,
            slack_ns=SLACK_NS,
            nap_ms=round(NAP_S * 1000),
            event_end=EVENT_END,
            event_end_bytes=len(EVENT_END),
        )
        self._library = library
        self._streams = library.streams_new(ctypes.byref(self._exchange))
        if not self._streams:
            raise MemoryError
        self._received = library.streams_received(self._streams)

    @property
    def kept_tokens(self) -> int:
        """As Streams."""
        return int(self._exchange.kept_ids)

    def begin(self, descriptor: int, mask: int, transport: Transport, last_ns: int, *, holds: bool) -> None:
        """As Streams."""
        assert isinstance(transport, PlainTransport), "encrypted streams are read in Python"
        if self._library.streams_begin(self._streams, descriptor, mask, last_ns, holds):
            raise _error()
        self._transports[descriptor] = transport

    def listen(self, descriptor: int, mask: int) -> None:
        """As Streams."""
        if self._library.streams_listen(self._streams, descriptor, mask):
            raise _error()

    def expect(self, descriptor: int, expected: Expected | None) -> None:
        """As Streams."""
        pattern, tokens, most = expected or (b"", 0, 0)
        if self._library.streams_expect(self._streams, descriptor, pattern, len(pattern), tokens, most):
            raise MemoryError

    def end(self, descriptor: int) -> None:
        """As Streams."""
        del self._transports[descriptor]
        self._library.streams_end(self._streams, descriptor)

    def wait(self, timeout_s: float) -> float:
        """As Streams: all of the time, since the library reads meanwhile."""
        self._exchange.offset_ns = self._clock.offset_ns
        self._library.streams_wait(self._streams, int(timeout_s * 1e9))
        return 0.0

    def read(self) -> Iterator[Arrival]:
        """As Streams."""
        exchange, following = self._exchange, self._library.streams_next
        exchange.offset_ns = self._clock.offset_ns
        while (descriptor := following(self._streams)) >= 0:
            if exchange.mask:
                yield descriptor, exchange.mask
            elif exchange.code:
                yield descriptor, OSError(exchange.code, os.strerror(exchange.code))
            else:
                self._transports[descriptor].latest_ns = exchange.arrived_ns
                data = ctypes.string_at(self._received + exchange.start, exchange.size)
                yield descriptor, (data, exchange.arrived_ns)
        self.more, self.kept = bool(exchange.more), exchange.kept
        if exchange.stepped:  # the wall clock was: stamps are used from the next one on
            exchange.stepped = 0
            self._clock.refresh()

    def take(self, descriptor: int) -> Held:
        """As Streams."""
        address, exchange = self._library.streams_take(self._streams, descriptor), self._exchange
        size, count, held_ns = exchange.held_bytes, exchange.held_ids, exchange.held_ns
        if not size and not count:
            return NOTHING_HELD
        transport = self._transports[descriptor]
        transport.latest_ns = max(transport.latest_ns, held_ns)
        ids = ctypes.string_at(self._library.streams_taken_ids(self._streams), 4 * count) if count else b""
        return Held(ids, ctypes.string_at(address, size) if size else b"", held_ns)

    def close(self) -> None:
        """As Streams."""
        if self._streams:
            self._library.streams_free(self._streams)
        self._streams = None


def leading_ids(expected: Expected, data: bytes) -> tuple[bytes, int]:
    """The ids of the first complete chunks of ``data`` whose events are as expected, and the size of these.

    Ids are unsigned 32-bit integers; there are none without a library.
    """
    loaded = library()
    if loaded is None:
        return b"", 0
    pattern, tokens, most = expected
    size = min(len(data), RECEIVE_BYTES)
    count = loaded.ids_of_events(pattern, data, size, tokens, *_FOUND)
    return (ctypes.string_at(_IDS, 4 * count), _USED.value) if tokens + count <= most else (b"", 0)


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def library_file() -> Path:
    """Where the compiled library of this source belongs."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in _SOURCES)).hexdigest()
    return Path(sys.prefix, "share", f"native_streams-{digest[:16]}.so")


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled library; None where it was not compiled, or not for this machine."""
    try:
        loaded = ctypes.CDLL(str(library_file()), use_errno=True)
    except OSError:
        return None
    streams = ctypes.c_void_p
    for name, result, arguments in (
        ("streams_new", streams, (ctypes.POINTER(_Exchange),)),
        (
            "streams_begin",
            ctypes.c_int,
            (streams, ctypes.c_int, ctypes.c_uint32, ctypes.c_int64, ctypes.c_int),
        ),
        ("streams_listen", ctypes.c_int, (streams, ctypes.c_int, ctypes.c_uint32)),
        ("streams_end", None, (streams, ctypes.c_int)),
        ("streams_wait", None, (streams, ctypes.c_int64)),
        ("streams_next", ctypes.c_int, (streams,)),
        ("streams_received", ctypes.c_void_p, (streams,)),
        ("streams_expect", ctypes.c_int, (streams, ctypes.c_int, ctypes.c_char_p, *[ctypes.c_int64] * 3)),
        ("streams_take", ctypes.c_void_p, (streams, ctypes.c_int)),
        ("streams_taken_ids", ctypes.c_void_p, (streams,)),
        ("streams_free", None, (streams,)),
        (
            "ids_of_events",
            ctypes.c_int64,
            (*[ctypes.c_char_p] * 2, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 3),
        ),
    ):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def compile_library() -> str:
    """Compile it where it is not yet; return why that was not possible, "" if it is compiled."""
    if library() is not None:
        return ""
    compiler, file = shlex.split(os.environ.get("CC", "cc")), library_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    try:
        done = subprocess.run(
            [*compiler, *_FLAGS, "-o", partial, *(file for file in _SOURCES if file.suffix == ".c")],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"{compiler[0]}: {error.strerror}"
    if done.returncode:
        first, *_ = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return f"{compiler[0]}: {first}"
    partial.replace(file)
    return ""


if __name__ == "__main__":
    sys.exit(compile_library() or None)
