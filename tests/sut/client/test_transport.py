"""Sockets against real peers: arrival stamps of the kernel, partial sends, ends, and TLS."""

import select
import socket
import ssl
import time
from contextlib import ExitStack

import pytest

from sut.client.endpoint import AddressPair
from sut.client.transport import LATE_NS, KernelClock, PlainTransport, TlsTransport, realtime_offset_ns
from tests.kit import PATIENCE_S, connected

BUSY_NS = 20_000_000  # the clocks' offset as a busy machine reads it; a step is seconds
SLACK_NS = 200_000  # the two clocks are read one after the other; see realtime_offset_ns


def received(transport):
    select.select([transport.fileno()], [], [], PATIENCE_S)
    return transport.receive()


@pytest.mark.parametrize(("gaps", "trusted"), [(0, True), (1, False)])
def test_a_stamp_may_be_of_a_segment_that_waited_for_a_lost_one(monkeypatch, gaps, trusted):
    with connected() as (transport, server):
        monkeypatch.setattr(PlainTransport, "info", lambda transport: bytes(224) + gaps.to_bytes(8, "little"))
        server.sendall(b"late")
        select.select([transport.fileno()], [], [], PATIENCE_S)
        time.sleep(2 * LATE_NS / 1e9)
        before_ns = time.monotonic_ns()
        data, arrived_ns = received(transport)
        assert (data, transport.complete_ns(arrived_ns) < before_ns) == (b"late", trusted)


@pytest.mark.parametrize(("delay_s", "times"), [(0, 20), (0.2, 2)])
def test_arrival_lies_between_the_send_and_the_read(delay_s, times):
    """Also when the client is busy elsewhere while the bytes arrive."""
    arrivals = []
    with connected() as (transport, server):
        for _ in range(times):
            before = time.monotonic_ns()
            server.send(b"x")
            select.select([transport.fileno()], [], [], PATIENCE_S)
            there = time.monotonic_ns()
            time.sleep(delay_s)
            data, arrived = received(transport)
            assert data == b"x"
            # Nothing of the pause may be in the stamp.
            latest = there if delay_s else time.monotonic_ns()
            assert before - SLACK_NS <= arrived <= latest + SLACK_NS
            arrivals.append(arrived)
    assert arrivals == sorted(arrivals)


def test_offset_between_the_clocks():
    """The best of many readings: between two of them this process may stand still."""
    offset = realtime_offset_ns()
    assert min(abs(time.time_ns() - time.monotonic_ns() - offset) for _ in range(50)) < 10_000_000
    assert min(abs(realtime_offset_ns() - offset) for _ in range(50)) < SLACK_NS


def test_a_stepped_wall_clock_is_noticed_and_followed(monkeypatch):
    clock = KernelClock()
    before = clock.offset_ns
    clock.refresh()
    assert clock.steps_ns == 0
    wall = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall() + 3_000_000_000)
    clock.refresh()
    assert clock.offset_ns - before == pytest.approx(3e9, abs=1e7)
    assert clock.steps_ns == pytest.approx(3e9, abs=1e7)


def test_partial_sends_of_several_buffers():
    with connected() as (transport, server):
        buffers = [b"head\r\n", memoryview(b"x" * 8_000_000)]
        sent = transport.send(buffers)
        assert 0 < sent < 8_000_006
        assert transport.send([memoryview(b"y")]) in (0, 1)
        got = 0
        while got < sent:
            got += len(server.recv(1 << 20))


def test_tls_can_begin_while_the_connection_is_being_made():
    """As to any server that is not on this machine: a full backlog leaves it waiting for its handshake."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as fillers:
        for _ in range(3):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        time.sleep(0.05)
        pair = AddressPair(socket.AF_INET, listener.getsockname())
        transport = TlsTransport(pair, ssl.create_default_context(), "localhost")
        assert not transport.ready()
        transport.close()


@pytest.mark.parametrize("step_s", [-3600, -2, 2, 3600])
def test_a_step_of_the_wall_clock_is_in_no_stamp(step_s):
    """The stamps that come before the clock is looked at again are the moment of the read."""
    with connected() as (transport, server):
        transport._clock.offset_ns += step_s * 10**9  # as if the wall clock had been set since
        for _ in range(10):
            before = time.monotonic_ns()
            server.send(b"x")
            _, arrived = received(transport)
            time.sleep(0.002)
            assert before - BUSY_NS <= arrived <= time.monotonic_ns() + BUSY_NS
        assert transport._clock.steps_ns >= abs(step_s) * 9 * 10**8
