"""Where one server URL leads: host, port, TLS and the head of every request to it."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harness.errors import ConfigError, ServerError
from sut.route import Route, resolve


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One replica, resolved. Its connections take turns on ``routes``.

    ``head`` is the start of every request to it and may hold the API key. ``ca_file``: see tls_context.
    """

    url: str
    host: str
    routes: tuple[Route, ...]
    tls: bool
    head: bytes
    keep_alive: bool = True
    ca_file: Path | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.url})"


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Trusts the system's certificates (SSL_CERT_FILE replaces them) and those of ``ca_file``, PEM.

    Raises ConfigError.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # ssl.SSLError is one
            reason = error.strerror or "no certificate in it"
            raise ConfigError(
                f"--ca-file {ca_file}: {reason}, expected certificates in PEM format; name the file of the CA"
            ) from None
    return context


def resolve_endpoint(url: str, path: str, api_key: str | None, ca_file: Path | None = None) -> Endpoint:
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
    return Endpoint(url, host, routes, tls, head.encode(), ca_file=ca_file)
