"""Questions to a server outside the request path, each within a deadline and of bounded size."""

import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

from harness.api_key import masked_text
from harness.errors import ServerError
from harness.report.printable import printable
from sut.wire.answer import UNREADABLE

_MOST_BYTES = 1 << 20


class ControlPlane:
    """One server's information pages, all of them asked within ``within_s`` seconds.

    Proxies of the environment are not used and redirects not followed.
    """

    def __init__(self, url: str, api_key: str | None, within_s: float) -> None:
        headers = {"Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self.url = url
        self._within_s = within_s
        self._until = time.monotonic() + within_s
        # The system's certificates, as the request path has them; httpx alone would take others.
        self._http = httpx.Client(headers=headers, trust_env=False, verify=ssl.create_default_context())

    def __enter__(self) -> "ControlPlane":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, whoever is asking."""
        self._http.close()

    def ask(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        """Status and body. Raises ServerError when there is none in time, or the key is wrong."""
        try:
            status, body = self._exchange(method, path)
        except (httpx.TimeoutException, TimeoutError):
            raise self._late(path) from None
        except httpx.HTTPError as error:
            if time.monotonic() >= self._until:
                raise self._late(path) from None
            raise ServerError(
                f"{self.url}: not reachable ({_cause(error)}); start the server or correct --server-url"
            ) from None
        if status in (401, 403):
            raise ServerError(
                f"{self.url}: {status}, not authorized; "
                "put the server's key into SGLANG_API_KEY or OPENAI_API_KEY"
            )
        return status, body

    def first_json(self, paths: Sequence[str]) -> dict[str, Any] | None:
        """The JSON object of the first page that is there; None when none is, or it is no object."""
        for path in paths:
            status, body = self.ask(path)
            if status == 200:
                try:
                    return msgspec.json.decode(body, type=dict[str, Any])
                except UNREADABLE:
                    return None
        return None

    def _exchange(self, method: str, path: str) -> tuple[int, bytes]:
        body = bytearray()
        with (
            self._hung_up_in_time(),
            self._http.stream(method, self.url + path, timeout=self._left()) as answer,
        ):
            for data in answer.iter_raw():
                body += data
                if len(body) > _MOST_BYTES:
                    raise ServerError(f"{self.url}: {path} answered more than {_MOST_BYTES} bytes")
                self._left()
        return answer.status_code, bytes(body)

    @contextmanager
    def _hung_up_in_time(self) -> Iterator[None]:
        """httpx counts time for each read: a server that trickles its headers would go on for hours."""
        timer = threading.Timer(self._left(), self.close)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _late(self, path: str) -> ServerError:
        return ServerError(
            f"{self.url}: {path} gave no answer within {self._within_s:g} s; is the server up?"
        )

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _cause(error: httpx.HTTPError) -> str:
    """httpx quotes what it could not read."""
    return printable(masked_text(str(error)))
