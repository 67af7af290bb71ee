"""Limits of the machine that a number of open connections runs into, and how to lift them."""

import resource
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ConfigError
from harness.provenance import port_range

SPARE_DESCRIPTORS = 64  # epoll, channels, journal, shared memory
_MOST_OPEN = Path("/proc/sys/fs/nr_open")
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True)
class Limits:
    """``descriptors`` is the hard limit of one process; ``ports`` are those that the system gives to outgoing
    connections, as many again for each replica's address, None where unknown.
    """

    descriptors: int
    ports: int | None

    def room(self, workers: int, replicas: int) -> int:
        """The most connections that fit."""
        by_descriptors = workers * (self.descriptors - SPARE_DESCRIPTORS)
        return by_descriptors if self.ports is None else min(by_descriptors, self.ports * replicas)

    def check(self, in_flight: int, workers: int, replicas: int) -> None:
        """Refuse what cannot hold ``in_flight`` connections. Raises ConfigError with the remedy."""
        each = -(-in_flight // workers) + SPARE_DESCRIPTORS
        if each > self.descriptors:
            raise ConfigError(
                f"{in_flight} requests in flight need {each} open files in each of {workers} workers, the "
                f"limit is {self.descriptors}; raise it (ulimit -Hn), or use more --num-workers or less "
                "--max-concurrency"
            )
        to_one = -(-in_flight // replicas)
        if self.ports is not None and to_one > self.ports:
            raise ConfigError(
                f"{to_one} connections to one address need as many local ports, the system has {self.ports} "
                "before connecting becomes slow; "
                'widen them (sysctl -w net.ipv4.ip_local_port_range="1024 65535") or name more --server-url '
                "addresses"
            )


def machine_limits() -> Limits:
    """The limits of this machine."""
    return Limits(hard_descriptor_limit(), local_ports())


def hard_descriptor_limit() -> int:
    """The most open files that one process may ask for."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return int(_MOST_OPEN.read_text()) if hard == resource.RLIM_INFINITY else hard


def raise_descriptor_limit() -> None:
    """Take as many open files as the hard limit allows."""
    hard = hard_descriptor_limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def local_ports() -> int | None:
    """How many local ports connections to one address get quickly, None where the system does not tell.

    Linux looks through the ports of one parity first: beyond half of the range a connect takes 770 us instead
    of 30 (measured), which stalls a client that opens hundreds each second.
    """
    if not _PORT_RANGE.is_file():
        return None
    found = port_range(_PORT_RANGE.read_text())
    return None if found is None else (found[1] - found[0] + 1) // 2
