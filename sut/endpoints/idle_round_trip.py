"""The network between this client and its servers without load: round trips of a small request."""

import http.client
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import numpy as np

from harness.analysis.statistics import percentile
from harness.endpoints.point_run import IdleRoundTrip
from sut.client.endpoint import Endpoint

# Every server of ours has it and answers from memory; SGLang's /health may generate a token.
_PATH = "/v1/models"
_ASKED = 20  # round trips to each server, after a first one that does not count
_MOST_SERVERS = 16
_SERVER_S, _ANSWER_S = 2.0, 1.0  # for all of a server's, and for one


def idle_round_trip(endpoints: Sequence[Endpoint]) -> IdleRoundTrip | None:
    """Round trips on a connection that is kept, to each of the first servers; None where none answers so."""
    times: list[int] = []
    for endpoint in endpoints[:_MOST_SERVERS]:
        with suppress(OSError, http.client.HTTPException):
            times += _round_trips(endpoint)
    if not times:
        return None
    values = np.array(times)
    return IdleRoundTrip(count=len(times), min_ns=int(values.min()), p50_ns=int(percentile(values, 0.5)))


def _round_trips(endpoint: Endpoint) -> Iterator[int]:
    """ns of each; any HTTP answer ends one. Raises OSError and HTTPException where the connection ends."""
    place, headers = urlsplit(endpoint.url), endpoint.access.headers
    connection = http.client.HTTPConnection(place.netloc)
    connection.auto_open = 0  # a round trip that opens a connection is another quantity
    connection.sock = _connected(endpoint)
    try:
        until = time.monotonic() + _SERVER_S
        for number in range(_ASKED + 1):
            began_ns = time.monotonic_ns()
            connection.request("GET", place.path.rstrip("/") + _PATH, headers=headers)
            connection.getresponse().read()
            if number:
                yield time.monotonic_ns() - began_ns
            if time.monotonic() > until:
                return
    finally:
        connection.close()


def _connected(endpoint: Endpoint) -> socket.socket:
    plain = socket.create_connection(endpoint.pairs[0].address, timeout=_ANSWER_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not endpoint.tls:
        return plain
    return endpoint.access.tls_context().wrap_socket(plain, server_hostname=endpoint.host)
