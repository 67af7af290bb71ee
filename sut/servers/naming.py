"""Replicas by their addresses: names looked up in parallel, the same server under two names found."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from harness.config.server_urls import DNS, at_address, default_port, folded, is_address, split_address
from harness.errors import ConfigError, HarnessError, ServerError
from harness.text import counted
from sut.client.endpoint import is_own_host, resolve, unresolved
from sut.servers.info_client import Calls, NotReadyError

LOOKUP_S = 10.0
_SLOW_S = 2.0


class DuplicateError(ConfigError):
    """A URL of a server that an earlier one names."""


class Replicas(msgspec.Struct, frozen=True):
    """The replicas that URLs name."""

    urls: tuple[str, ...]
    """One for each replica."""
    faults: tuple[tuple[str, HarnessError], ...] = ()
    """URLs that name no replica, and why."""
    warnings: tuple[str, ...] = ()


def replicas_of(urls: Sequence[str]) -> Replicas:
    """Look all names up at once: ``dns+`` URLs as a replica for each address, duplicates among the faults."""
    began = time.monotonic()
    known = lookup({_host(url) for url in urls})
    slow = _slow(urls, time.monotonic() - began)
    named: list[str] = []
    faults: list[tuple[str, HarnessError]] = []
    warnings: list[str] = []
    for url in urls:
        addresses = known[_host(url)]
        if not url.startswith(DNS):
            named.append(url)
        elif isinstance(addresses, OSError):
            faults.append((url, NotReadyError(unresolved(url, _host(url), addresses))))
        else:
            named += [at_address(url.removeprefix(DNS), address) for address in addresses]
            warnings += _two_families(url, addresses)
    found = _distinct(named, known, faults)
    return replace(found, warnings=(*slow, *warnings, *found.warnings))


@cache  # a run asks for its workers and for its GPUs, and a resolver may take its time
def any_is_here(urls: tuple[str, ...]) -> bool:
    """Whether a URL leads to this machine."""
    calls = Calls(is_own_host, {split_address(url)[1] or _host(url) for url in urls})
    for _ in calls.wait(LOOKUP_S):
        if any(calls.results.values()):
            break
    return any(list(calls.results.values()))


def lookup(hosts: Iterable[str]) -> Mapping[str, tuple[str, ...] | OSError]:
    """The addresses of each name, in the resolver's order."""
    hosts = set(hosts)
    names = {host for host in hosts if not is_address(host)}
    calls = Calls(lambda host: tuple(pair.address[0] for pair in resolve(host, 0)), names)
    for _ in calls.wait(LOOKUP_S):
        pass
    late = TimeoutError(f"the resolver gave no answer within {LOOKUP_S:g} s")
    found: dict[str, tuple[str, ...] | OSError] = {host: (host,) for host in hosts - names}
    for name in names:
        error = calls.errors.get(name, late)
        found[name] = calls.results.get(name) or (
            error if isinstance(error, OSError) else OSError(str(error))
        )
    return found


def _slow(urls: Sequence[str], seconds: float) -> list[str]:
    names = [url for url in urls if not is_address(_host(url))]
    if not names or seconds < _SLOW_S:
        return []
    return [
        f"the resolver took {seconds:.1f} s for the names of {folded(names, 3)}: each check of a server that "
        "failed takes that much longer; mend /etc/resolv.conf (is its first nameserver dead?), or name the "
        "servers by address"
    ]


def _host(url: str) -> str:
    return urlsplit(split_address(url)[0]).hostname or ""


def _two_families(url: str, addresses: Sequence[str]) -> list[str]:
    six = sum(":" in address for address in addresses)
    if not 0 < six < len(addresses):
        return []
    return [
        f"{url} has {len(addresses) - six} IPv4 and {six} IPv6 addresses, each used as a separate replica; "
        "if a server has both kinds, name the addresses of one kind only"
    ]


def _distinct(
    urls: Sequence[str],
    known: Mapping[str, tuple[str, ...] | OSError],
    faults: list[tuple[str, HarnessError]],
) -> Replicas:
    """Sort out URLs of a server that an earlier one names.

    Two names with one address may be two servers behind a proxy that distinguishes names: that is a warning.
    """
    kept: list[str] = []
    shared: list[str] = []
    owners: dict[tuple[str, int, str], str] = {}
    for url in urls:
        base, address = split_address(url)
        found = (address,) if address else known[_host(base)]
        places = (_host(base),) if isinstance(found, OSError) else found
        keys = [(place, default_port(base), urlsplit(base).path) for place in places]
        earlier = next((owners[key] for key in keys if key in owners), None)
        if earlier is not None and _same_server(earlier, url):
            faults.append(
                (url, DuplicateError(f"{url}: named twice by --server-url, as {earlier}; name each once"))
            )
            continue
        if earlier is not None:
            shared.append(url)
        for key in keys:
            owners.setdefault(key, url)
        kept.append(url)
    warnings = (
        f"{len(shared)} of {len(kept)} servers have the address and port of another: {folded(shared)}; "
        "unless a proxy there distinguishes their names, they are one server",
    )
    return Replicas(tuple(kept), tuple(faults), warnings if shared else ())


def _same_server(one: str, other: str) -> bool:
    """Whether two URLs of one address cannot be two names of a proxy."""
    names = sorted((_host(one), _host(other)), key=len)
    if any(is_address(name) or name == "localhost" for name in names):
        return True
    return names[0] == names[1] or names[1].startswith(f"{names[0]}.")


def check_enough(enough: int | None, urls: Sequence[str]) -> None:
    """Raise ConfigError if --min-replicas is more than there are, ServerError if there is none."""
    if not urls:
        raise ServerError("no server is left; correct --server-url")
    if enough is not None and enough > len(urls):
        raise ConfigError(
            f"--min-replicas is {enough}, --server-url names {counted(len(urls), 'replica')}; lower it or "
            "name more"
        )
