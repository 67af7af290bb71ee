"""What the kernel knows of a connection, where it is counted, and addresses that give no connection."""

import socket
from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from harness.record.outcome import FailureKind
from sut.client.endpoint import AddressPair
from sut.client.network_figures import Network, TcpInfo, network_of_replicas
from sut.client.transport import GIVE_UP_S, KernelClock, PlainTransport
from tests.kit import assert_failed
from tests.stub import StubServer, refused_url
from tests.sut.driver import TIMES, assert_completed


def pair_of(url):
    host, port = url.removeprefix("http://").split(":")
    return AddressPair(socket.AF_INET, (host, int(port)))


def test_a_dead_machine_is_noticed_in_two_minutes():
    """Once 1,375 of 6,396 connections that were opened at once lost all probes: a burst is cut short."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        pair = AddressPair(socket.AF_INET, server.getsockname())
        transports = [PlainTransport(pair, KernelClock()) for _ in range(92)]
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        options = [
            [transport._socket.getsockopt(socket.IPPROTO_TCP, name) for name in names]
            for transport in transports
        ]
        for transport in transports:
            transport.close()
    # With a user timeout the first unanswered probe after it ends the connection: all probes come before.
    for idle, interval, count, user_timeout_ms in options:
        assert user_timeout_ms == 1000 * GIVE_UP_S == 120_000
        assert idle + interval * count <= GIVE_UP_S
    assert max(Counter(idle for idle, *_ in options).values()) == 2


def test_connections_are_counted(drive):
    with StubServer() as stub:
        driver = drive(stub.url, keep_alive=False)
        for _ in range(3):
            assert_completed(driver.ask())
        (replica,) = driver.client._replicas
        figures = dict(zip(Network, replica.network, strict=True))
    assert [figures[n] for n in (Network.CONNECTS, Network.WAITED, Network.MEASURED)] == [3, 3, 3]
    assert figures[Network.SENT] >= 3 and figures[Network.RECEIVED] >= 3
    assert 0 < figures[Network.CONNECT_MAX_NS] <= figures[Network.CONNECT_NS] <= figures[Network.WAITED_NS]
    assert 0 < figures[Network.MIN_RTT_US] <= figures[Network.RTT_US]


@pytest.mark.parametrize("dead", [1, 3])
def test_another_address_is_used(drive, dead):
    """The request goes on to the next address, whichever comes first, and the dead ones are named once."""
    with StubServer() as stub, refused_url() as first, refused_url() as second, refused_url() as third:
        driver = drive(stub.url)
        named = []
        driver.client._on_lost_address = named.append
        (replica,) = driver.client._replicas
        refusing = tuple(map(pair_of, (first, second, third)))[:dead]
        replica.endpoint = replace(replica.endpoint, pairs=(*refusing, pair_of(stub.url)))
        driver.client.trust(0)
        driver.client.warm(dead)
        for _ in range(4):
            assert_completed(driver.ask())
        assert replica.pairs == (pair_of(stub.url),)
        assert len(named) == dead and all(stub.url in text for text in named)
        assert replica.network[Network.FAILED_CONNECTS] >= dead
        assert not driver.suspects
        driver.client.trust(0)  # its health was checked: the addresses may be back
        assert len(replica.pairs) == dead + 1


def test_the_last_address_fails(drive):
    with refused_url() as first, refused_url() as last:
        driver = drive(first)
        driver.client._replicas[0].pairs = (pair_of(first), pair_of(last))
        assert_failed(driver.ask(), FailureKind.CONNECT, "Connection refused")
        assert driver.suspects == [0]


def test_an_address_that_does_not_answer_is_left_early(drive):
    """A full backlog swallows SYNs, as a dead machine does."""
    with StubServer() as stub, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with socket.create_connection(deaf.getsockname()):
            driver = drive(stub.url, times=replace(TIMES, next_address_ns=100_000_000))
            driver.client._replicas[0].pairs = (pair_of(url), pair_of(stub.url))
            for _ in range(2):
                assert_completed(driver.ask())
            assert driver.client._replicas[0].pairs == (pair_of(stub.url),)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (TcpInfo(0, 40, 40, 9, 3, 9, 0), ""),  # all is acknowledged: the server's turn
        (TcpInfo(2, 40, 40, 9, 0, 9, 0), ""),  # just sent
        (TcpInfo(2, 40, 40, 9, 3, 9, 0), "3 segments sent again without an acknowledgement"),
        (TcpInfo(0, 40, 40, 9, 0, 9, 5), "5 segments arrived after a missing one"),
        (TcpInfo.of(b""), ""),
    ],
)
def test_evidence(info, words):
    assert words in info.evidence() and bool(words) == bool(info.evidence())


def test_an_older_kernel_has_fewer_fields():
    info = TcpInfo.of(b"\x01" * 104)
    assert info.rtt_us == info.retransmitted == 0x01010101
    assert (info.min_rtt_us, info.sent, info.received, info.gaps) == (0, 0, 0, 0)


def test_workers_are_added_up():
    values = np.zeros((2, 3, len(Network)), dtype=np.int64)
    values[:, 0, Network.CONNECTS] = 2, 4
    values[:, 0, Network.CONNECT_NS] = 20_000, 100_499
    values[:, 0, Network.CONNECT_MAX_NS] = 15_000, 60_001
    values[:, 0, Network.WAITED] = 3, 0
    values[:, 0, Network.WAITED_NS] = 10_000, 0
    values[:, 0, Network.MEASURED] = 2, 4
    values[:, 0, Network.RTT_US] = 200, 400
    values[:, 0, Network.MIN_RTT_US] = 80, 70
    values[1, 1, Network.MEASURED], values[1, 1, Network.MIN_RTT_US] = 1, 50
    values[:, 2, Network.RETRANSMITTED] = 1, 2
    first, second, third = network_of_replicas(values)
    assert (first.connects, first.connect_mean_ns, first.connect_max_ns) == (6, 20_000, 60_000)
    assert (first.rtt_mean_ns, first.rtt_min_ns, second.rtt_min_ns) == (100_000, 70_000, 50_000)
    assert first.waited_mean_ns == 3000
    assert (third.retransmitted, third.rtt_min_ns, third.connect_mean_ns) == (3, None, None)
