"""Exchanges with real servers, byte by byte: ``tests/data/wires/<server>-<version>/<name>.txt``.

``tests/engines/record_wires.py`` writes them. ``exchange("vllm-0.32.0/chat-stream")`` reads one.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.kit import DATA

RECORDED = DATA / "wires"
MARK = b"\n\n=== response ===\n"
"""Between the bytes that were sent and those that came back, until the server closed."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its complete response; every request asks for ``Connection: close``."""

    name: str
    path: str
    request: Any
    """The request's JSON; None for a GET."""
    response: bytes
    """As received: head and, where chunked, with the chunks' sizes."""
    status: int
    headers: dict[str, str]
    """The response's, names in lower case."""
    body: bytes
    """Without the chunks' sizes."""

    @property
    def events(self) -> list[bytes]:
        """The data of a stream's events, ``[DONE]`` among them."""
        lines = self.body.splitlines()
        return [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]

    @property
    def chunks(self) -> list[Any]:
        """The JSON of a stream's events, without ``[DONE]``."""
        return [json.loads(event) for event in self.events if event != b"[DONE]"]

    @property
    def answer(self) -> Any:
        """The JSON of a complete answer."""
        return json.loads(self.body)


def exchange(name: str) -> Exchange:
    """The recording ``<server>-<version>/<name>``."""
    sent, _, response = (RECORDED / f"{name}.txt").read_bytes().partition(MARK)
    request_line, _, _ = sent.partition(b"\r\n")
    _, _, asked = sent.partition(b"\r\n\r\n")
    head, _, body = response.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return Exchange(
        name=name,
        path=request_line.split()[1].decode(),
        request=_json_or_none(asked),
        response=response,
        status=int(status.split()[1]),
        headers=headers,
        body=body,
    )


def names(server: str) -> list[str]:
    """The names of all recordings of ``<server>-<version>``, to be given to ``exchange``."""
    return sorted(f"{server}/{path.stem}" for path in (RECORDED / server).glob("*.txt"))


def _json_or_none(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _joined(chunked: bytes) -> bytes:
    """A chunked body up to its last chunk, or up to where the connection broke."""
    parts = []
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        count = int(size, 16)
        if not count:
            break
        parts.append(rest[:count])
        chunked = rest[count + 2 :]
    return b"".join(parts)
