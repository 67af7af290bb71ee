"""How many connections this machine can open to the servers: its limits, by address pair."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from sut.client.client import MAX_CONNECTING
from sut.client.endpoint import Endpoint, is_own_host, most_pairs, resolve_endpoint, with_source_addresses
from sut.supervisor.machine_limits import MachineLimits
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
        """Raise ConfigError where ``in_flight`` connections do not fit."""
        self._limits.check(in_flight, self._workers, self._pairs)

    def warnings(self, expected: int, *, all_at_once: bool) -> Iterator[str]:
        """Warnings for about ``expected`` open connections; ``all_at_once``: all are opened at the start."""
        yield from self._limits.shortages(expected, self._workers, self._pairs)
        if any(is_own_host(endpoint.host) for endpoint in self._endpoints):
            at_once = min(expected, self._workers * (MAX_CONNECTING if all_at_once else WARM_CONNECTIONS))
            yield from self._limits.backlog_shortages(-(-at_once // len(self._urls)))

    @cached_property
    def _endpoints(self) -> list[Endpoint]:
        return [resolve_endpoint(url, "", None) for url in self._urls]

    @property
    def _pairs(self) -> int:
        return sum(most_pairs(endpoint.pairs) for endpoint in self._endpoints)


def with_enough_sources(endpoint: Endpoint, connections: int, ports: int | None) -> Endpoint:
    """The endpoint with as many pairs of addresses as ``connections`` to it need."""
    pairs = 1 if ports is None else -(-connections // ports)
    return replace(endpoint, pairs=with_source_addresses(endpoint.pairs, pairs))
