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


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def read(pieces):
    reader, found = TokenMessageReader(), []
    for piece in pieces:
        buffer, reports = reader.feed(piece)
        for report in reports:
            tokens = buffer[report.offset : report.offset + report.size]
            found.append((report.query_id, report.kind, report.arrived_ns, tokens))
    return found


def test_layouts_are_packed():
    """Both ends agree on the bytes, whatever alignment the host likes."""
    assert ASSIGNMENT.itemsize == ASSIGNMENT_STRUCT.size == TOKEN_MESSAGE_STRUCT.size == 24
    row = np.array([(2**64 - 1, 7, -5)], dtype=ASSIGNMENT)
    assert ASSIGNMENT_STRUCT.unpack(row.tobytes()) == (2**64 - 1, 7, -5)
    assert struct.unpack("<QQq", row.tobytes()) == (2**64 - 1, 7, -5)


def test_every_cut_of_what_is_sent_gives_the_same_reports(pair):
    writer = TokenMessageWriter(pair[0])
    for query_id, kind, at, tokens in MESSAGES:
        writer.add(query_id, kind, at, tokens)
    assert writer.flush()
    data = pair[1].recv(1 << 20)
    assert read([data[i : i + 1] for i in range(len(data))]) == MESSAGES
    for cut in range(len(data)):
        assert read([data[:cut], data[cut:]]) == MESSAGES, cut


def test_what_the_socket_does_not_take_is_kept(pair):
    writer = TokenMessageWriter(pair[0])
    answer = np.arange(32_768, dtype="<i4").tobytes()
    for query_id in range(40):
        writer.add(query_id, COMPLETE, query_id, answer)
    assert not writer.flush()
    reader, seen, flushed = TokenMessageReader(), [], False
    while len(seen) < 40:
        buffer, reports = reader.feed(pair[1].recv(1 << 18))
        for report in reports:
            assert buffer[report.offset : report.offset + report.size] == answer
            seen.append(report.query_id)
        flushed = writer.flush()
    assert seen == list(range(40))
    assert flushed


def test_without_a_reader_the_writer_raises(pair):
    pair[1].close()
    writer = TokenMessageWriter(pair[0])
    writer.add(1, FAILED, 1)
    with pytest.raises(OSError):
        writer.flush()
