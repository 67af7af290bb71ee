"""The way to each server: reachable, by which protocol, how far, and with which packets."""

import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from harness.config.benchmark import Benchmark
from harness.config.deadlines import PreflightLimits
from harness.config.run_options import Backend
from harness.config.server_urls import authority, default_port, folded
from harness.errors import HarnessError, ServerError
from harness.record.settled import ServerInfo
from harness.text import counted
from sut.client.endpoint import Access, AddressPair, Endpoint, most_pairs, resolve_endpoint
from sut.doctor.finding import Finding, from_line, ok
from sut.servers.discovery import find_servers
from sut.servers.rank_listeners import missing_rank_warnings
from sut.servers.server_checks import check_alike, failed_behind, model_deviations, replica_warnings
from sut.servers.setting_checks import cache_deviations, setting_deviations, unseen_option_warnings
from sut.supervisor.connection_limits import several_addresses

_TRIES = 9
_CONNECT_S = 5.0
_LEAST_MSS = 1200  # IPv6 carries at least 1280 bytes; less is a tunnel in a tunnel
_FAR_US = 2000.0  # beyond this the network is part of every measured first token


class Way(msgspec.Struct, frozen=True):
    """Connections to one address."""

    address: str
    round_trips_us: tuple[float, ...]
    """time of each connect: one round trip"""
    mss: int
    """bytes of a segment"""


def server_findings(
    urls: Sequence[str], backend: Backend, access: Access, within_s: float, benchmark: Benchmark
) -> Iterator[Finding]:
    """Each server by itself, so that one that is down hides no other; then what a run says of all."""
    limits, named = PreflightLimits(questions_s=within_s, trial_s=1), list[ServerInfo]()
    used = list[ServerInfo]()
    for url in urls:
        try:
            servers = find_servers([url], backend, access, limits, benchmark.model)
            server, *others = servers.found
            endpoint = resolve_endpoint(server.url, "", access)
            way = way_to(endpoint)
        except HarnessError as error:
            yield _refused(url, error)
            continue
        yield ok("server", f"{url}: {_described(server)}")
        replicas = [one for one in others if default_port(one.url) == default_port(server.url)]
        if ranks := [one.url for one in others if one not in replicas]:
            yield ok("server", f"{folded(ranks)}: further data-parallel ranks of it")
        if replicas:
            yield ok("server", f"{folded(one.url for one in replicas)}: further addresses of its name")
        # Which ranks have no URL is a question about all URLs.
        alone = set(missing_rank_warnings([server, *replicas]))
        several = several_addresses((endpoint,))
        yield from map(_warned, (*(text for text in servers.warnings if text not in alone), *several))
        named += server, *replicas
        used += servers.found
        yield from way_findings(url, way)
    yield from (_warned(text) for text in missing_rank_warnings(named))
    yield from _judged(used, benchmark)


def address_pairs(urls: Sequence[str]) -> int:
    """The pairs of addresses that lead to the servers, as a run counts them; 0 where none is found."""
    pairs = 0
    for url in urls:
        with suppress(HarnessError):  # its own finding says why
            pairs += most_pairs(resolve_endpoint(url, "", Access()).pairs)
    return pairs


def _judged(servers: Sequence[ServerInfo], benchmark: Benchmark) -> Iterator[Finding]:
    """What makes a run over these servers refused or NOT OFFICIAL, whatever its scenario and dataset."""
    deviations = (
        *model_deviations(servers, benchmark),
        *setting_deviations(servers),
        *cache_deviations(servers, benchmark),
    )
    yield from (_warned(f"NOT OFFICIAL: {text}") for text in deviations)
    yield from (_warned(text) for text in unseen_option_warnings(servers))
    yield from (_warned(text) for server in servers for text in failed_behind(server))
    try:
        check_alike(servers)
    except ServerError as error:
        yield from_line("error", "server", str(error), of_server=True)
    else:
        yield from (_warned(text) for text in replica_warnings(servers))


def _warned(warning: str) -> Finding:
    return from_line("warning", "server", warning)


def _refused(url: str, error: HarnessError) -> Finding:
    line = f"{url}: {str(error).removeprefix(f'{url}: ')}"
    return from_line("error", "server", line, of_server=isinstance(error, ServerError))


def _described(server: ServerInfo) -> str:
    parts = [
        server.software,
        f"model {server.names}",
        f"wire {server.wire}",
        counted(server.dp_size, "data-parallel rank") if server.dp_size else "",
        f"{server.max_running_requests} requests at once" if server.max_running_requests else "",
        f"behind {server.router.name}" if server.router else "",
    ]
    return ", ".join(filter(None, parts))


def way_findings(url: str, way: Way | None) -> Iterator[Finding]:
    """Round trip and packets."""
    if way is None:
        yield Finding("error", "network", f"{url}: no connection", "is the server up?", of_server=True)
        return
    least, median = min(way.round_trips_us), statistics.median(way.round_trips_us)
    text = f"{way.address}: round trip {least:.0f} µs, median {median:.0f} of {len(way.round_trips_us)}"
    if median > _FAR_US:
        remedy = "measure from the servers' network: it is part of every TTFT"
        yield Finding("warning", "network", text, remedy)
    elif way.mss < _LEAST_MSS:
        yield Finding(
            "warning", "network", f"{text}; only {way.mss} bytes a packet", "look at the MTU on the way"
        )
    else:
        yield ok("network", f"{text}; {way.mss} bytes a packet")


def way_to(endpoint: Endpoint) -> Way | None:
    """Connect a few times to the endpoint's first address; None where nothing listens."""
    pair = endpoint.pairs[0]
    times, mss = [], 0
    for _ in range(_TRIES):
        found = _connect(pair)
        if found is None:
            return None
        times.append(found[0])
        mss = found[1]
    return Way(authority(*pair.address), tuple(times), mss)


def _connect(pair: AddressPair) -> tuple[float, int] | None:
    with socket.socket(pair.family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        began = time.perf_counter_ns()
        try:
            probe.connect(pair.address)
        except OSError:
            return None
        took = (time.perf_counter_ns() - began) / 1000
        return took, probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
