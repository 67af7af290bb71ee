"""Faults in how an answer is sent: each sends, or fails to send, the blocks of a rendered one."""

import asyncio
import gzip
import itertools
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from .exchange import Exchange
from .faults import Fault

# Complete responses: status, content type, body and further headers.
_RESPONSES = {
    Fault.HTTP_500: (500, "application/json", b'{"error":{"message":"stub failure","code":500}}'),
    Fault.HTTP_500_HTML: (500, "text/html", b"<html><h1>500</h1>\x1b[31mnginx\x1b[0m</html>"),
    Fault.HTTP_500_EMPTY: (500, "application/json", b""),
    Fault.HTTP_400_JSON: (400, "application/json", b'{"message":"The input is longer than the context"}'),
    Fault.HTTP_429_EMPTY: (429, "text/plain", b""),
    Fault.HTTP_404: (404, "application/json", b'{"detail":"Not Found"}'),
    Fault.HTTP_503: (503, "text/plain", b"", "retry-after: 1\r\n"),
    Fault.REDIRECT: (302, "text/plain", b"", "location: http://127.0.0.1:9/elsewhere\r\n"),
    Fault.EMPTY_ANSWER: (200, "text/event-stream; charset=utf-8", b""),
    # A captive portal or a wrong port.
    Fault.HTML: (200, "text/html", b"<!doctype html>\n\n<html>welcome to nginx</html>"),
}


async def _not_http(x: Exchange) -> None:
    await x.send(b"\x15\x03\x01\x00\x02\x02\x46 this is no HTTP\r\n\r\n")
    x.close()


async def _reset_at_once(x: Exchange) -> None:
    _arm_reset(x)
    x.abort()


async def _reset_before_first(x: Exchange) -> None:
    await x.send_head(chunked=True)
    await _reset(x)


async def _reset_in_first(x: Exchange) -> None:
    """Half of the first event has arrived."""
    await x.send_head(chunked=True)
    await x.send(x.framed(x.blocks[0])[: len(x.blocks[0]) // 2])
    await _reset(x)


async def _reset_after_first(x: Exchange) -> None:
    await _send_some(x, 1)
    await _reset(x)


async def _reset_middle(x: Exchange) -> None:
    await _send_some(x, len(x.blocks) // 2)
    await _reset(x)


async def _reset(x: Exchange) -> None:
    await asyncio.sleep(0.02)  # a reset drops what the client has not read yet
    _arm_reset(x)
    x.abort()


def _arm_reset(x: Exchange) -> None:
    """Zero linger: closing sends RST instead of FIN."""
    x.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _close_at_once(x: Exchange) -> None:
    x.close()


async def _close_after_headers(x: Exchange) -> None:
    await x.send_head(chunked=True)
    x.close()


async def _cut_chunked(x: Exchange) -> None:
    await _send_some(x, len(x.blocks) // 2)
    x.close()


async def _cut_in_chunk(x: Exchange) -> None:
    """The last chunk ends before the length that it announced."""
    await _send_some(x, len(x.blocks) // 2)
    framed = x.framed(x.blocks[-1])
    await x.send(framed[: len(framed) // 2])
    x.close()


async def _cut_length(x: Exchange) -> None:
    """A body with content-length that ends early."""
    body = b"".join(x.blocks)
    length = b"content-length: %d" % len(body)
    await x.send(x.head(chunked=True).replace(b"transfer-encoding: chunked", length))
    await x.send(body[: len(body) // 2])
    x.close()


async def _cut_unframed_between(x: Exchange) -> None:
    """The close comes between two events: each of those that arrived is whole."""
    await x.send_head(chunked=False)
    await x.send(b"".join(x.blocks[: len(x.blocks) // 2]))
    x.close()


async def _cut_unframed(x: Exchange) -> None:
    """No length and no chunks: the close itself is the only end, so a cut looks like one."""
    await x.send_head(chunked=False)
    body = b"".join(x.blocks)
    await x.send(body[: len(body) // 2])
    x.close()


async def _silent(x: Exchange) -> None:
    await x.wait_until_client_leaves()


async def _silent_after_headers(x: Exchange) -> None:
    await x.send_head(chunked=True)
    await x.wait_until_client_leaves()


async def _silent_after_first(x: Exchange) -> None:
    await _send_some(x, 1)
    await x.wait_until_client_leaves()


async def _slow_headers(x: Exchange) -> None:
    for i in range(len(head := x.head(chunked=True))):
        await x.send(head[i : i + 1])
        await asyncio.sleep(x.options.drip_s)
    await x.send_blocks(x.blocks)
    await x.end_chunks()


async def _endless_headers(x: Exchange) -> None:
    """One header field after another, until the client leaves."""
    await x.send(b"HTTP/1.1 200 OK\r\n")
    for i in itertools.count():
        await x.send(b"x-filler-%d: %b\r\n" % (i, b"f" * 1000))
        await asyncio.sleep(0)


async def _crlf(x: Exchange) -> None:
    x.blocks = [block.replace(b"\n", b"\r\n") for block in x.blocks]
    await x.send_answer()


async def _bytewise(x: Exchange) -> None:
    """Every byte of the response is its own write, chunk framing included."""
    for byte in x.at_once():
        await x.send(bytes([byte]))
        await asyncio.sleep(0)


async def _split_utf8(x: Exchange) -> None:
    """Text in four scripts; every character of several bytes is cut between two chunks."""
    text = "héllo 世界 🙂 ∑".encode()
    await x.send_head(chunked=True)
    for block in (b.replace(b'"text":"', b'"text":"' + text, 1) for b in x.blocks):
        cuts = [i for i, byte in enumerate(block) if 0x80 <= byte < 0xC0]
        for start, end in itertools.pairwise([0, *cuts, len(block)]):
            await x.send(x.framed(block[start:end]))
            await asyncio.sleep(0)
    await x.end_chunks()


async def _endless_event(x: Exchange) -> None:
    """An event that never ends, as fast as the client takes it: gigabytes if it lets us."""
    await x.send_head(chunked=True)
    await x.send(x.framed(b'data: {"text":"'))
    filler = x.framed(b"x" * (1 << 20))
    while x.open:
        await x.send(filler)


async def _garbage_after(x: Exchange) -> None:
    """Bytes that nobody asked for follow a whole answer, and the connection stays open."""
    await x.send_answer(then=b"\x00\xff garbage after the answer\r\n\r\n")


async def _second_response(x: Exchange) -> None:
    """A whole second answer, to no request, begins with the bytes that end the first."""
    await x.send_answer(then=x.at_once())


async def _gzip(x: Exchange) -> None:
    """A proxy that compresses what nobody asked it to."""
    body = gzip.compress(b"".join(x.blocks))
    await x.send_whole(200, "text/event-stream; charset=utf-8", body, "content-encoding: gzip\r\n")


async def _bom(x: Exchange) -> None:
    x.blocks[0] = b"\xef\xbb\xbf" + x.blocks[0]
    await x.send_answer()


async def _one_piece(x: Exchange) -> None:
    """A proxy that buffers: all events arrive at once, at the end."""
    for _ in x.blocks[1:]:
        await asyncio.sleep(x.options.event_delay_s)
    await x.send(x.at_once())


async def _huge_event(x: Exchange) -> None:
    x.blocks[0] = x.blocks[0].replace(b'"text":"', b'"text":"' + b"x" * 5_000_000, 1)
    await x.send_answer()


async def _send_some(x: Exchange, count: int) -> None:
    await x.send_head(chunked=True)
    blocks = x.blocks if len(x.blocks) > 1 else [x.blocks[0][: len(x.blocks[0]) // 2]]
    await x.send_blocks(blocks[: max(count, 1)])


async def _respond(x: Exchange, response: tuple[Any, ...]) -> None:
    await x.send_whole(*response)


# The function of any other fault has its name.
TRANSPORT: dict[Fault, Callable[[Exchange], Awaitable[None]]] = {
    **{fault: partial(_respond, response=response) for fault, response in _RESPONSES.items()},
    **{fault: globals()[name] for fault in Fault if (name := f"_{fault.name.lower()}") in globals()},
}
