"""A router between this client and the servers: how to detect it, and what it may hide."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from harness.config.server_urls import folded
from harness.errors import ServerError
from harness.record.resolved_plan import Router, ServerInfo
from sut.servers.info_client import InfoClient

GATEWAY = "SMG or sglang-router"
_PAGE = "docs/guide/servers/router.md"
# The beginning of a Server header, in lower case; engines have others (uvicorn, llama.cpp).
_PROXIES = {
    "nginx": "nginx",
    "openresty": "nginx",
    "envoy": "Envoy",
    "istio-envoy": "Envoy",
    "haproxy": "HAProxy",
    "caddy": "Caddy",
    "apache": "Apache",
    "traefik": "Traefik",
    "awselb": "AWS load balancer",
    "cloudflare": "Cloudflare",
}
_RISK = "which may hide failures by retrying, and hides stragglers"
_RISKS = {
    GATEWAY: "which hides failures by retrying unless it has --disable-retries, and hides stragglers; its "
    "policy is not known (cache_aware unless it has --policy power_of_two or another)",
    "nginx": "which hides failures by retrying unless it has proxy_next_upstream off, hides stragglers, and "
    "may hold back streams unless it has proxy_buffering off",
}
_LONGEST = 100
_MOST_SERVERS = 1 << 20


def router_of(control: InfoClient, headers: Mapping[str, str]) -> Router | None:
    """The router in front of a server, by the ``headers`` of an answer and a page of its own; None: not seen.

    Probed on SMG 1.13.0 and nginx 1.22.1; others by the headers that they are documented to send.
    """
    try:
        workers = (control.first_json(("/workers",)) or {}).get("workers")
        if isinstance(workers, list):
            version = _gateway_version(control)
            return Router(GATEWAY, version=version, servers=min(len(workers), _MOST_SERVERS))
    except ServerError:
        pass  # only asked to see a router: the headers remain
    server, via = headers.get("server", "")[:_LONGEST], headers.get("via", "")[:_LONGEST]
    for beginning, name in _PROXIES.items():
        if server.lower().startswith(beginning):
            return Router(name, version=server.partition("/")[2] or None)
    if "x-envoy-upstream-service-time" in headers:
        return Router("Envoy")
    return Router(f"a proxy ({via})") if via else None


def with_router(server: ServerInfo, router: Router | None) -> ServerInfo:
    """A gateway passes on the facts of one of its servers, whose limit counts for each of them."""
    runs = server.max_running_requests
    if router is not None and router.servers and runs is not None:
        runs *= router.servers
    return replace(server, router=router, max_running_requests=runs)


def router_warnings(servers: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning for each kind of router."""
    urls: dict[str, list[str]] = defaultdict(list)
    for server in servers:
        if server.router is not None:
            urls[server.router.name].append(server.url)
    for name, found in urls.items():
        risk = _RISKS.get(name, _RISK)
        yield f"{folded(found)}: {name} in front, {risk}; name the servers themselves, or see {_PAGE}"


def _gateway_version(control: InfoClient) -> str | None:
    version = (control.first_json(("/get_loads",)) or {}).get("version")
    return version[:_LONGEST] if isinstance(version, str) else None
