"""Room for connections: this machine's limits over the addresses that lead to the servers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from sut.client.client import MAX_CONNECTING
from sut.client.endpoint import Endpoint, most_pairs, resolve_endpoint, spread
from sut.supervisor.load_estimate import is_own_host
from sut.supervisor.machine_limits import Limits
from sut.supervisor.session import WARM_CONNECTIONS


class Room:
    """What ``workers`` processes of this machine can open to ``urls``."""

    def __init__(self, limits: Limits, workers: int, urls: Sequence[str]) -> None:
        self._limits = limits
        self._workers = workers
        self._urls = urls

    @property
    def connections(self) -> int:
        """The most connections that fit."""
        return self._limits.room(self._workers, self._pairs)

    def check(self, in_flight: int) -> None:
        """Refuse what does not fit. Raises ConfigError."""
        self._limits.check(in_flight, self._workers, self._pairs)

    def warnings(self, expected: int, *, all_at_once: bool) -> Iterator[str]:
        """What may go wrong when about ``expected`` connections are open; ``all_at_once``: from the start."""
        yield from self._limits.problems(expected, self._workers, self._pairs)
        if any(is_own_host(endpoint.host) for endpoint in self._endpoints):
            at_once = min(expected, self._workers * (MAX_CONNECTING if all_at_once else WARM_CONNECTIONS))
            yield from self._limits.backlog_problems(-(-at_once // len(self._urls)))

    @cached_property
    def _endpoints(self) -> list[Endpoint]:
        return [resolve_endpoint(url, "", None) for url in self._urls]

    @property
    def _pairs(self) -> int:
        return sum(most_pairs(endpoint.routes) for endpoint in self._endpoints)


def wide_enough(endpoint: Endpoint, connections: int, ports: int | None) -> Endpoint:
    """The endpoint with as many pairs of addresses as ``connections`` to it need."""
    pairs = 1 if ports is None else -(-connections // ports)
    return replace(endpoint, routes=spread(endpoint.routes, pairs))
