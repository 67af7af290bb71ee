"""Requests to servers outside the request path: within a deadline, of bounded size, many at once."""

import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from harness.api_key import masked_text
from harness.config.server_urls import authority, default_port, is_address, split_address
from harness.errors import ServerError
from harness.progress.progress_line import LiveLine
from harness.record.failure_details import status_remedy
from harness.text import printable
from sut.client.endpoint import Access, answering, resolve
from sut.client.network_figures import TCP_INFO_BYTES, TcpInfo
from sut.wire.answer_checks import UNREADABLE

_MOST_BYTES = 1 << 20
_FIRST_NOTICE_S = 2.0  # SGLang's /health always takes one
_NOTICE_EVERY_S, _NOTICE_LATER_S = 10.0, 60.0  # in the first minute, and after it
_ON_TERMINAL_S = 0.5
_UNREACHED = (500, 502, 503, 504)  # the first is sglang-router's
_NOT_READY = "the server, or one behind a proxy, is not ready"
LATE = "gave no answer within"  # in the error of an answer that is late
OR_ANOTHER = " or correct --server-url"  # begins what may be wrong before a server has answered
_LOOK_S = 0.1
# httpx's limit of a read is this much later than ours, which first asks the kernel about the connection.
_LATER_S = 5.0
# Given to clients that use no TLS: httpx would make a context for each, in 0.8 ms.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_HTTP_2_ALONE = "the server speaks HTTP/2 alone: let it, or a proxy before it, offer HTTP/1.1 too (ALPN)"
_NOT_HTTP_1 = (
    "it does not speak HTTP/1.1: a port of HTTP/2 alone (h2c, gRPC), of TLS (https://) or of another protocol"
)
_PERHAPS_TLS = "if the port speaks TLS, --server-url begins with https://"
_NOT_TLS = "check whether the server speaks TLS: if not, --server-url begins with http://"
NO_CERTIFICATE = "if it demands a client certificate, let it demand none, since this client has none"
_OTHER_NAME = "use a name of the server's certificate in --server-url"
_EXPIRED = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED

log = logging.getLogger("mlperf")

Place = tuple[str, dict[str, str], dict[str, str]]  # of a server, for httpx: place_of

Asked = TypeVar("Asked")
Found = TypeVar("Found")


class NotReadyError(ServerError):
    """The server cannot be used yet: it is not reachable, or still starting."""


def without_url(url: str, error: object) -> str:
    """``not reachable (REASON)`` of ``http://node1:30000: not reachable (REASON); REMEDY``."""
    return str(error).removeprefix(f"{url}: ").partition("; ")[0]


class InfoClient:
    """One server's information pages, all of them asked within ``within_s`` seconds after its name is known.

    ``asking`` is the page asked for last; ``remedy`` ends the message when there is no answer in time.
    ``shaking_hands``: connected, and the server has not answered the TLS handshake yet.
    Proxies of the environment are not used and redirects not followed.
    """

    def __init__(self, url: str, access: Access, within_s: float, remedy: str = "is the server up?") -> None:
        self._place: Place | None = None
        self._socket: socket.socket | None = None
        self._expired = False
        self.has_key = bool(access.api_key)
        self.url = url
        self.asking = ""
        self.shaking_hands = False
        self.certificate_until: datetime | None = None  # the end of its validity, once it is known
        self.headers: Mapping[str, str] = {}  # those of the last answer, names in lower case
        self._within_s = within_s
        self._remedy = remedy
        self._until = time.monotonic() + within_s
        # The certificates are those of the request path: httpx would load others.
        verify = _NO_TLS if urlsplit(url).scheme == "http" else access.tls_context()
        headers = {"Accept-Encoding": "identity", **access.headers}
        self._http = httpx.Client(headers=headers, trust_env=False, verify=verify)

    def __enter__(self) -> "InfoClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a request that is under way fails."""
        self._http.close()

    def ask(
        self,
        path: str,
        method: str = "GET",
        content: Mapping[str, Any] | None = None,
        *,
        needed: bool = True,
    ) -> tuple[int, bytes]:
        """Status and body; ``content`` is sent as JSON.

        Raises ServerError when there is no answer in time, or the key is wrong: a ``needed`` page is denied.
        An ingress may deny others to all.
        """
        self.asking = path
        try:
            status, body = self._exchange(method, path, content)
        except (httpx.TimeoutException, TimeoutError):
            raise self._late(path) from None
        except httpx.HTTPError as error:
            if time.monotonic() >= self._until:
                raise self._late(path) from None
            raise self._unreachable(error) from None
        if needed and status in (401, 403):
            raise ServerError(f"{self.url}: {status}, not authorized; {status_remedy(status)}")
        return status, body

    def first_json(self, paths: Sequence[str], *, needed: bool = False) -> dict[str, Any] | None:
        """The JSON object of the first page that is there; None when none is, or it is no object.

        Raises ServerError as ``ask``, and NotReadyError if a proxy reaches no server for a ``needed`` page.
        """
        for path in paths:
            status, body = self.ask(path, needed=needed)
            if needed and status in _UNREACHED:
                raise NotReadyError(f"{self.url}: {path} answered {status}, expected 200; {_NOT_READY}")
            if status == 200:
                try:
                    return msgspec.json.decode(body, type=dict[str, Any])
                except UNREADABLE:
                    return None
        return None

    def _exchange(self, method: str, path: str, content: Mapping[str, Any] | None) -> tuple[int, bytes]:
        body = bytearray()
        if self._place is None:
            self._place = place_of(self.url)
            self._until = time.monotonic() + self._within_s  # a slow resolver is not the server's fault
        base, host, extensions = self._place
        with (
            self._ended_in_time(),
            self._http.stream(
                method,
                base + path,
                timeout=httpx.Timeout(self._left() + _LATER_S, connect=self._left()),
                json=content,
                headers=host,
                extensions={**extensions, "trace": self._keep_socket},
            ) as answer,
        ):
            self.headers = dict(answer.headers)
            for data in answer.iter_raw():
                body += data
                if len(body) > _MOST_BYTES:
                    raise ServerError(
                        f"{self.url}: {path} answered more than {_MOST_BYTES} bytes, as no server of models "
                        "does; correct --server-url"
                    )
                self._left()
        return answer.status_code, bytes(body)

    @contextmanager
    def _ended_in_time(self) -> Iterator[None]:
        """End the connection when time is over: httpx limits each read, and slow headers are many reads."""
        timer = threading.Timer(self._left(), self._expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _keep_socket(self, event: str, facts: Mapping[str, Any]) -> None:
        if event in ("connection.start_tls.started", "connection.start_tls.complete"):
            self.shaking_hands = event.endswith("started")
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = facts["return_value"].get_extra_info("socket")
            if isinstance(self._socket, ssl.SSLSocket) and (certificate := self._socket.getpeercert()):
                ends_s = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
                self.certificate_until = datetime.fromtimestamp(ends_s, UTC)
            if self._expired:  # meanwhile
                self._expire()

    def _expire(self) -> None:
        self._expired = True
        if self._socket is not None:
            with suppress(OSError):  # it was closed meanwhile
                info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
                self._remedy = TcpInfo.of(info).evidence() or self._remedy
                # The plain socket's method: an SSLSocket's would take the state of TLS from its reader.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _late(self, path: str) -> ServerError:
        if self.shaking_hands:
            what, remedy = "the TLS handshake", _NOT_TLS
        else:
            what, remedy = path, self._remedy
        return NotReadyError(f"{self.url}: {what} {LATE} {self._within_s:g} s; {remedy}")

    def _unreachable(self, error: httpx.HTTPError) -> ServerError:
        cause = f"{self.url}: not reachable ({_cause(error)})"
        if remedy := tls_remedy(error) or _protocol_remedy(error):
            return ServerError(f"{cause}; {remedy}")
        remedy = f"start the server{OR_ANOTHER}"
        # A proxy whose server is dead closes, and so does uvicorn where it demands a client certificate.
        closed = isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError))
        if self.shaking_hands or (closed and urlsplit(self.url).scheme == "https"):
            remedy += f"; {_NOT_TLS}" if self.shaking_hands else ""
            remedy += f"; {NO_CERTIFICATE}"
        elif closed and not self.headers:  # as uvicorn does with a request that is no handshake
            remedy += f"; {_PERHAPS_TLS}"
        return NotReadyError(f"{cause}; {remedy}")

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def place_of(url: str) -> Place:
    """For httpx: where to connect, and headers and extensions that hold the name if that is an address.

    Of a name that has several addresses one that answers: httpx would wait for a dead one until time is over.
    Raises NotReadyError for a name that is not known.
    """
    base, address = split_address(url)
    parts = urlsplit(base)
    host = parts.hostname or ""
    if address is None and is_address(host):
        return base, {}, {}
    if address is None:
        try:
            found = resolve(host, default_port(base))
        except OSError as error:
            raise NotReadyError(f"{url}: not reachable ({error}); start the server{OR_ANOTHER}") from None
        pair = answering(found) if len(found) > 1 else None
        address = (pair or found[0]).address[0]
    place = parts._replace(netloc=authority(address, default_port(base))).geturl()
    return place, {"Host": parts.netloc}, {"sni_hostname": host}


def _cause(error: httpx.HTTPError) -> str:
    """The error's text without keys and control characters: httpx quotes bytes that it could not read."""
    return printable(masked_text(str(error)))


def tls_remedy(error: BaseException) -> str:
    """The remedy for a failed TLS handshake; "" when the error has another cause, such as a dead server."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    match cause:
        case None | ssl.SSLEOFError():
            return ""
        case _ if "no application protocol" in str(cause):
            return _HTTP_2_ALONE
        case _ if "unknown error" in str(cause):  # all that OpenSSL 3.0.13 says, of Ubuntu 24.04
            return f"perhaps {_HTTP_2_ALONE}"
        case ssl.SSLCertVerificationError() if "match" in cause.verify_message:
            return _OTHER_NAME
        case _ if "unrecognized name" in str(cause):
            return _OTHER_NAME
        case ssl.SSLCertVerificationError(verify_code=code) if code in _EXPIRED:
            return "give the server a certificate that is valid now, unless this machine's clock is wrong"
        case ssl.SSLCertVerificationError():
            return "give the server's certificate, or that of its CA, as --ca-file FILE"
        case _ if "alert" in str(cause):
            return f"the server refuses the TLS handshake: {NO_CERTIFICATE}"
    return _NOT_TLS


def _protocol_remedy(error: httpx.HTTPError) -> str:
    """The remedy for an answer that is not HTTP/1.1, such as HTTP/2's first frame; "" for another error."""
    is_other = isinstance(error, httpx.RemoteProtocolError) and str(error).startswith("illegal ")
    return _NOT_HTTP_1 if is_other else ""


class Calls(Generic[Asked, Found]):
    """A call for each item, each in a daemon thread, so that one that hangs delays no other.

    ``results`` and ``errors`` fill while they run.
    """

    def __init__(self, call: Callable[[Asked], Found], items: Iterable[Asked]) -> None:
        self.results: dict[Asked, Found] = {}
        self.errors: dict[Asked, Exception] = {}
        self.items = tuple(items)
        self._call = call
        self._ended = threading.Semaphore(0)
        for item in self.items:
            threading.Thread(target=self._run, args=(item,), daemon=True).start()

    def _run(self, item: Asked) -> None:
        try:
            self.results[item] = self._call(item)
        except Exception as error:  # noqa: BLE001 - the waiting thread checks the kind
            self.errors[item] = error
        finally:
            self._ended.release()

    def wait(self, within_s: float) -> Iterator[None]:
        """Yield several times a second until all calls have ended or the time is over."""
        left, until = len(self.items), time.monotonic() + within_s
        while left and (patience := until - time.monotonic()) > 0:
            if self._ended.acquire(timeout=min(_LOOK_S, patience)):
                left -= 1
                continue
            yield

    def running(self) -> list[Asked]:
        """Items whose calls have not ended yet."""
        return [item for item in self.items if item not in self.results and item not in self.errors]


class WaitNotices:
    """Reports about a wait: on a terminal one line that is overwritten; elsewhere a line after two seconds,
    then every ten, and after a minute every minute.

    A wait that lasts is said at the level of warnings, too: a model loads for many minutes.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._line = LiveLine(sys.stderr)
        # No line for a Python program without a handler for messages, nor with --log-level error.
        shown = any(handler.level <= logging.WARNING for handler in logging.getLogger().handlers)
        has_reader = shown and log.isEnabledFor(logging.WARNING)
        self._on_terminal = self._line.on_terminal and has_reader
        self._next_s = _FIRST_NOTICE_S

    def __enter__(self) -> "WaitNotices":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def tick(self, what: str) -> None:
        """Report that the program waits for ``what``, if a report is due."""
        waited_s = time.monotonic() - self._began
        if waited_s < self._next_s:
            return
        if not self._on_terminal:
            self._next_s = waited_s + (_NOTICE_EVERY_S if waited_s < _NOTICE_LATER_S else _NOTICE_LATER_S)
            level = logging.INFO if waited_s < _NOTICE_EVERY_S else logging.WARNING
            log.log(level, "waiting for %s (%.0f s so far)", what, waited_s)
            return
        self._next_s = waited_s + _ON_TERMINAL_S
        self._line.show(printable(f"waiting {waited_s:.0f} s for {what}", 500))

    def end(self) -> None:
        """Clear the line of a terminal."""
        self._line.clear()
