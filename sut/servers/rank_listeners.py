"""Servers whose data-parallel ranks listen at ports of their own: the ranks that no URL names.

A user knows the port that the server was started with. With SGLang's Rust server and data-parallel attention
that is rank 0's alone; requests to it leave the other ranks idle.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from harness.config.server_urls import LAST_PORT, at_port, default_port, folded
from harness.grouping import by_key
from harness.record.settled import RankListener, ServerInfo


def machines(servers: Sequence[ServerInfo]) -> dict[str, list[ServerInfo]]:
    """Those that listen for a rank, by the URL of their machine's first rank."""
    return by_key(
        (at_port(server.url, default_port(server.url) - server.listener.offset), server)
        for server in servers
        if server.listener is not None
    )


def metrics_pages(servers: Sequence[ServerInfo]) -> tuple[str, ...]:
    """For each server the URL whose /metrics page has its ranks: one of a machine has those of all there."""
    read = {one.url: found[0].url for found in machines(servers).values() for one in found}
    return tuple(read.get(server.url, server.url) for server in servers)


def unnamed_ranks(servers: Sequence[ServerInfo]) -> dict[str, tuple[str, ...]]:
    """The URLs of a machine's missing ranks, by that of its first rank, where this is the only one named."""
    found: dict[str, tuple[str, ...]] = {}
    for one, _, url in _beside(servers):
        found[one.url] = (*found.get(one.url, ()), url)
    return found


def _beside(servers: Sequence[ServerInfo]) -> Iterator[tuple[ServerInfo, RankListener, str]]:
    """A machine's first rank, the place of a missing one beside it, and its URL."""
    missing = _missing_ranks(servers)
    for first, (one, *others) in machines(servers).items():
        place, port = one.listener, default_port(one.url)
        if place is None or place.offset or others:
            continue
        for offset in range(1, min(place.here, LAST_PORT + 1 - port)):
            if place.rank + offset in missing[place.of]:
                yield one, replace(place, rank=place.rank + offset), at_port(first, port + offset)


def is_rank_beside(other: ServerInfo, first: ServerInfo) -> bool:
    """Whether ``other`` is a rank of the server of ``first``, which listens some ports before it."""
    if first.listener is None or other.listener is None:
        return False
    offset = default_port(other.url) - default_port(first.url)
    return other.listener == replace(first.listener, rank=first.listener.rank + offset)


def missing_rank_warnings(servers: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning where ranks of a server have no URL, but for those that ``unnamed_ranks`` finds."""
    listening = [(server.url, server.listener) for server in servers if server.listener is not None]
    beside = {(place.of, place.rank) for _, place, _ in _beside(servers)}
    for size, ranks in _missing_ranks(servers).items():
        if not (missing := {rank for rank in ranks if (size, rank) not in beside}):
            continue
        some = any(place.of == size and place.rank in missing for _, place in listening)
        lead, than = ("fewer URLs lead", " than to others") if some else ("no URL leads", "")
        yield (
            f"{folded(url for url, place in listening if place.of == size)}: each is one of {size} "
            f"data-parallel ranks of its server, and {lead} to {folded(map(str, sorted(missing)))}{than}: "
            "unless the server hands requests on, they stand idle; name their ports with --server-url, too"
        )


def _missing_ranks(servers: Sequence[ServerInfo]) -> dict[int, set[int]]:
    """The ranks to which fewer URLs lead than to others, by the number of ranks of their servers."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for server in servers:
        if (place := server.listener) is not None:
            counts[place.of][place.rank] += 1
    most = {size: max(found.values()) for size, found in counts.items()}
    return {
        size: {rank for rank in range(size) if found[rank] < most[size]} for size, found in counts.items()
    }
