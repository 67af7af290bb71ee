"""Ways to one replica: the addresses of its name, and source addresses of this machine.

Local ports are counted for each pair of source and destination address, so a pair more is room for as many
connections again.
"""

import errno
import select
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harness.errors import ConfigError, ServerError
from sut.client.addresses import interface_addresses

_MOST_SOURCES = 64
_PROBE_S = 1.0


@dataclass(frozen=True, slots=True)
class Route:
    """One pair of addresses; ``source`` "" leaves the choice to the kernel."""

    family: int
    address: tuple[str, int]
    source: str = ""


def resolve(host: str, port: int) -> tuple[Route, ...]:
    """A route for each address of a name, in the resolver's order. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    routes = (Route(int(family), (str(place[0]), int(place[1]))) for family, _, _, _, place in found)
    return reachable(tuple(dict.fromkeys(routes)))


def spread(routes: Sequence[Route], pairs: int) -> tuple[Route, ...]:
    """At least ``pairs`` routes, by further source addresses, or as many as work; destinations take turns."""
    each = -(-pairs // len(routes))
    if each <= 1:
        return tuple(routes)
    wider = [[Route(r.family, r.address, source) for source in sources(r)[:each]] for r in routes]
    turns = (row[turn] for turn in range(each) for row in wider if turn < len(row))
    return reachable(tuple(turns))


def most_pairs(routes: Iterable[Route]) -> int:
    """How many pairs of addresses ``spread`` can find."""
    return sum(len(sources(route)) for route in routes)


def sources(route: Route) -> tuple[str, ...]:
    """Addresses that may stand as source: the kernel's choice ("") and others of the same interface."""
    chosen = _kernels_choice(route)
    if chosen is None:
        return ("",)
    if route.family == socket.AF_INET and chosen.startswith("127."):
        return ("", *(f"127.0.1.{last}" for last in range(1, _MOST_SOURCES)))
    known = interface_addresses(route.family)
    names = {name for name, address in known if address == chosen}
    others = (address for name, address in known if name in names and address != chosen)
    return ("", *others)[:_MOST_SOURCES]


def reachable(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """Those that accept a connection within a second; a single one is not asked. All of them when none does:
    then the trial request says why.
    """
    if len(routes) < 2:
        return routes
    waiting = {connecting.fileno(): (connecting, route) for route in routes if (connecting := _begin(route))}
    working = set(_accepted(waiting))
    for connecting, _ in waiting.values():
        connecting.close()
    return tuple(route for route in routes if route in working) or routes


def _begin(route: Route) -> socket.socket | None:
    connecting = socket.socket(route.family, socket.SOCK_STREAM)
    connecting.setblocking(False)
    try:
        if route.source:
            connecting.bind((route.source, 0))
        code = connecting.connect_ex(route.address)
    except OSError as error:
        code = error.errno or errno.EINVAL
    if code in (0, errno.EINPROGRESS):
        return connecting
    connecting.close()
    return None


def _accepted(waiting: dict[int, tuple[socket.socket, Route]]) -> Iterator[Route]:
    poll = select.epoll()
    for descriptor in waiting:
        poll.register(descriptor, select.EPOLLOUT | select.EPOLLONESHOT)
    left, until = len(waiting), time.monotonic() + _PROBE_S
    while left and (patience := until - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(patience):
            left -= 1
            connecting, route = waiting[descriptor]
            if not connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                yield route
    poll.close()


def _kernels_choice(route: Route) -> str | None:
    """The source that the kernel takes for a destination; a UDP connect sends nothing."""
    with socket.socket(route.family, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(route.address)
        return str(probe.getsockname()[0])
    return None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One replica, resolved. Its connections take turns on ``routes``.

    ``head`` is the start of every request to it and may hold the API key. ``ca_file``: see tls_context.
    """

    url: str
    host: str
    routes: tuple[Route, ...]
    tls: bool
    head: bytes
    keep_alive: bool = True
    ca_file: Path | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.url})"


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Trusts the system's certificates (SSL_CERT_FILE replaces them) and those of ``ca_file``, PEM.

    Raises ConfigError.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # ssl.SSLError is one
            reason = error.strerror or "no certificate in it"
            raise ConfigError(
                f"--ca-file {ca_file}: {reason}, expected certificates in PEM format; name the file of the CA"
            ) from None
    return context


def resolve_endpoint(url: str, path: str, api_key: str | None, ca_file: Path | None = None) -> Endpoint:
    """Look the host up. Raises ServerError when the name does not resolve."""
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    try:
        routes = resolve(host, port)
    except OSError as error:
        raise ServerError(
            f"{url}: cannot resolve {host!r}: {error.strerror or error}; check --server-url"
        ) from None
    head = f"POST {parts.path}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    if api_key:
        head += f"Authorization: Bearer {api_key}\r\n"
    return Endpoint(url, host, routes, tls, head.encode(), ca_file=ca_file)
