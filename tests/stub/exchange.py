"""One request on one connection, and the means to answer it."""

import asyncio
import time
from email.utils import formatdate

from .protocol import Options, Request

END_OF_CHUNKS = b"0\r\n\r\n"
REASONS = {200: "OK", 302: "Found", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


class Exchange:
    """Sends the answer; ``blocks`` are the pieces of an honest body, one per event of a stream.

    ``silent_s``: how long the events before the last one would have taken, where the answer is no stream.
    """

    def __init__(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, options: Options
    ) -> None:
        self.request, self.options, self.blocks = request, options, [b""]
        self.silent_s = 0.0
        self._reader, self.writer = reader, writer

    @property
    def open(self) -> bool:
        return not self.writer.is_closing()

    async def wait_until_client_leaves(self) -> None:
        await self._reader.read(1)
        self.writer.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def head(self, chunked: bool) -> bytes:
        """The headers of a 200 answer to this request."""
        kind = "text/event-stream; charset=utf-8" if self.request.streams else "application/json"
        framing = "transfer-encoding: chunked\r\n" if chunked else "connection: close\r\n"
        return _head(200, kind, framing + self._close_header())

    async def send_whole(self, status: int, kind: str, body: bytes, extra: str = "") -> None:
        """A response with content-length."""
        await self.send(self._whole(status, kind, body, extra))

    async def send_answer(self, then: bytes = b"") -> None:
        """All blocks as an honest server would send them; ``then`` follows in the write that ends them."""
        await asyncio.sleep(self.options.first_delay_s + self.silent_s)
        if not self.request.streams:
            self._stamp()
            await self.send(self.at_once() + then)
            return
        await self.send(self.head(chunked=True))
        await self.send_blocks(self.blocks)
        await self.send(END_OF_CHUNKS + then)

    def at_once(self) -> bytes:
        """All of the answer."""
        if not self.request.streams:
            return self._whole(200, "application/json", self.blocks[0])
        return self.head(chunked=True) + b"".join(map(self.framed, self.blocks)) + END_OF_CHUNKS

    async def send_blocks(self, blocks: list[bytes]) -> None:
        """One chunk per block, paced; the end mark follows the last event at once."""
        for i, block in enumerate(blocks):
            if i and i < len(self.blocks) - 1 and self.options.event_delay_s:
                await asyncio.sleep(self.options.event_delay_s)
            while not self.options.event_gate(self.request, i):
                await asyncio.sleep(0.01)
            self._stamp()
            await self.send(self.framed(block))

    @staticmethod
    def framed(block: bytes) -> bytes:
        return f"{len(block):x}\r\n".encode() + block + b"\r\n"

    def _stamp(self) -> None:
        self.request.last_sent_ns = time.monotonic_ns()
        self.request.first_sent_ns = self.request.first_sent_ns or self.request.last_sent_ns

    def _whole(self, status: int, kind: str, body: bytes, extra: str = "") -> bytes:
        length = f"content-length: {len(body)}\r\n"
        return _head(status, kind, length + extra + self._close_header()) + body

    def _close_header(self) -> str:
        closes = self.options.close_after_response and self.options.announce_close
        return "connection: close\r\n" if closes else ""


def _head(status: int, kind: str, rest: str) -> bytes:
    reason = REASONS.get(status, "Error")
    fixed = f"date: {formatdate(usegmt=True)}\r\nserver: uvicorn\r\ncontent-type: {kind}\r\n"
    return f"HTTP/1.1 {status} {reason}\r\n{fixed}{rest}\r\n".encode()
