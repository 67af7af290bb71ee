"""--metrics-port: the latest line of progress in Prometheus's text format, served by a thread.

The thread runs beside the supervisor; neither LoadGen nor a worker shares its process. It serves one client
at a time: one that is slow or hostile holds up other readers of the metrics, never the run. (A thread for
each connection, as prometheus-client's server has, would let clients use up the supervisor's descriptors.)
"""

import ipaddress
import logging
import signal
import socket
import socketserver
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from threading import Event, Thread
from typing import Any

import msgspec

from harness.config.server_urls import authority
from harness.errors import ConfigError
from harness.progress.progress_files import ProgressLine
from harness.progress.progress_line import Latencies

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATHS = ("/", "/metrics")
_HERE = "127.0.0.1"
_CLIENT_S = 2.0  # the longest wait for each part of a request
_END_S = 0.5  # the longest wait, at the end, for a request that is being answered

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

log = logging.getLogger("mlperf")


class ServedMetric(msgspec.Struct, frozen=True):
    """A metric of the page: a counter where its name ends in `_total`, else a gauge."""

    name: str
    help: str
    values: float | Mapping[str, float] | None
    """its value, or a value for each value of its label; what has none is left out"""
    label: str = ""

    def rows(self) -> Iterator[str]:
        """The lines of the page; none without a value."""
        values = self.values if isinstance(self.values, Mapping) else {"": self.values}
        known = {text: value for text, value in values.items() if value is not None}
        if not known:
            return
        yield f"# HELP {self.name} {self.help}\n"
        yield f"# TYPE {self.name} {'counter' if self.name.endswith('_total') else 'gauge'}\n"
        for text, value in known.items():
            labels = f'{{{self.label}="{text.translate(_ESCAPES)}"}}' if self.label else ""
            yield f"{self.name}{labels} {value!r}\n"


def metrics_text(line: ProgressLine | None) -> str:
    """The page; empty before the first line."""
    return "" if line is None else "".join(row for metric in metrics(line) for row in metric.rows())


def metrics(line: ProgressLine) -> tuple[ServedMetric, ...]:
    """Every metric, also those without a value yet. Times are in seconds."""
    return (*_query_metrics(line), *_latency_metrics(line), *_replica_metrics(line))


def _query_metrics(line: ProgressLine) -> Iterator[ServedMetric]:
    one = ServedMetric
    yield one("mlperf_progress_timestamp_seconds", "Unix time of these figures", line.time.timestamp())
    yield one("mlperf_elapsed_seconds", "Since the first query", line.elapsed_s)
    yield one("mlperf_remaining_seconds", "Estimated", line.remaining_s)
    yield one("mlperf_queries_expected", "Queries that are expected to be issued in all", line.total)
    yield one("mlperf_queries_issued_total", "Queries issued by LoadGen", line.issued)
    yield one("mlperf_queries_completed_total", "Queries with an answer", line.completed)
    yield one("mlperf_queries_failed_total", "Queries that failed", line.failed)
    yield one("mlperf_failures_total", "Failed queries", line.failures, "kind")
    yield one("mlperf_queries_in_flight", "Queries issued and not ended", line.in_flight)
    yield one("mlperf_lost", "1: the run can no longer become VALID", int(bool(line.lost)))
    silence = "Time in which nothing has arrived although queries wait"
    yield one("mlperf_silent_seconds", silence, line.silent_s)
    standing = "1: the servers, or a data-parallel rank of one, show no sign of life"
    yield one("mlperf_rank_standing", standing, int(bool(line.standing)))
    yield one("mlperf_warnings_total", "Warnings that the run has printed", line.warned)


def _latency_metrics(line: ProgressLine) -> Iterator[ServedMetric]:
    one, over = ServedMetric, line.over_limit
    yield one("mlperf_output_tokens_per_second", "Over the last ten seconds", line.tokens_per_s)
    yield one("mlperf_answers_last_minute", "Answers that ended in the last minute", line.ended_last_minute)
    yield one("mlperf_ttft_seconds", "TTFT of the last minute's answers", _quantiles(line.ttft), "quantile")
    yield one("mlperf_tpot_seconds", "TPOT of the last minute's answers", _quantiles(line.tpot), "quantile")
    queries = {name: part.queries for name, part in over.items()}
    yield one("mlperf_queries_over_limit_total", "Queries over a latency limit", queries, "latency")
    most = {name: part.most for name, part in over.items()}
    meaning = "The most with which the run can be VALID; -1: the run has too few queries"
    yield one("mlperf_queries_over_limit_allowed", meaning, most, "latency")
    limits = {name: part.limit_ms / 1e3 for name, part in over.items()}
    yield one("mlperf_latency_limit_seconds", "The limits", limits, "latency")


def _quantiles(part: Latencies | None) -> dict[str, float]:
    """Values of a gauge, not of a summary: a summary's count since the run began."""
    return {} if part is None else {"0.5": part.p50_ms / 1e3, "0.99": part.p99_ms / 1e3}


def _replica_metrics(line: ProgressLine) -> Iterator[ServedMetric]:
    one = ServedMetric
    slower = "Replicas slower than the median of all for a minute"
    yield one("mlperf_stragglers", slower, line.stragglers)
    spread = "Largest mean number in flight on a replica over that of all, last minute"
    yield one("mlperf_imbalance", spread, line.imbalance)
    times = {replica.url: replica.tpot_p50_ms / 1e3 for replica in line.slowest}
    slowest = "Median TPOT of the last minute of the slowest replicas"
    yield one("mlperf_slow_replica_tpot_seconds", slowest, times, "replica")
    ratios = {replica.url: replica.ratio for replica in line.slowest}
    yield one("mlperf_slow_replica_tpot_ratio", "The same over the median of all replicas", ratios, "replica")


class MetricsServer:
    """Listens from its construction on and is called with each line. Raises ConfigError for a port in use."""

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
        self.url = f"http://{authority(host, self._server.server_address[1])}/metrics"
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
        self._server.server_close()

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals are for the main thread
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
        """A client that hung up is not reported."""


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
        number = int(port) if port.isascii() and port.isdigit() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise ConfigError(
            f"--metrics-port {text}: expected PORT or ADDRESS:PORT, such as 9400 or 0.0.0.0:9400"
        )
    return host, number


@contextmanager
def metrics_port(text: str | None) -> Iterator[Callable[[ProgressLine], None]]:
    """A receiver of lines that serves the latest one while the context lasts; None serves nothing."""
    if text is None:
        yield lambda line: None
        return
    server = MetricsServer(text)
    log.info("metrics for Prometheus: %s", server.url)
    try:
        yield server
    finally:
        server.close()
