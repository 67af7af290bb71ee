"""The number of connections that this machine can open to the servers: its limits, by address pair."""

from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec.structs import replace

from harness.config.server_urls import DNS, folded
from harness.errors import ConfigError
from sut.client.client import MAX_CONNECTING
from sut.client.endpoint import (
    Access,
    Endpoint,
    is_own_address,
    most_pairs,
    resolve_endpoints,
    with_source_addresses,
)
from sut.processes.machine_limits import MachineLimits
from sut.supervisor.session import WARM_CONNECTIONS


class ConnectionLimits:
    """The connections that ``workers`` processes of this machine can open to ``urls``."""

    def __init__(self, limits: MachineLimits, workers: int, urls: Sequence[str]) -> None:
        self._limits = limits
        self._workers = workers
        self._urls = urls

    @property
    def max_connections(self) -> int:
        """The most connections that fit."""
        return self._limits.max_connections(self._workers, self._pairs)

    def check(self, in_flight: int) -> None:
        """Raise ConfigError, with the remedy, where ``in_flight`` connections do not fit."""
        for shortage in self._limits.shortages(in_flight, self._workers, self._pairs):
            raise ConfigError(shortage)

    def warnings(self, expected: int, *, all_at_once: bool) -> Iterator[str]:
        """Warnings for about ``expected`` open connections; ``all_at_once``: all are opened at the start."""
        yield from self._limits.shortages(expected, self._workers, self._pairs)
        for endpoint in self._endpoints:
            if endpoint.silent:
                yield (
                    f"{endpoint.url}: addresses that gave no connection and get no queries: "
                    f"{', '.join(endpoint.silent)}"
                )
        yield from several_addresses(self._endpoints)
        pairs = (pair for endpoint in self._endpoints for pair in endpoint.pairs)
        if any(is_own_address(pair.family, pair.address[0]) for pair in pairs):
            at_once = min(expected, self._workers * (MAX_CONNECTING if all_at_once else WARM_CONNECTIONS))
            yield from self._limits.backlog_shortages(-(-at_once // len(self._urls)))

    @cached_property
    def _endpoints(self) -> list[Endpoint]:
        return resolve_endpoints(self._urls, "", Access())

    @property
    def _pairs(self) -> int:
        return sum(most_pairs(endpoint.pairs) for endpoint in self._endpoints)


def several_addresses(endpoints: Sequence[Endpoint]) -> Iterator[str]:
    """A warning about names that may be of several servers each; an IPv4 and an IPv6 address are of one."""
    urls = [endpoint.url for endpoint in endpoints if _of_one_kind(endpoint) > 1]
    if urls:
        yield (
            f"{folded(urls)}: the name has several addresses, which count as one server; connections take "
            "turns on them: one is asked what it serves and for metrics, Offline is filled for one, and a "
            "slow one is not named; where each is a server (a headless service of Kubernetes), use "
            f"{DNS}{urls[0]}"
        )


def _of_one_kind(endpoint: Endpoint) -> int:
    """The addresses of its name, IPv4 or IPv6, whichever are more."""
    places = (*endpoint.places, *endpoint.silent)
    six = sum(":" in place for place in places)
    return max(six, len(places) - six)


def with_enough_sources(endpoint: Endpoint, connections: int, ports: int | None) -> Endpoint:
    """The endpoint with as many pairs of addresses as ``connections`` to it need."""
    pairs = 1 if ports is None else -(-connections // ports)
    return replace(endpoint, pairs=with_source_addresses(endpoint.pairs, pairs))
