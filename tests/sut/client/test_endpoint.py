"""Where a URL leads: addresses, pairs of source and destination, and the head of every request."""

import errno
import itertools
import socket

import psutil
import pytest
from msgspec.structs import replace

from harness.errors import ServerError
from sut.client import endpoint as endpoints
from sut.client.connections import ReplicaPool
from sut.client.endpoint import (
    Access,
    AddressPair,
    answering,
    interface_addresses,
    ipv6,
    is_own_address,
    is_own_host,
    moved,
    reachable,
    resolve,
    resolve_endpoint,
    sources,
    with_source_addresses,
)
from sut.client.transport import KernelClock, PlainTransport
from sut.processes.machine_limits import MachineLimits
from sut.supervisor.connection_limits import ConnectionLimits, with_enough_sources
from tests.stub import refused_url

LOOPBACK = AddressPair(socket.AF_INET, ("127.0.0.1", 30000))


@pytest.fixture
def listener():
    with socket.create_server(("0.0.0.0", 0), backlog=256) as server:
        yield server


def local(listener, address="127.0.0.1", source=""):
    return AddressPair(socket.AF_INET, (address, listener.getsockname()[1]), source)


def test_an_address_without_a_way_has_the_kernels_source_alone(monkeypatch):
    monkeypatch.setattr(endpoints, "_kernels_choice", lambda route: None)
    assert sources(LOOPBACK) == ("",)


def test_sources_of_a_real_interface_are_its_other_addresses(monkeypatch):
    known = [("lo", "127.0.0.1"), ("eth0", "10.0.0.5"), ("eth1", "10.9.0.5"), ("eth0", "10.0.0.6")]
    monkeypatch.setattr(endpoints, "_kernels_choice", lambda route: "10.0.0.5")
    monkeypatch.setattr(endpoints, "interface_addresses", lambda family: known)
    assert sources(AddressPair(socket.AF_INET, ("10.0.0.9", 1))) == ("", "10.0.0.6")


def test_interface_addresses_are_this_machines():
    assert ("lo", "127.0.0.1") in interface_addresses(socket.AF_INET)
    for family in (socket.AF_INET, socket.AF_INET6):
        assert all(is_own_address(family, address) for _, address in interface_addresses(family))


def test_the_kernels_list_of_ipv6_addresses():
    text = (
        "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fd000000000000000000000000000002 04 40 00 82     eth0\n"
    )
    assert list(ipv6(text)) == [("eth0", "fd00::2")]
    assert not list(ipv6("not known\n"))


def test_a_name_with_several_addresses_gives_those_that_answer(listener, monkeypatch):
    port = listener.getsockname()[1]
    with refused_url() as url:
        places = [("127.0.0.1", int(url.rpartition(":")[2]))]
        places += [(address, port) for address in ("127.0.0.2", "127.0.0.3", "127.0.0.2")]
        found = [(socket.AF_INET, 0, 0, "", place) for place in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        endpoint = resolve_endpoint(f"http://replica:{port}", "/generate", Access())
        assert endpoint.pairs == (local(listener, "127.0.0.2"), local(listener, "127.0.0.3"))
        assert endpoint.silent == ("127.0.0.1",)
        limits = limits_of(MachineLimits(20_000, None, 4096), url=endpoint.url)
        warning, several = limits.warnings(1, all_at_once=False)
        assert "127.0.0.1" in warning
        assert "several addresses" in several
        assert answering(resolve("replica", port)) in endpoint.pairs
        assert answering(resolve("replica", port)[:1]) is None


def test_a_name_that_has_another_address_is_followed(listener, monkeypatch):
    """As that of a pod that was replaced. A name that is not known for a while has not moved."""
    places = ["127.0.0.2"]

    def look_up(host, port, **_):
        if not places:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, 0, 0, "", (place, port)) for place in places]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    first = resolve_endpoint(f"http://pod:{listener.getsockname()[1]}/v1", "/generate", Access("key"))
    assert moved(first) is None
    places.clear()
    assert moved(first) is None
    places[:] = ["127.0.0.3", "127.0.0.4"]
    second = moved(with_enough_sources(first, 100, 50))
    assert second.places == ("127.0.0.3", "127.0.0.4")
    assert (second.head, second.url) == (first.head, first.url)
    assert moved(second) is None
    assert moved(replace(first, url=f"{first.url}#127.0.0.2")) is None  # one address of a name is a replica


def test_without_any_that_answers_all_are_kept():
    with refused_url() as url:
        pair = AddressPair(socket.AF_INET, ("127.0.0.1", int(url.rpartition(":")[2])))
        refused = (pair, replace(pair, source="127.0.1.1"))
        assert reachable(refused) == refused


def test_a_source_that_is_not_ours_is_dropped(listener):
    foreign = local(listener, source="192.0.2.1")
    assert reachable((foreign, local(listener))) == (local(listener),)
    with pytest.raises(OSError) as caught:
        PlainTransport(foreign, KernelClock())
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_destinations_take_turns(listener):
    both = (local(listener, "127.0.0.2"), local(listener, "127.0.0.3"))
    assert with_source_addresses(both, 2) == both
    assert [(route.address[0], route.source) for route in with_source_addresses(both, 3)] == [
        ("127.0.0.2", ""),
        ("127.0.0.3", ""),
        ("127.0.0.2", "127.0.1.1"),
        ("127.0.0.3", "127.0.1.1"),
    ]


@pytest.mark.parametrize(
    ("connections", "ports", "pairs"),
    [(1000, None, 1), (14_116, 14_116, 1), (14_117, 14_116, 2), (62_000, 14_116, 5), (62_000, 62, 64)],
)
def test_as_many_pairs_as_connections_need(listener, connections, ports, pairs):
    endpoint = resolve_endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", "/", Access())
    assert len(with_enough_sources(endpoint, connections, ports).pairs) == pairs


def test_a_replicas_connections_come_from_all_sources(listener):
    endpoint = resolve_endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", "/", Access())
    replica = ReplicaPool(0, replace(endpoint, pairs=(*endpoint.pairs, local(listener, source="127.0.1.7"))))
    made = [replica.connect(KernelClock()) for _ in range(4)]
    peers = [listener.accept() for _ in made]
    assert sorted(address[0] for _, address in peers) == ["127.0.0.1"] * 2 + ["127.0.1.7"] * 2
    for ours, (theirs, _) in itertools.zip_longest(made, peers):
        ours.transport.close()
        theirs.close()


# -- limits of connections


def limits_of(limits, workers=2, url="http://127.0.0.1:1"):
    return ConnectionLimits(limits, workers, (url,))


def test_limits_count_pairs_of_addresses():
    assert limits_of(MachineLimits(1_000_000, 14_116)).max_connections == 64 * 14_116
    assert limits_of(MachineLimits(20_000, 14_116)).max_connections == 2 * (20_000 - 64)


@pytest.mark.parametrize(
    ("limits", "expected", "all_at_once", "words"),
    [
        (MachineLimits(1_000_000, 14_116, 4096), 60_000, True, []),
        (MachineLimits(1_000_000, 14_116, 128), 60_000, True, ["up to 512 connections are opened at once"]),
        (MachineLimits(1_000_000, 14_116, 128), 60_000, False, []),  # two workers warm 64 each
        (MachineLimits(1_000_000, 14_116, 100), 60_000, False, ["up to 128 connections"]),
        (MachineLimits(1_000_000, 14_116, 128), 100, True, []),
        (MachineLimits(20_000, 100, 4096), 60_000, True, ["open files", "938 connections between two"]),
    ],
)
def test_warnings(limits, expected, all_at_once, words):
    found = list(limits_of(limits).warnings(expected, all_at_once=all_at_once))
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("places", "told"),
    [
        (("192.0.2.1",), False),
        (("::1", "127.0.0.1"), False),  # localhost
        (("192.0.2.1", "192.0.2.2", "2001:db8::1"), True),
        (("2001:db8::1", "2001:db8::2"), True),
    ],
)
def test_a_name_with_several_addresses_counts_as_one_server(monkeypatch, places, told):
    """Each may be a server: a headless service of Kubernetes has those of its pods."""
    families = {True: socket.AF_INET6, False: socket.AF_INET}
    found = [(families[":" in place], 0, 0, "", (place, 1)) for place in places]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(endpoints, "reachable", tuple)
    one = limits_of(MachineLimits(1_000_000, None, 4096), url="http://llm:1")
    lines = [line for line in one.warnings(9, all_at_once=True) if "count as one server" in line]
    assert [line.endswith("use dns+http://llm:1") for line in lines] == [True] * told


def test_the_backlog_of_another_host_is_not_ours():
    one = limits_of(MachineLimits(20_000, None, 1), url="http://192.0.2.1:1")
    assert list(one.warnings(9, all_at_once=True)) == []


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        *(
            (one.address, True)
            for one in itertools.chain(*psutil.net_if_addrs().values())
            if one.family == socket.AF_INET
        ),
        ("192.0.2.1", False),  # TEST-NET-1: nobody's
        ("no-such-host.invalid", False),
    ],
)
def test_own_hosts(host, own):
    assert is_own_host(host) == own


@pytest.mark.parametrize(
    ("url", "address", "tls", "line", "host"),
    [
        ("http://127.0.0.1:30000", ("127.0.0.1", 30000), False, "/generate", "127.0.0.1:30000"),
        ("http://127.0.0.1", ("127.0.0.1", 80), False, "/generate", "127.0.0.1"),
        ("https://127.0.0.1", ("127.0.0.1", 443), True, "/generate", "127.0.0.1"),
        ("https://127.0.0.1:8443", ("127.0.0.1", 8443), True, "/generate", "127.0.0.1:8443"),
        ("http://127.0.0.1:1/node3", ("127.0.0.1", 1), False, "/node3/generate", "127.0.0.1:1"),
        ("http://[::1]:30000", ("::1", 30000), False, "/generate", "[::1]:30000"),
    ],
)
def test_urls(url, address, tls, line, host):
    endpoint = resolve_endpoint(url, "/generate", Access())
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    assert (endpoint.pairs, endpoint.tls) == ((AddressPair(family, address),), tls)
    first, *headers = endpoint.head.decode().split("\r\n")
    assert first == f"POST {line} HTTP/1.1"
    assert headers == [f"Host: {host}", "Content-Type: application/json", ""]


def test_a_name_that_does_not_resolve():
    with pytest.raises(ServerError, match=r"'no-such-host\.invalid'.*--server-url"):
        resolve_endpoint("http://no-such-host.invalid:30000", "/generate", Access())
