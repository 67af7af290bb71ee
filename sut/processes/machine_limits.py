"""Limits of the machine on open connections, and how to raise them."""

import resource
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.errors import ConfigError
from harness.machine import number_in, text_of
from harness.record.provenance import port_range
from harness.text import counted

SPARE_DESCRIPTORS = 64  # epoll, channels, journal, shared memory
_DESCRIPTORS_OF_A_WORKER = 5  # its parent holds a pair of sockets, a pipe and the process
_MOST_OPEN, _USUAL_MOST_OPEN = Path("/proc/sys/fs/nr_open"), 1 << 20
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


class MachineLimits(msgspec.Struct, frozen=True):
    """``descriptors`` is the hard limit of one process; ``ports`` is the number of local ports for outgoing
    connections, counted for each pair of source and destination address; ``backlog`` is the longest
    queue of new connections that a server on this machine can have. None where unknown.
    """

    descriptors: int
    ports: int | None
    backlog: int | None = None

    def max_connections(self, workers: int, pairs: int) -> int:
        """The most connections that fit."""
        by_descriptors = workers * (self.descriptors - SPARE_DESCRIPTORS)
        return by_descriptors if self.ports is None else min(by_descriptors, self.ports * pairs)

    def shortages(self, in_flight: int, workers: int, pairs: int) -> Iterator[str]:
        """Limits that ``in_flight`` connections exceed, each with its remedy."""
        each = -(-in_flight // workers) + SPARE_DESCRIPTORS
        if each > self.descriptors:
            yield (
                f"{in_flight} requests in flight need {each} open files in each of "
                f"{counted(workers, 'worker')}, the limit is {self.descriptors}; raise it "
                f"(ulimit -n {each}), or use more --num-workers or less --max-concurrency"
            )
        yield from self.port_shortages(-(-in_flight // pairs))

    def port_shortages(self, to_one: int) -> Iterator[str]:
        """The shortage of local ports for this number of connections between two addresses."""
        if self.ports is not None and to_one > self.ports:
            yield (
                f"{to_one} connections between two addresses need as many local ports, the system has "
                f"{self.ports} before connecting becomes slow; "
                'widen it (sysctl -w net.ipv4.ip_local_port_range="1024 65535") or give this machine '
                "or the server further addresses"
            )

    def backlog_shortages(self, at_once: int) -> Iterator[str]:
        """A limit of a server on this machine that ``at_once`` new connections exceed, with the remedy."""
        if self.backlog is not None and at_once > self.backlog:
            yield (
                f"up to {at_once} connections are opened at once, and this host lets a server queue "
                f"{self.backlog}: others wait a second and more; raise it before the server starts "
                f"(sysctl -w net.core.somaxconn={max(4096, at_once)})"
            )


def descriptors_for(workers: int) -> int:
    """Open files of the process that has this many workers."""
    return workers * _DESCRIPTORS_OF_A_WORKER + SPARE_DESCRIPTORS


def check_workers(workers: int, reason: str, *, asked: bool) -> None:
    """Let this process open the channels to its workers. Raises ConfigError where the hard limit is lower.

    ``asked``: the user gave their number and may give another; fewer than were chosen seldom suffice.
    """
    needed = descriptors_for(workers)
    hard = hard_descriptor_limit()
    if needed > hard:
        fewer = f", or use {'fewer --num-workers or ' if asked else ''}less --max-concurrency"
        raise ConfigError(
            f"this process needs {needed} open files for {counted(workers, 'worker')} ({reason}), the limit "
            f"is {hard}; raise it (ulimit -n {needed}){fewer if workers > 1 else ''}"
        )
    if needed > resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def machine_limits() -> MachineLimits:
    """The limits of this machine."""
    return MachineLimits(hard_descriptor_limit(), local_ports(), number_in(_SOMAXCONN))


def hard_descriptor_limit() -> int:
    """The most open files that one process may ask for: the kernel refuses a hard limit above its own."""
    hard, most = resource.getrlimit(resource.RLIMIT_NOFILE)[1], number_in(_MOST_OPEN)
    if hard == resource.RLIM_INFINITY:
        return most or _USUAL_MOST_OPEN
    return min(hard, most or hard)


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit."""
    hard = hard_descriptor_limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def local_ports() -> int | None:
    """The number of local ports between two addresses for quick connections, None where unknown.

    Linux searches the ports of one parity first: beyond half of the range a connect takes 770 us instead
    of 30 (measured), which stalls a client that opens hundreds each second.
    """
    found = port_range(text_of(_PORT_RANGE))
    return None if found is None else (found[1] - found[0] + 1) // 2
