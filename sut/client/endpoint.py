"""Ways to one replica: key and certificates, the addresses of its name, source addresses of this machine.

Local ports are counted for each pair of source and destination address, so each further pair allows as
many connections again.
"""

import errno
import fcntl
import ipaddress
import os
import re
import select
import socket
import ssl
import struct
import time
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from harness.api_key import api_key
from harness.config.server_urls import default_port, split_address
from harness.errors import ConfigError, ServerError
from harness.machine import text_of

_SIOCGIFCONF = 0x8912  # asm-generic/sockios.h
_IFREQ = struct.Struct("16s4x4s16x")  # name and sockaddr_in of a struct ifreq, 64 bits
_MOST_ADDRESSES = 1024
_IF_INET6 = Path("/proc/net/if_inet6")
# Address, number, prefix, scope, flags, name.
_IF_INET6_ROW = r"^([0-9a-f]{32}) \S+ \S+ ([0-9a-f]{2}) \S+ +(\S+)$"
_GLOBAL_SCOPE = "00"
_MOST_SOURCES = 64
_PROBE_S = 1.0
_MOST_LOOKUPS = 128


class Access(msgspec.Struct, frozen=True):
    """The API key, and the certificates that are trusted besides the system's."""

    api_key: str | None = None
    ca_file: Path | None = None

    def __repr__(self) -> str:
        """Without the key."""
        return f"Access(ca_file={self.ca_file})"

    @property
    def headers(self) -> dict[str, str]:
        """Those of a request that carry the key."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def tls_context(self) -> ssl.SSLContext:
        """Trusts the system's certificates (SSL_CERT_FILE replaces them) and those of ``ca_file``, PEM.

        Replicas and clients share one: each would take 30 to 100 ms and 0.9 MB. Raises ConfigError.
        """
        return _tls_context(self.ca_file, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))


@lru_cache(maxsize=4)
def _tls_context(ca_file: Path | None, *_: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])  # httpx sets it in any case, and the request path is the same
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(
                f"--ca-file {ca_file}: {error.strerror or 'no certificate in it'}, expected "
                "certificates in PEM format; name the file of the CA"
            ) from None
    return context


def access_by(ca_file: Path | None) -> Access:
    """That of this process: the key of its environment, and --ca-file. Raises ConfigError."""
    return Access(api_key(), ca_file)


class AddressPair(msgspec.Struct, frozen=True):
    """One pair of addresses."""

    family: int
    address: tuple[str, int]
    """Destination address and port."""
    source: str = ""
    """Source address; "" leaves the choice to the kernel."""


def resolve(host: str, port: int) -> tuple[AddressPair, ...]:
    """A pair for each address of a name, in the resolver's order. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    pairs = (AddressPair(int(family), (str(place[0]), int(place[1]))) for family, _, _, _, place in found)
    return tuple(dict.fromkeys(pairs))


def with_source_addresses(pairs: Sequence[AddressPair], count: int) -> tuple[AddressPair, ...]:
    """At least ``count`` pairs, by further source addresses, or as many as work; destinations alternate."""
    each = -(-count // len(pairs))
    if each <= 1:
        return tuple(pairs)
    wider = [[AddressPair(r.family, r.address, source) for source in sources(r)[:each]] for r in pairs]
    turns = (row[turn] for turn in range(each) for row in wider if turn < len(row))
    return reachable(tuple(turns))


def most_pairs(pairs: Iterable[AddressPair]) -> int:
    """The number of pairs of addresses that ``with_source_addresses`` can find."""
    return sum(len(sources(pair)) for pair in pairs)


def sources(pair: AddressPair) -> tuple[str, ...]:
    """Possible source addresses: the kernel's choice ("") and others of the same interface."""
    chosen = _kernels_choice(pair)
    if chosen is None:
        return ("",)
    if pair.family == socket.AF_INET and chosen.startswith("127."):
        return ("", *(f"127.0.1.{last}" for last in range(1, _MOST_SOURCES)))
    known = interface_addresses(pair.family)
    names = {name for name, address in known if address == chosen}
    others = (address for name, address in known if name in names and address != chosen)
    return ("", *others)[:_MOST_SOURCES]


def reachable(pairs: tuple[AddressPair, ...]) -> tuple[AddressPair, ...]:
    """Pairs that accept a connection within a second; a single one is not tried. All of them if none does:
    the trial request then reports the reason.
    """
    if len(pairs) < 2:
        return pairs
    with _connecting(pairs) as accepted:
        working = set(accepted)
    return tuple(pair for pair in pairs if pair in working) or pairs


def answering(pairs: Sequence[AddressPair]) -> AddressPair | None:
    """The first pair that accepts a connection, within a second."""
    with _connecting(pairs) as accepted:
        return next(accepted, None)


@contextmanager
def _connecting(pairs: Iterable[AddressPair]) -> Iterator[Iterator[AddressPair]]:
    """Connections to all pairs at once; yields those pairs that accept, as they do, for a second."""
    waiting = {connecting.fileno(): (connecting, pair) for pair in pairs if (connecting := _begin(pair))}
    try:
        with closing(_accepted(waiting)) as accepted:
            yield accepted
    finally:
        for connecting, _ in waiting.values():
            connecting.close()


def _begin(pair: AddressPair) -> socket.socket | None:
    connecting = socket.socket(pair.family, socket.SOCK_STREAM)
    connecting.setblocking(False)
    try:
        if pair.source:
            connecting.bind((pair.source, 0))
        code = connecting.connect_ex(pair.address)
    except OSError as error:
        code = error.errno or errno.EINVAL
    if code in (0, errno.EINPROGRESS):
        return connecting
    connecting.close()
    return None


def _accepted(waiting: dict[int, tuple[socket.socket, AddressPair]]) -> Generator[AddressPair, None, None]:
    with select.epoll() as poll:
        for descriptor in waiting:
            poll.register(descriptor, select.EPOLLOUT | select.EPOLLONESHOT)
        left, until = len(waiting), time.monotonic() + _PROBE_S
        while left and (patience := until - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(patience):
                left -= 1
                connecting, pair = waiting[descriptor]
                if not connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    yield pair


def _kernels_choice(pair: AddressPair) -> str | None:
    """The source that the kernel takes for a destination; a UDP connect sends nothing."""
    with socket.socket(pair.family, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(pair.address)
        return str(probe.getsockname()[0])
    return None


class Endpoint(msgspec.Struct, frozen=True):
    """One replica, resolved."""

    url: str
    host: str
    pairs: tuple[AddressPair, ...]
    """Its connections take turns on them."""
    tls: bool
    head: bytes
    """The beginning of every request to it. It may hold the API key."""
    keep_alive: bool = True
    repeats_ids: bool = False
    """Whether its trial answer carried the request's id, so that every answer must."""
    counts_prompts: bool = False
    """Whether its trial answer counted the prompt's tokens, so that every answer must."""
    runs: int = 1
    """Requests that it runs at once, where replicas are filled in proportion; all have 1 elsewhere."""
    access: Access = Access()
    silent: tuple[str, ...] = ()
    """Addresses of its name that gave no connection."""

    @property
    def places(self) -> tuple[str, ...]:
        """The addresses that it is at, in their order."""
        return tuple(dict.fromkeys(pair.address[0] for pair in self.pairs))

    def __repr__(self) -> str:
        return f"Endpoint({self.url})"


def resolve_endpoints(urls: Sequence[str], path: str, access: Access) -> list[Endpoint]:
    """The endpoint of each URL, names looked up in parallel. Raises ServerError for one that is unknown."""
    with ThreadPoolExecutor(min(len(urls), _MOST_LOOKUPS)) as pool:
        return list(pool.map(lambda url: resolve_endpoint(url, path, access), urls))


def resolve_endpoint(url: str, path: str, access: Access) -> Endpoint:
    """Look the host up. Raises ServerError when the name does not resolve."""
    base, address = split_address(url)
    parts = urlsplit(base)
    host, tls = parts.hostname or "", parts.scheme == "https"
    try:
        found = resolve(address or host, default_port(base))
    except OSError as error:
        raise ServerError(unresolved(url, host, error)) from None
    pairs, silent = _parted(found)
    fields = {"Host": parts.netloc, "Content-Type": "application/json", **access.headers}
    lines = (f"POST {parts.path}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()))
    head = "".join(f"{line}\r\n" for line in lines).encode()
    return Endpoint(url, host, pairs, tls, head, access=access, silent=silent)


def unresolved(url: str, host: str, error: OSError) -> str:
    """The message about a name that is not known."""
    return f"{url}: cannot resolve {host!r}: {error.strerror or error}; check --server-url"


def _parted(found: tuple[AddressPair, ...]) -> tuple[tuple[AddressPair, ...], tuple[str, ...]]:
    """The reachable pairs, and the addresses of the others."""
    pairs = reachable(found)
    return pairs, tuple(pair.address[0] for pair in found if pair not in pairs)


def moved(endpoint: Endpoint) -> Endpoint | None:
    """The endpoint at the addresses that its name has now; None where they are those that it had."""
    base, address = split_address(endpoint.url)
    if address is not None:
        return None
    try:
        found = resolve(endpoint.host, default_port(base))
    except OSError:
        return None
    places = {pair.address[0] for pair in found}
    if places == {*endpoint.places, *endpoint.silent}:
        return None
    pairs, silent = _parted(found)
    return replace(endpoint, pairs=with_source_addresses(pairs, len(endpoint.pairs)), silent=silent)


# -- addresses of this machine, as Linux reports them


def is_own_host(host: str) -> bool:
    """Whether a name resolves to an address of this machine."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(is_own_address(int(family), str(address[0])) for family, _, _, _, address in found)


def is_own_address(family: int, address: str) -> bool:
    """Only an address of this machine can be bound."""
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def interface_addresses(family: int) -> list[tuple[str, str]]:
    """Interfaces with their addresses, link-local ones left out; an alias (``eth0:1``) is its interface's."""
    if family == socket.AF_INET:
        return list(_ipv4())
    return list(ipv6(text_of(_IF_INET6)))


def _ipv4() -> Iterator[tuple[str, str]]:
    buffer = array("B", bytes(_IFREQ.size * _MOST_ADDRESSES))
    address, size = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iP", size, address))
    (filled,) = struct.unpack_from("i", answer)
    for name, packed in _IFREQ.iter_unpack(buffer.tobytes()[:filled]):
        yield name.rstrip(b"\0").decode().partition(":")[0], socket.inet_ntoa(packed)


def ipv6(if_inet6: str) -> Iterator[tuple[str, str]]:
    """Names and addresses from /proc/net/if_inet6."""
    for digits, scope, name in re.findall(_IF_INET6_ROW, if_inet6, re.MULTILINE):
        if scope == _GLOBAL_SCOPE:
            yield name, str(ipaddress.IPv6Address(int(digits, 16)))
