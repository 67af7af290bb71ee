"""One URL for each replica: names with several addresses, and servers that are named twice."""

import itertools
import socket

import pytest

from harness.config.server_urls import parse_server_urls
from harness.errors import ConfigError, ServerError
from sut.client.endpoint import Access, resolve_endpoint
from sut.servers import discovery, naming
from sut.servers.discovery import discover
from sut.servers.info_client import NotReadyError
from sut.servers.naming import DuplicateError, any_is_here, check_enough, replicas_of
from sut.servers.preflight import Preflight
from tests.kit import PATIENCE_S, VOCABULARY
from tests.stub import StubServer
from tests.sut.pages import PARAMETERS, facts, find

ADDRESSES = {
    "llm": ["10.0.0.1", "10.0.0.2"],
    "dual": ["10.0.0.5", "fd00::5", "10.0.0.6"],
    "node1": ["10.0.1.1"],
    "node1.cluster": ["10.0.1.1"],
    "web1": ["10.0.2.1"],
    "web2": ["10.0.2.1"],
    "localhost": ["::1", "127.0.0.1"],
}


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """A resolver that knows ``ADDRESSES`` and no other name."""
    real = socket.getaddrinfo

    def resolve(host, port, *args, **options):
        if host.replace(".", "").isdecimal() or ":" in host:
            return real(host, port, *args, **options)
        if host not in ADDRESSES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        kinds = [(socket.AF_INET6 if ":" in one else socket.AF_INET, one) for one in ADDRESSES[host]]
        return [(kind, socket.SOCK_STREAM, 6, "", (address, port)) for kind, address in kinds]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


# Named, used, faults and warnings.
REPLICAS = [
    ("http://a:1,http://b:1", ["http://a:1", "http://b:1"], 0, ""),  # unknown names are found out when asked
    ("dns+http://llm:8", ["http://llm:8#10.0.0.1", "http://llm:8#10.0.0.2"], 0, ""),
    ("dns+https://llm:8-9", [f"https://llm:{p}#10.0.0.{n}" for p in (8, 9) for n in (1, 2)], 0, ""),
    ("dns+http://llm:8,http://10.0.0.2:8", ["http://llm:8#10.0.0.1", "http://llm:8#10.0.0.2"], 1, ""),
    ("http://llm:8,http://10.0.0.2:8", ["http://llm:8"], 1, ""),
    ("http://llm:8,http://10.0.0.2:9", ["http://llm:8", "http://10.0.0.2:9"], 0, ""),
    ("http://a:1,http://a:1", ["http://a:1"], 1, ""),
    ("http://a:1,http://b:2,http://A:1/", ["http://a:1", "http://b:2"], 1, ""),
    ("http://a,http://a:80", ["http://a"], 1, ""),
    ("https://a,https://a:443", ["https://a"], 1, ""),
    ("http://a/1,http://a/2", ["http://a/1", "http://a/2"], 0, ""),
    ("http://localhost:1,http://127.0.0.1:1", ["http://localhost:1"], 1, ""),
    ("http://node1:1,http://node1.cluster:1", ["http://node1:1"], 1, ""),
    ("http://10.0.1.1:1,http://node1.cluster:1", ["http://10.0.1.1:1"], 1, ""),
    # Behind one proxy, perhaps.
    ("http://web1:1,http://web2:1", ["http://web1:1", "http://web2:1"], 0, "1 of 2 servers have the address"),
    (
        "dns+http://dual:1",
        [f"http://dual:1#{address}" for address in ADDRESSES["dual"]],
        0,
        "2 IPv4 and 1 IPv6 addresses",
    ),
]


@pytest.mark.parametrize(("text", "urls", "twice", "warning"), REPLICAS)
def test_replicas(text, urls, twice, warning):
    found = replicas_of(parse_server_urls([text]))
    assert list(found.urls) == urls
    assert [type(error) for _, error in found.faults] == [DuplicateError] * twice
    assert (len(found.warnings), warning in "".join(found.warnings)) == (bool(warning), True)


def test_a_name_that_nobody_knows():
    found = replicas_of(["dns+http://nobody:1"])
    assert found.urls == ()
    ((url, error),) = found.faults
    assert url == "dns+http://nobody:1"
    assert isinstance(error, NotReadyError) and "'nobody'" in str(error)
    with pytest.raises(NotReadyError, match="'nobody'"):
        find(["dns+http://nobody:1"])


def test_a_slow_resolver_is_named(monkeypatch):
    assert not replicas_of(["http://a:1", "http://10.0.0.9:1"]).warnings
    monkeypatch.setattr(naming, "_SLOW_S", 0.0)
    (warning,) = replicas_of(["http://llm:1", "http://10.0.0.9:1"]).warnings
    assert "s for the names of http://llm:1: " in warning


def test_a_name_that_is_known_later_is_waited_for(monkeypatch):
    """As that of a service whose first pod starts."""
    known, lookups = socket.getaddrinfo, itertools.count()

    def resolve(host, *rest, **options):
        if host == "late" and next(lookups) < 2:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known("127.0.0.1" if host == "late" else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(discovery, "_PAUSE_S", 0.01)
    with StubServer() as stub:
        late = stub.url.replace("127.0.0.1", "late")
        (found,) = find([f"dns+{late}"], wait=PATIENCE_S).found
    assert found.url == f"{late}#127.0.0.1"


def test_a_replica_at_an_address_keeps_its_name():
    endpoint = resolve_endpoint("https://llm:8/v1#10.0.0.2", "/generate", Access())
    assert (endpoint.host, endpoint.tls) == ("llm", True)
    assert [pair.address for pair in endpoint.pairs] == [("10.0.0.2", 8)]
    assert endpoint.head.startswith(b"POST /v1/generate HTTP/1.1\r\nHost: llm:8\r\n")


def test_questions_to_a_replica_at_an_address_have_its_name():
    with StubServer() as stub:
        url = f"http://nobody:{stub.port}#127.0.0.1"
        assert [fact.url for fact in find([url]).found] == [url]


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("http://localhost:1", True),
        ("dns+http://localhost:1", True),
        ("http://llm:1#127.0.0.1", True),
        ("http://llm:1,http://web1:1,http://nobody:1", False),
    ],
)
def test_servers_of_this_machine(text, here):
    assert any_is_here(parse_server_urls([text])) is here


def test_a_name_is_looked_up_once_for_where_its_server_is(monkeypatch):
    """Workers and GPUs of a run each asked the resolver, whose answer may take ten seconds."""
    asked = []
    monkeypatch.setattr(naming, "is_own_host", asked.append)
    urls = parse_server_urls(["http://asked-once:1"])
    assert not any_is_here(urls) and not any_is_here(urls)
    assert asked == ["asked-once"]


def test_more_replicas_are_asked_for_than_named():
    check_enough(2, ["a", "b"])
    for urls, named in ((["a", "b"], "2 replicas"), (["a"], "1 replica")):
        with pytest.raises(ConfigError, match=f"--min-replicas is 3, --server-url names {named};"):
            check_enough(3, urls)


def test_the_certificate_of_a_replica_at_an_address_is_that_of_its_name(tls, certificate):
    cert = certificate[0]
    with StubServer(tls=tls) as stub:
        good, bad = (f"https://{name}:{stub.port}#127.0.0.1" for name in ("llm.test", "other.test"))
        assert discover([good], "sglang", Access(ca_file=cert), 20)[0].url == good
        with pytest.raises(ServerError, match=r"Hostname mismatch.*--server-url"):
            discover([bad], "sglang", Access(ca_file=cert), 20)
        endpoint = [resolve_endpoint(url, "/generate", Access(ca_file=cert)) for url in (good, bad)]
        trials = Preflight(facts(good), PARAMETERS, VOCABULARY, 20).try_all(
            endpoint, b"[1]", 1, to_the_end=True
        )
    assert trials[0].error is None
    assert "Hostname mismatch" in str(trials[1].error)
