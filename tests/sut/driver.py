"""Drives the request path in tests: requests in, outcomes out, and scripted servers."""

import itertools
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

from harness.config.deadlines import Deadlines
from harness.config.generation import SamplingParameters
from harness.record.outcome import Completion, Failure, FailureKind
from sut.client.client import HttpClient
from sut.client.connections import Request
from sut.client.endpoint import resolve_endpoint
from sut.client.response import ResponseReader
from sut.wire import make_wire, max_event_bytes
from tests.faults.matrix import ANSWERS
from tests.stub import Fault, expected_ids

PARAMETERS = SamplingParameters(
    max_new_tokens=6, temperature=1.0, top_p=1.0, top_k=0, skip_special_tokens=False, stream=True
)
WIRE = make_wire("sglang", PARAMETERS, 201088, "m")
PROMPT = [200006, 17360]
EVENT = (
    b'data: {"output_ids":[%d],"meta_info":{"completion_tokens":1,"prompt_tokens":2,'
    b'"finish_reason":{"type":"stop"}}}\n\ndata: [DONE]\n\n'
)
KINDS = {row.fault: FailureKind[row.named.upper()] for row in ANSWERS if row.named} | {
    Fault.DUPLICATED_ID: FailureKind.TOO_MANY_TOKENS  # these answers have all tokens that were asked for
}


class Driver:
    """A client and what it reported, in order."""

    def __init__(self, *urls, timeout_s=20.0, deadlines=None, api_key=None, keep_alive=True, ca_file=None):
        endpoints = [resolve_endpoint(url, WIRE.path, api_key, ca_file) for url in urls]
        endpoints = [replace(endpoint, keep_alive=keep_alive) for endpoint in endpoints]
        self.firsts, self.outcomes, self.requests, self.suspects = [], {}, {}, []
        self.client = HttpClient(
            endpoints,
            deadlines or Deadlines(request_s=timeout_s),
            self._first,
            self._done,
            self.suspects.append,
        )
        self._ids = itertools.count()

    def _first(self, request):
        self.firsts.append(request.query_id)

    def _done(self, request, outcome):
        assert request.query_id not in self.outcomes, "a second outcome"
        self.outcomes[request.query_id] = outcome

    def start(self, prompt=PROMPT):
        body = WIRE.render(prompt)
        whole = memoryview(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        reader = ResponseReader(
            WIRE.answer(), streams=True, max_event_bytes=max_event_bytes(PARAMETERS, 201088)
        )
        request = Request(next(self._ids), 0, time.monotonic_ns(), whole, reader)
        self.requests[request.query_id] = request
        self.client.start(request)
        return request.query_id

    def poll(self, seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.client.poll(min(left, 0.05))
            self.client.tick()

    def wait(self, *queries, seconds=90.0):
        """Poll until all given queries (default: all) have ended."""
        wanted = set(queries or self.requests)
        until = time.monotonic() + seconds
        while not wanted <= set(self.outcomes):
            assert time.monotonic() < until, f"no outcome for {wanted - set(self.outcomes)}"
            self.client.poll(0.02)
            self.client.tick()
        return [self.outcomes[query] for query in sorted(wanted)]

    def ask(self, prompt=PROMPT):
        return self.wait(self.start(prompt))[0]


def assert_completed(outcome, prompt=PROMPT, count=6):
    assert isinstance(outcome, Completion), outcome
    assert outcome.output_ids.tolist() == expected_ids(prompt, count)


def assert_failed(outcome, kind, wording=""):
    assert isinstance(outcome, Failure), outcome
    assert outcome.kind is kind, outcome
    assert wording in outcome.detail, outcome


@contextmanager
def scripted(*scripts):
    """A server that plays ``scripts[i]`` with its i-th connection (the last one again and again)."""
    listener = socket.create_server(("127.0.0.1", 0))
    held = []

    def serve():
        for index in itertools.count():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            script = scripts[min(index, len(scripts) - 1)]
            threading.Thread(target=play, args=(script, connection), daemon=True).start()

    def play(script, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):  # the client has gone: what the test is about
            script(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", held
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in held:
            connection.close()


def read_request(connection):
    """One whole request; False at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (piece := connection.recv(1 << 16)):
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def answer(token=7, head=b"HTTP/1.1 200 OK\r\n"):
    body = EVENT % token
    return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
