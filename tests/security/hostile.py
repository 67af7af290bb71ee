"""A server that behaves well until the queries begin, and then sends what it is told to."""

import itertools
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.kit import listening, read_request
from tests.stub.protocol import Options, compact, information

KEY = "sk-Tr0ub4dor-and-3-correct-horses"
OK = b"HTTP/1.1 200 OK\r\n"
STREAM = OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"output_ids":[%b],"meta_info":{"completion_tokens":%d,"prompt_tokens":%d,'
    b'"finish_reason":{"type":"length"}}}\n\n'
)

Reply = Callable[[bytes], Iterable[bytes]]


@dataclass
class Hostile:
    """``url``, and what it was asked: heads of all requests."""

    url: str = ""
    heads: list[bytes] = field(default_factory=list)


@contextmanager
def hostile(generate: Reply, pages: dict[str, Reply] | None = None) -> Iterator[Hostile]:
    """``generate`` answers every query after the trial, ``pages`` replace information pages by their path."""
    server = Hostile()
    trial = itertools.count()

    def reply(head: bytes, body: bytes) -> Iterable[bytes]:
        path = head.split(b" ")[1].decode()
        if pages and path in pages:
            return pages[path](head)
        if path == "/generate":
            return [honest(body)] if next(trial) == 0 else generate(head)
        facts = information(path, Options())
        return [document(b"" if facts is None else compact(facts))]

    with listening(lambda connection: _serve(connection, server, reply)) as server.url:
        yield server


def _serve(
    connection: socket.socket, server: Hostile, reply: Callable[[bytes, bytes], Iterable[bytes]]
) -> None:
    while request := read_request(connection):
        server.heads.append(request[0])
        for piece in reply(*request):
            connection.sendall(piece)
        if b"connection: close" in request[0].lower():
            return


def honest(body: bytes) -> bytes:
    """The answer to the trial request: as many tokens as it asks for, in one event."""
    most, ids = re.search(rb'"max_new_tokens":(\d+)', body), re.search(rb'"input_ids":\[([^]]*)', body)
    assert most and ids, body
    asked, prompt = int(most[1]), ids[1].count(b",") + 1
    return chunked(EVENT % (b",".join([b"7"] * asked), asked, prompt), b"data: [DONE]\n\n")


def chunked(*blocks: bytes) -> bytes:
    return STREAM + b"".join(chunk(block) for block in blocks) + b"0\r\n\r\n"


def chunk(block: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(block), block)


def document(body: bytes, status: bytes = b"200 OK", extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n%b\r\n%b" % (status, len(body), extra, body)
