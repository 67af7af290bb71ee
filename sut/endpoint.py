"""Where one server URL leads: host, port, TLS and the head of every request to it."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from harness.errors import ServerError
from sut.route import Route, resolve


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One replica, resolved. Its connections take turns on ``routes``.

    ``head`` is the start of every request to it and may hold the API key.
    """

    url: str
    host: str
    routes: tuple[Route, ...]
    tls: bool
    head: bytes
    keep_alive: bool = True

    def __repr__(self) -> str:
        return f"Endpoint({self.url})"


def resolve_endpoint(url: str, path: str, api_key: str | None) -> Endpoint:
    """Look the host up. Raises ServerError when the name does not resolve."""
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    try:
        routes = resolve(host, port)
    except OSError as error:
        raise ServerError(
            f"{url}: cannot resolve {host!r}: {error.strerror or error}; check --server-url"
        ) from None
    head = f"POST {parts.path}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    if api_key:
        head += f"Authorization: Bearer {api_key}\r\n"
    return Endpoint(url, host, routes, tls, head.encode())
