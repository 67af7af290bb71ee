"""Batched streams, in Python and in C alike: events are kept, and what may be an end comes out with them."""

import errno
import select
import socket
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest

from sut.client import native_streams
from sut.client.poller import Poller
from sut.client.streams import AT_A_TIME, MOST_HELD_BYTES, NAP_S
from sut.client.transport import RECEIVE_BYTES, KernelClock
from sut.wire.sse import EVENT_END
from tests.kit import PATIENCE_S, connected, reset, wire_of

READ = select.EPOLLIN | select.EPOLLRDHUP
EVENT, OTHER = b"data: 1" + EVENT_END, b"data: 22" + EVENT_END
STALL_NS = 10_000_000_000
END = b"0\r\n\r\n"


@pytest.fixture
def polls(is_native):
    """A poller whose batched streams are read in Python, or in C."""
    made = Poller(KernelClock(), STALL_NS)
    yield made
    made.close()


@pytest.fixture
def open_stream(polls):
    """Make batched streams: the descriptor and the server's end of each."""
    with ExitStack() as stack:
        transports = {}

        def make(*, holds=True, idle_ns=0):
            transport, server = stack.enter_context(connected())
            transports[transport.fileno()] = transport
            polls.register(transport.fileno(), READ)
            last_ns = time.monotonic_ns() - idle_ns
            polls.to_batched(transport.fileno(), READ, transport, last_ns, holds=holds)
            return transport.fileno(), server

        make.transports = transports
        yield make


def read_until(polls, happened):
    """All that has to be looked at until something ``happened`` to it."""
    found = []
    until = time.monotonic() + PATIENCE_S
    while not happened(found):
        assert time.monotonic() < until, found
        polls.poll(NAP_S)
        found += polls.read_batched()
    return found


def data_of(polls, parts=1):
    return b"".join(what[0] for _, what in read_until(polls, lambda found: len(found) >= parts))


def test_events_are_kept_until_what_may_be_the_end(polls, open_stream):
    stream, server = open_stream()
    before_ns = time.monotonic_ns()
    for kept, data in enumerate((EVENT, OTHER, EVENT), start=1):
        server.sendall(data)
        assert read_until(polls, lambda _: polls.kept == kept) == []  # noqa: B023
    server.sendall(END)
    time.sleep(0.05)  # the client is busy elsewhere
    read_ns = time.monotonic_ns()
    [(descriptor, (data, arrived_ns))] = read_until(polls, bool)
    assert (descriptor, data) == (stream, END)
    _, held, held_ns = polls.take(stream)
    assert held == EVENT + OTHER + EVENT
    assert before_ns - 1_000_000 < held_ns <= arrived_ns < read_ns
    assert polls.take(stream).data == b""
    server.sendall(OTHER)
    read_until(polls, lambda _: polls.kept == 4)
    assert polls.take(stream).data == OTHER


@pytest.mark.parametrize("data", [END, EVENT[:-1], EVENT[:3], EVENT + END, EVENT_END[1:], b"x"])
def test_what_does_not_end_with_an_event_is_not_kept(polls, open_stream, data):
    stream, server = open_stream()
    server.sendall(data)
    assert data_of(polls) == data
    assert polls.take(stream).data == b""


def test_what_is_kept_is_bounded(polls, open_stream):
    stream, server = open_stream()
    large = b"x" * MOST_HELD_BYTES + EVENT_END
    server.sendall(large)
    found = read_until(polls, lambda found: polls.kept or found)
    server.sendall(EVENT)
    found += read_until(polls, bool)
    come = b"".join(what[0] for _, what in found)
    assert polls.take(stream).data + come == large + EVENT
    assert come.endswith(EVENT)


def test_late_bytes_are_not_kept(polls, open_stream):
    _, server = open_stream(idle_ns=2 * STALL_NS)
    server.sendall(EVENT)
    assert data_of(polls) == EVENT
    server.sendall(OTHER)
    assert read_until(polls, lambda _: polls.kept == 1) == []


def test_a_body_whose_end_may_look_like_an_event_is_not_kept(polls, open_stream):
    _, server = open_stream(holds=False)
    server.sendall(EVENT)
    assert data_of(polls) == EVENT
    assert polls.kept == 0


def test_the_end_of_a_connection(polls, open_stream):
    stream, server = open_stream()
    server.sendall(EVENT)
    read_until(polls, lambda _: polls.kept == 1)
    server.shutdown(socket.SHUT_WR)
    [(descriptor, mask)] = read_until(polls, bool)
    assert descriptor == stream
    assert mask & select.EPOLLRDHUP
    assert polls.take(stream).data == EVENT


def test_a_reset_connection(polls, open_stream):
    stream, server = open_stream()
    reset(server)
    [(descriptor, what)] = read_until(polls, bool)
    assert descriptor == stream
    assert what.errno == errno.ECONNRESET if isinstance(what, OSError) else what & select.EPOLLERR


@pytest.mark.parametrize("hours", [1, -1])
def test_a_stepped_wall_clock_gives_the_moment_of_the_read(polls, open_stream, hours):
    _, server = open_stream()
    clock = polls._streams._clock if hasattr(polls._streams, "_clock") else None
    if clock is None:
        pytest.skip("test_transport has this of a transport")
    clock.offset_ns += hours * 3_600_000_000_000
    before_ns = time.monotonic_ns()
    server.sendall(END)
    [(_, (_, arrived_ns))] = read_until(polls, bool)
    assert before_ns <= arrived_ns <= time.monotonic_ns()
    assert clock.steps_ns > 3_000_000_000_000


def test_many_streams_keep_apart_and_end(polls, open_stream):
    streams = [open_stream() for _ in range(2 * AT_A_TIME + 3)]
    for turn in range(3):
        for number, (_, server) in enumerate(streams):
            server.sendall(b"%d %d" % (number, turn) + EVENT_END)
        read_until(polls, lambda _: polls.kept == (turn + 1) * len(streams))  # noqa: B023
    for number, (descriptor, _) in enumerate(streams):
        assert polls.take(descriptor).data == b"".join(b"%d %d" % (number, n) + EVENT_END for n in range(3))
    polls.to_immediate(streams[0][0], READ)
    polls.forget(streams[1][0])
    for _, server in streams[:3]:
        server.sendall(EVENT)
    read_until(polls, lambda _: polls.kept == 3 * len(streams) + 1)
    assert polls.batched == {descriptor for descriptor, _ in streams[2:]}
    assert (streams[0][0], select.EPOLLIN) in polls.poll(PATIENCE_S)


def test_what_is_urgent_interrupts_a_batch(polls, open_stream):
    paced = [open_stream() for _ in range(3 * AT_A_TIME)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        polls.register(ours.fileno(), READ)
        assert polls.poll(0) == []
        for _, server in paced:
            server.sendall(END)
        time.sleep(0.1)  # all of them are readable
        batch = iter(polls.read_batched())
        found = [next(batch)]
        theirs.send(b"x")
        found += batch
        assert len(found) == AT_A_TIME
        assert polls.poll(PATIENCE_S) == [(ours.fileno(), select.EPOLLIN)]
        polls.forget(ours.fileno())
        polls.modify(ours.fileno(), 0)
        assert len(found + read_until(polls, lambda rest: len(found + rest) == len(paced))) == len(paced)


def test_a_batched_stream_waits_for_a_nap_and_an_immediate_one_for_nothing(polls, open_stream):
    stream, server = open_stream()
    server.sendall(END)
    start = time.monotonic()
    assert read_until(polls, bool)
    assert time.monotonic() - start > NAP_S / 2
    polls.to_immediate(stream, READ)
    server.sendall(END)
    assert polls.poll(PATIENCE_S) == [(stream, select.EPOLLIN)]
    assert polls.batched == set()


def test_a_stream_that_ends_before_it_is_looked_at_is_forgotten(polls, open_stream):
    (stream, server), _ = open_stream(), open_stream()
    server.sendall(END)
    time.sleep(0.1)  # it is readable
    assert polls.poll(10 * NAP_S) == []
    polls.forget(stream)
    assert list(polls.read_batched()) == []


def test_a_long_poll_ends_with_what_has_to_be_looked_at(polls, open_stream):
    """Events that are kept do not end it where it reads meanwhile; what may be an end does, and its time."""
    stream, server = open_stream()
    server.sendall(EVENT)
    read_until(polls, lambda _: polls.kept == 1)
    assert polls.poll(0.02) == []
    server.sendall(END)
    found = read_until(polls, bool)
    assert [(descriptor, what[0]) for descriptor, what in found] == [(stream, END)]
    assert polls.take(stream).data == EVENT


@pytest.fixture
def expected(polls):
    """What a stream may expect, as an answer does after its first event, and chunks of that form."""
    if not polls.is_native:
        pytest.skip("in Python all is kept as bytes")
    answer = wire_of("openai", max_new_tokens=9).answer()
    event = b'{"id":"x","choices":[{"index":0,"text":"","finish_reason":null,"token_ids":[7]}]}'
    assert answer.feed(event) is None
    assert answer.expected is not None
    event = b"data: %b\n\n" % event
    return answer.expected, b"%x\r\n%b\r\n" % (len(event), event)


def test_ids_are_kept_in_place_of_events(polls, open_stream, expected):
    stream, server = open_stream()
    polls.expect(stream, expected[0])
    for kept in (1, 2):
        server.sendall(expected[1])
        read_until(polls, lambda _: polls.kept == kept)  # noqa: B023
    assert polls.kept_tokens == 2
    ids, data, _ = polls.take(stream)
    assert (np.frombuffer(ids, "u4").tolist(), data, polls.kept_tokens) == ([7, 7], b"", 0)
    server.sendall(expected[1])
    read_until(polls, lambda _: polls.kept == 3)
    polls.to_immediate(stream, READ)
    assert polls.kept_tokens == 0


def test_what_is_kept_as_bytes_comes_before_what_is_expected(polls, open_stream, expected):
    stream, server = open_stream()
    server.sendall(expected[1])
    read_until(polls, lambda _: polls.kept == 1)
    polls.expect(stream, expected[0])
    server.sendall(expected[1])
    read_until(polls, lambda _: polls.kept == 2)
    assert polls.take(stream)[:2] == (b"", 2 * expected[1])


def test_nothing_is_expected_within_a_chunk_that_was_taken(polls, open_stream, expected):
    stream, server = open_stream()
    polls.expect(stream, expected[0])
    server.sendall(expected[1][:9])
    read_until(polls, lambda _: polls.kept == 1)
    assert polls.take(stream)[:2] == (b"", expected[1][:9])
    server.sendall(expected[1])
    read_until(polls, lambda _: polls.kept == 2)
    assert polls.take(stream)[:2] == (b"", expected[1])


@pytest.mark.parametrize("read_before", [True, False])
def test_what_has_come_before_a_stream_is_batched_again_is_read(polls, open_stream, read_before):
    stream, server = open_stream()
    server.sendall(END)
    assert data_of(polls) == END
    polls.to_immediate(stream, READ)
    server.sendall(EVENT)
    if read_before:  # by a round, which leaves it alone
        open_stream()
        time.sleep(0.05)
        assert list(polls.read_batched()) == []
    transport = open_stream.transports[stream]
    polls.to_batched(stream, READ, transport, time.monotonic_ns(), holds=True)
    read_until(polls, lambda _: polls.kept == 1)
    assert polls.take(stream).data == EVENT


def test_more_than_one_read_takes_is_read_without_more_coming(polls, open_stream):
    _, server = open_stream(holds=False)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * RECEIVE_BYTES)
    data = b"x" * (3 * RECEIVE_BYTES)
    sender = threading.Thread(target=server.sendall, args=(data,))
    sender.start()
    found = read_until(polls, lambda found: sum(len(what[0]) for _, what in found) == len(data))
    sender.join()
    assert len(found) >= 3


def test_an_end_that_is_not_handled_is_reported_again(polls, open_stream):
    stream, server = open_stream()
    server.shutdown(socket.SHUT_WR)
    for _ in range(3):
        [(descriptor, mask)] = read_until(polls, bool)
        assert descriptor == stream
        assert mask & select.EPOLLRDHUP


def test_another_mask_is_kept_in_the_batched_set(polls, open_stream):
    stream, _ = open_stream()
    polls.modify(stream, READ | select.EPOLLOUT)
    assert (stream, select.EPOLLOUT) in read_until(polls, bool)


def test_without_a_compiler_the_reason_is_given(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "no-such-compiler")
    # One that is there needs none: as user of another's checkout setup.sh named what to install.
    assert bool(native_streams.compile_library()) is (native_streams.library() is None)
    monkeypatch.setattr(native_streams.sys, "prefix", str(tmp_path))
    native_streams.library.cache_clear()
    assert "no-such-compiler" in native_streams.compile_library()
    assert not list(tmp_path.glob("share/*"))
    assert native_streams.library() is None
    native_streams.library.cache_clear()
