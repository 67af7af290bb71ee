"""Servers whose data-parallel ranks listen at ports of their own: the ranks that no URL names.

A user knows the port that the server was started with. With SGLang's Rust server and data-parallel attention
that is rank 0's alone; requests to it leave the other ranks idle.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from harness.config.server_urls import LAST_PORT, at_port, default_port, folded
from harness.record.settled import ServerInfo


def machines(servers: Sequence[ServerInfo]) -> dict[str, list[ServerInfo]]:
    """Those that listen for a rank, by the URL of their machine's first rank."""
    found: dict[str, list[ServerInfo]] = defaultdict(list)
    for server in servers:
        if server.listener is not None:
            found[at_port(server.url, default_port(server.url) - server.listener.offset)].append(server)
    return found


def metrics_pages(servers: Sequence[ServerInfo]) -> tuple[str, ...]:
    """For each server the URL whose /metrics page has its ranks: one of a machine has those of all there."""
    read = {one.url: found[0].url for found in machines(servers).values() for one in found}
    return tuple(read.get(server.url, server.url) for server in servers)


def unnamed_ranks(servers: Sequence[ServerInfo]) -> dict[str, tuple[str, ...]]:
    """The URLs of a machine's other ranks, by that of its first rank, where this is the only one named."""
    return {
        one.url: tuple(
            at_port(first, port)
            for port in range(default_port(first) + 1, default_port(first) + one.listener.here)
            if port <= LAST_PORT
        )
        for first, (one, *others) in machines(servers).items()
        if one.listener is not None and one.listener.offset == 0 and one.listener.here > 1 and not others
    }


def is_rank_beside(other: ServerInfo, first: ServerInfo) -> bool:
    """Whether ``other`` is a rank of the server of ``first``, which listens some ports before it."""
    if first.listener is None or other.listener is None:
        return False
    offset = default_port(other.url) - default_port(first.url)
    return other.listener == replace(first.listener, rank=first.listener.rank + offset)


def missing_rank_warnings(servers: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning where ranks of a server have no URL."""
    by_size: dict[int, list[ServerInfo]] = defaultdict(list)
    for server in servers:
        if server.listener is not None:
            by_size[server.listener.of].append(server)
    for size, found in by_size.items():
        named = {server.listener.rank for server in found if server.listener is not None}
        if missing := [str(rank) for rank in range(size) if rank not in named]:
            yield (
                f"{folded(server.url for server in found)}: each is one of {size} data-parallel ranks of its "
                f"server, and no URL leads to {folded(missing)}: unless the server hands requests on, they "
                "stand idle; name their ports with --server-url, too"
            )
