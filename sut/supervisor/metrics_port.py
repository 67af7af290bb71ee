"""--metrics-port: the latest line of progress for Prometheus, served by a thread beside the supervisor.

Neither LoadGen nor a worker shares its process. A client that is slow or hostile holds up other readers of
the metrics, never the run.
"""

import ipaddress
import logging
import signal
import socket
import socketserver
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from threading import Event, Thread
from typing import Any

from harness.errors import ConfigError
from harness.progress.progress_files import ProgressLine
from harness.report.metrics_text import CONTENT_TYPE, metrics_text

PATHS = ("/", "/metrics")
_HERE = "127.0.0.1"
_CLIENT_S = 2.0  # for each part of a request
_END_S = 0.5  # for a request that is being answered at the end

log = logging.getLogger("mlperf")


class MetricsServer:
    """Listens once it is made; an instance is called with each line. Raises ConfigError for a port in use."""

    def __init__(self, text: str) -> None:
        host, port = parse_address(text)
        self._line: ProgressLine | None = None
        self._closed = Event()
        try:
            self._server = _Listener((host, port), self)
        except OSError as error:
            raise ConfigError(
                f"--metrics-port {text}: cannot listen there ({error.strerror or error}); choose another port"
            ) from error
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._server.server_address[1]}/metrics"
        self._thread = Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    def __call__(self, line: ProgressLine) -> None:
        """Serve this line from now on."""
        self._line = line

    def text(self) -> str:
        """The response to a client."""
        return metrics_text(self._line)

    def close(self) -> None:
        """Stop listening; a client in the middle of its request cannot delay it."""
        self._closed.set()
        self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(_END_S)

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they wake the main thread
        with self._server:
            while not self._closed.is_set():
                self._server.handle_request()


class _Listener(socketserver.TCPServer):
    """Without http.server's look-up of the host's name, which can take minutes."""

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], metrics: MetricsServer) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.metrics = metrics
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    timeout = _CLIENT_S
    server_version, sys_version = "mlperf", ""

    def do_GET(self) -> None:
        """The metrics, or 404."""
        if self.path.partition("?")[0] not in PATHS:
            self.send_error(404)
            return
        body = self.server.metrics.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


def parse_address(text: str) -> tuple[str, int]:
    """``PORT`` or ``ADDRESS:PORT``, IPv6 in brackets; port 0 is any free one. Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else _HERE
    try:
        ipaddress.ip_address(host)
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise ConfigError(
            f"--metrics-port {text}: expected PORT or ADDRESS:PORT, such as 9400 or 0.0.0.0:9400"
        )
    return host, number


@contextmanager
def metrics_port(text: str | None) -> Iterator[Callable[[ProgressLine], None]]:
    """A receiver of lines, which serves them while the context lasts; None serves nothing."""
    if text is None:
        yield lambda line: None
        return
    server = MetricsServer(text)
    log.info("metrics for Prometheus: %s", server.url)
    try:
        yield server
    finally:
        server.close()
