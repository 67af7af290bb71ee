"""What tests of several rooms build: parameters, a rendered request, scripted peers, waiting for an event."""

import errno
import itertools
import os
import re
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest

from harness.config.generation import SamplingParameters
from harness.config.protocol import Dialect, Protocol, own_protocol
from harness.dataset.samples import SampleSet
from harness.record.outcome import Failure, FailureKind, Outcome
from sut.client.connections import Request
from sut.client.endpoint import AddressPair
from sut.client.response import ResponseReader
from sut.client.transport import KernelClock, PlainTransport
from sut.wire import make_wire

DATA = Path(__file__).parent / "data"  # recorded answers of real servers
VOCABULARY = 201088
PATIENCE_S = 120.0  # for an event that must come: a busy machine has time enough, a hang fails the test
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")

_kept_ports: list[ExitStack] = []


def parameters(**changes: Any) -> SamplingParameters:
    """gpt-oss's parameters for a stream of at most 20 tokens, with ``changes``."""
    fixed = {"max_new_tokens": 20, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "stream": True}
    return SamplingParameters(**fixed | {"skip_special_tokens": False} | changes)


def full_disk(*_: object) -> NoReturn:
    """In place of a function that writes."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def without_permissions(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on files have no modes, times or links, as on FAT and SMB that another user has mounted."""

    def refuse(path: Any, *_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    for name in ("chmod", "utime", "link"):
        monkeypatch.setattr(os, name, refuse)


def protocol_of(name: Dialect | Protocol) -> Protocol:
    """The protocol, or a dialect's own."""
    return name if isinstance(name, Protocol) else own_protocol(name)


def wire_of(protocol: Dialect | Protocol = "sglang", **changes: Any):
    """The protocol with ``parameters(**changes)``."""
    return make_wire(protocol_of(protocol), parameters(**changes), VOCABULARY, "m")


def reader_of(
    protocol: Dialect | Protocol = "sglang", most: int | None = None, **changes: Any
) -> ResponseReader:
    """A reader of one response in the protocol with ``parameters(**changes)``."""
    wire = wire_of(protocol, **changes)
    return ResponseReader(wire.answer(), streams=wire.streams, max_event_bytes=most or wire.max_event_bytes)


def make_request(prompt: list[int], query_id: int = 0, **changes: Any) -> Request:
    """A request as a worker renders it."""
    wire = wire_of("sglang", **changes)
    body = memoryview(wire.render(msgspec.json.encode(prompt)))
    return Request(query_id, 0, time.monotonic_ns(), body, reader_of(**changes), wire.opening)


def sample_set(path, prompts: list[list[int]], limits: list[int] | None = None) -> SampleSet:
    ids = np.concatenate([np.array(prompt, dtype=np.int32) for prompt in prompts])
    offsets = np.cumsum([0, *map(len, prompts)], dtype=np.int64)
    return SampleSet(path, "0" * 64, ids, offsets, None if limits is None else np.array(limits))


def any_written(folder: Path, pattern: str) -> bool:
    """Whether one of the files holds anything; a file that is moved away at this moment does not."""
    with suppress(FileNotFoundError):
        return any(path.stat().st_size for path in folder.glob(pattern))
    return False


def wait_until(happened: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
    """Look fifty times a second; fail when it takes too long."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def free_ports(count: int, first: int | None = None) -> int:
    """The first of ``count`` consecutive free ports, below those that the system gives to connections, from
    ``first`` on or apart from those that the neighbours of this process begin with, below 28 000.

    They stay bound until this process ends, which hinders no server that sets SO_REUSEADDR, as all here do:
    an engine listens a minute after its start, and nobody else may be given its port in that minute.
    """
    for port in range(first or 20_000 + os.getpid() % 500 * 16, 32_000, count):
        with ExitStack() as bound:
            try:
                for number in range(port, port + count):
                    one = bound.enter_context(socket.socket())
                    one.bind(("0.0.0.0", number))  # fails beside a port that is kept so
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            except OSError:
                continue
            _kept_ports.append(bound.pop_all())
            return port
    raise AssertionError("no free ports")


def assert_failed(outcome: Outcome, kind: FailureKind, wording: str = "") -> None:
    """A Failure of this kind, in words that may go to a terminal."""
    assert isinstance(outcome, Failure), outcome
    assert outcome.kind is kind, outcome
    assert wording in outcome.detail, outcome
    assert outcome.detail.isprintable() and len(outcome.detail) < 1000


@contextmanager
def scripted(*scripts: Callable[[socket.socket], Any]) -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that plays ``scripts[i]`` with its i-th connection, the last one again and again.

    Its URL and its ends of the connections, which stay open where the script does not close them.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    held: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            for index in itertools.count():
                held.append(listener.accept()[0])
                script = scripts[min(index, len(scripts) - 1)]
                threading.Thread(target=play, args=(script, held[-1]), daemon=True).start()

    def play(script: Callable[[socket.socket], Any], connection: socket.socket) -> None:
        with suppress(OSError):  # the client has gone: what the test is about
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            script(connection)

    accepting = threading.Thread(target=serve, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", held
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()  # else a stopped process may restart accept() with the next listener's descriptor
        listener.close()
        for connection in held:
            connection.close()


@contextmanager
def listening(serve: Callable[[socket.socket], Any]) -> Iterator[str]:
    """The URL of a server that serves each connection and closes it."""

    def play(connection: socket.socket) -> None:
        with connection:
            serve(connection)

    with scripted(play) as (url, _):
        yield url


def read_request(connection: socket.socket) -> tuple[bytes, bytes] | None:
    """Head and body of one request; None at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (piece := connection.recv(1 << 16)):
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    while len(body) < (int(length[1]) if length else 0):
        body += connection.recv(1 << 20)
    return head, body


def reset(connection: socket.socket) -> None:
    """Close with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@contextmanager
def connected() -> Iterator[tuple[PlainTransport, socket.socket]]:
    """A ready PlainTransport and the server's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pair = AddressPair(socket.AF_INET, listener.getsockname())
        transport = PlainTransport(pair, KernelClock())
        server, _ = listener.accept()
        with server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wait_until(transport.ready)
            yield transport, server
        transport.close()
