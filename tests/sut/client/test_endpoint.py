"""Where a URL leads, and the head of every request to it."""

import logging
import socket

import pytest

from harness.errors import ServerError
from sut.client.endpoint import AddressPair, resolve_endpoint

KEY = "sk-very-secret"


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
    endpoint = resolve_endpoint(url, "/generate", None)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    assert (endpoint.pairs, endpoint.tls) == ((AddressPair(family, address),), tls)
    first, *headers = endpoint.head.decode().split("\r\n")
    assert first == f"POST {line} HTTP/1.1"
    assert headers == [f"Host: {host}", "Content-Type: application/json", ""]


def test_localhost_resolves_to_loopback():
    assert {
        route.address[0] for route in resolve_endpoint("http://localhost:30000", "/generate", None).pairs
    } <= {"127.0.0.1", "::1"}


def test_the_key_is_a_bearer_header_and_nowhere_else(caplog):
    endpoint = resolve_endpoint("http://127.0.0.1:1", "/generate", KEY)
    assert f"\r\nAuthorization: Bearer {KEY}\r\n".encode() in endpoint.head
    logging.getLogger("x").warning("%s %r", endpoint, [endpoint])
    assert "127.0.0.1" in caplog.text
    for text in (str(endpoint), repr(endpoint), f"{[endpoint]}", caplog.text):
        assert KEY not in text


def test_a_name_that_does_not_resolve():
    with pytest.raises(ServerError, match=r"cannot resolve 'no-such-host\.invalid'.*--server-url"):
        resolve_endpoint("http://no-such-host.invalid:30000", "/generate", None)
