"""The binary messages between the LoadGen process and its workers, in every cut."""

import socket
import struct

import numpy as np
import pytest

from sut.ipc.messages import (
    ASSIGNMENT,
    ASSIGNMENT_STRUCT,
    COMPLETE,
    FAILED,
    FIRST,
    TOKEN_MESSAGE_STRUCT,
    TokenMessage,
    TokenMessageReader,
    TokenMessageWriter,
)

MESSAGES = [
    (1, FIRST, 10, b"\x01\x00\x00\x00"),
    (2**64 - 1, FIRST, 2**62, b"\xff\xff\xff\x7f"),
    (1, COMPLETE, 11, np.arange(5, dtype="<i4").tobytes()),
    (3, FAILED, 12, b""),
    (2**64 - 1, COMPLETE, 13, np.arange(100, dtype="<i4").tobytes()),
]


def encode(messages):
    return b"".join(TOKEN_MESSAGE_STRUCT.pack(q, len(t), kind, at) + t for q, kind, at, t in messages)


def read(pieces):
    reader, found = TokenMessageReader(), []
    for piece in pieces:
        buffer, reports = reader.feed(piece)
        for report in reports:
            assert isinstance(report, TokenMessage)
            tokens = buffer[report.offset : report.offset + report.size]
            found.append((report.query_id, report.kind, report.arrived_ns, tokens))
    return found


def test_layouts_are_packed():
    """Both ends agree on the bytes, whatever alignment the host likes."""
    assert ASSIGNMENT.itemsize == ASSIGNMENT_STRUCT.size == 24
    assert TOKEN_MESSAGE_STRUCT.size == 24
    row = np.array([(2**64 - 1, 7, -5)], dtype=ASSIGNMENT)
    assert ASSIGNMENT_STRUCT.unpack(row.tobytes()) == (2**64 - 1, 7, -5)
    assert struct.unpack("<QQq", row.tobytes()) == (2**64 - 1, 7, -5)


def test_every_cut_gives_the_same_reports():
    data = encode(MESSAGES)
    assert read([data]) == MESSAGES
    assert read([data[i : i + 1] for i in range(len(data))]) == MESSAGES
    for cut in range(1, len(data)):
        assert read([data[:cut], data[cut:]]) == MESSAGES, cut


def test_nothing_is_no_report():
    assert read([b"", b""]) == []


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_outbox_sends_what_the_reader_reads(pair):
    outbox = TokenMessageWriter(pair[0])
    for query_id, kind, at, tokens in MESSAGES:
        outbox.add(query_id, kind, at, tokens)
    assert outbox.flush()
    assert read([pair[1].recv(1 << 20)]) == MESSAGES


def test_outbox_keeps_what_the_socket_does_not_take(pair):
    outbox = TokenMessageWriter(pair[0])
    answer = np.arange(32_768, dtype="<i4").tobytes()
    for query_id in range(40):
        outbox.add(query_id, COMPLETE, query_id, answer)
    assert not outbox.flush()
    reader, seen, flushed = TokenMessageReader(), [], False
    while len(seen) < 40:
        buffer, reports = reader.feed(pair[1].recv(1 << 18))
        for report in reports:
            assert buffer[report.offset : report.offset + report.size] == answer
            seen.append(report.query_id)
        flushed = outbox.flush()
    assert seen == list(range(40))
    assert flushed


def test_outbox_without_a_reader_raises(pair):
    pair[1].close()
    outbox = TokenMessageWriter(pair[0])
    outbox.add(1, FAILED, 1)
    with pytest.raises(OSError):
        outbox.flush()
