"""Faults in how an answer is sent: each sends, or fails to send, the blocks of a rendered one."""

import asyncio
import gzip
import itertools
import json
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from .exchange import END_OF_CHUNKS, Exchange
from .faults import Fault
from .protocol import compact

Transport = Callable[[Exchange], Awaitable[None]]


def _response(status: int, kind: str, body: bytes, extra: str = "") -> Transport:
    """A complete response with further headers."""
    return lambda x: x.send_whole(status, kind, body, extra)


def _then(*parts: Transport) -> Transport:
    async def transport(x: Exchange) -> None:
        for part in parts:
            await part(x)

    return transport


async def _reset(x: Exchange) -> None:
    """Zero linger: closing sends RST instead of FIN."""
    await asyncio.sleep(0.02)  # a reset drops what the client has not read yet
    sock = x.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    x.writer.transport.abort()


async def _close(x: Exchange) -> None:
    x.writer.close()


_silence = Exchange.wait_until_client_leaves


async def _headers(x: Exchange) -> None:
    await x.send(x.head(chunked=True))


async def _half_an_event(x: Exchange) -> None:
    await x.send(_halved(x.framed(x.blocks[0])))


def _halved(parts: Any) -> Any:
    return parts[: len(parts) // 2]


def _some(count: Callable[[int], int]) -> Transport:
    """The first blocks, at least one of them; of the only one, its half."""

    async def transport(x: Exchange) -> None:
        blocks = x.blocks if len(x.blocks) > 1 else [_halved(x.blocks[0])]
        await x.send_blocks(blocks[: max(count(len(x.blocks)), 1)])

    return transport


_one_event, _half = _some(lambda of: 1), _some(lambda of: of // 2)


async def _half_a_chunk(x: Exchange) -> None:
    """The last chunk ends before the length that it announced."""
    await x.send(_halved(x.framed(x.blocks[-1])))


async def _half_a_length(x: Exchange) -> None:
    """A body with content-length that ends early."""
    body = b"".join(x.blocks)
    length = b"content-length: %d" % len(body)
    await x.send(x.head(chunked=True).replace(b"transfer-encoding: chunked", length) + _halved(body))


def _unframed(cut: Callable[[list[bytes]], bytes]) -> Transport:
    """No length and no chunks: the close itself is the only end, so a cut looks like one."""
    return lambda x: x.send(x.head(chunked=False) + cut(x.blocks))


async def _slow_headers(x: Exchange) -> None:
    for byte in x.head(chunked=True):
        await x.send(bytes([byte]))
        await asyncio.sleep(x.options.drip_s)
    await x.send_blocks(x.blocks)
    await x.send(END_OF_CHUNKS)


async def _endless_headers(x: Exchange) -> None:
    """One header field after another, until the client leaves."""
    await x.send(b"HTTP/1.1 200 OK\r\n")
    for i in itertools.count():
        await x.send(b"x-filler-%d: %b\r\n" % (i, b"f" * 1000))
        await asyncio.sleep(0)


# What only the event with the finish reason has; of llama.cpp's own the last.
_ENDS = (b'_reason":{"', b'_reason":"', b'"stop":true')


def _other_blocks(change: Callable[[list[bytes]], list[bytes]]) -> Transport:
    async def transport(x: Exchange) -> None:
        x.blocks = change(x.blocks)
        await x.send_answer()

    return transport


def _edited(change: Callable[[dict[str, Any]], Any], *, place: str = "middle") -> Transport:
    """Documents after ``change``, which may return others: in the middle, all, or that with the end."""

    def edit(block: bytes) -> bytes:
        start = b"data: " if block.startswith(b"data: ") else b""
        document = json.loads(block.removeprefix(start))
        changed = change(document)
        return start + compact(document if changed is None else changed) + (b"\n\n" if start else b"")

    def blocks(blocks: list[bytes]) -> list[bytes]:
        documents = [number for number, block in enumerate(blocks) if b"{" in block]
        last = max(n for n in documents if any(end in blocks[n] for end in _ENDS))
        chosen = {"middle": [last // 2], "all": documents, "end": [last]}[place]
        return [edit(block) if number in chosen else block for number, block in enumerate(blocks)]

    return _other_blocks(blocks)


def _answer(document: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's choice; in SGLang's and llama.cpp's own APIs the document."""
    return document["choices"][0] if "choices" in document else document


def _inner(document: dict[str, Any]) -> dict[str, Any]:
    """The same, but SGLang's ``meta_info``."""
    return document["meta_info"] if "meta_info" in document else _answer(document)


def _give(**members: Any) -> Transport:
    return _edited(lambda document: document.update(members))


def _give_inside(**members: Any) -> Transport:
    return _edited(lambda document: _inner(document).update(members))


def _give_answer(**members: Any) -> Transport:
    """Beside the ids or the text."""
    return _edited(lambda document: _answer(document).update(members))


def _refuse(document: dict[str, Any]) -> None:
    choice = _answer(document)
    choice.get("delta", choice.get("message", choice))["refusal"] = "I cannot help with that"


def _rename(document: dict[str, Any]) -> None:
    place = document.get("meta_info", document)
    key = "id" if "id" in place else "request_id"
    place[key] = place[key][:-3] + "abc"


def _remodel(document: dict[str, Any]) -> None:
    if "meta_info" in document:
        document["meta_info"]["weight_version"] = "v2"
    elif "output_mode" in document:
        document["choices"][0]["weight_versions"] = [{"version": "v2", "start": 0, "end": 1}]
    else:
        document["model"] = "another"


def _recount(document: dict[str, Any]) -> None:
    if "meta_info" in document:
        document["meta_info"]["prompt_tokens"] += 1
    elif "tokens_evaluated" in document:
        document["tokens_evaluated"] += 1
    else:
        document["usage"] = {"prompt_tokens": 99, "completion_tokens": 1, "total_tokens": 100}


def _double(document: dict[str, Any]) -> Any:
    if "choices" not in document:
        return [document, document | {"index": 1}]
    document["choices"].append(document["choices"][0] | {"index": 1})
    return None


def _without_usage(blocks: list[bytes]) -> list[bytes]:
    return [re.sub(rb',"usage":\{[^{}]*\}', b"", block) for block in blocks if not _is_usage_event(block)]


def _without_prompt_count(blocks: list[bytes]) -> list[bytes]:
    return [re.sub(rb'"(?:prompt_tokens|tokens_evaluated)":\d+,', b"", block) for block in blocks]


def _null_usage(blocks: list[bytes]) -> list[bytes]:
    return [re.sub(rb'"usage":\{[^{}]*\}', b'"usage":null', block) for block in blocks]


def _is_usage_event(block: bytes) -> bool:
    return b'"choices":[]' in block


async def _other_prompt(x: Exchange) -> None:
    """Repeats another prompt than that of the request, with as many ids, where the API repeats it."""

    def change(document: dict[str, Any]) -> None:
        choice = _answer(document)
        is_chat = "delta" in choice or "message" in choice
        (document if is_chat else choice)["prompt_token_ids"] = [7] * len(x.request.taken_ids)

    await _edited(change)(x)


def _between(*parts: bytes) -> Transport:
    """Bytes of no event between two events."""
    return _other_blocks(lambda blocks: [blocks[0], *parts, *blocks[1:]])


async def _key_twice(x: Exchange) -> None:
    """Two finish reasons, the first of them of a broken answer."""
    place = len(x.blocks) // 2 if x.request.streams else 0
    key = next(key for key in (b'"finish_reason":', b'"stop_type":', b'"stop":') if key in x.blocks[place])
    abort = b'{"type":"abort"},' if b'"meta_info"' in x.blocks[place] else b'"abort",'
    x.blocks[place] = x.blocks[place].replace(key, key + abort + key, 1)
    await x.send_answer()


def _excuse(document: dict[str, Any]) -> None:
    inner = _inner(document)
    reason = inner.get("finish_reason")
    key = "explanation" if "choices" in document else "message"  # a chat's message is its answer
    (reason if isinstance(reason, dict) else inner)[key] = "aborted by client"


def _with_trailer(trailer: bytes) -> Transport:
    async def transport(x: Exchange) -> None:
        chunks = b"".join(map(x.framed, x.blocks))
        await x.send(x.head(chunked=True) + chunks + b"0\r\n" + trailer + b"\r\n\r\n")

    return transport


async def _as_http_1_0(x: Exchange) -> None:
    await x.send(x.head(chunked=False).replace(b"HTTP/1.1", b"HTTP/1.0") + b"".join(x.blocks))


_TEXTS = (b'"text":"', b'"content":"')


def _with_text(block: bytes, text: bytes) -> bytes:
    """The event with more text before its own; one that has none is as it was."""
    key = next((key for key in _TEXTS if key in block), None)
    return block if key is None else block.replace(key, key + text, 1)


def _halved_character(blocks: list[bytes]) -> list[bytes]:
    """Half of one behind the first text, the other half before the next."""
    first, second = [n for n, block in enumerate(blocks) if any(key + b" " in block for key in _TEXTS)][:2]
    key = next(key for key in _TEXTS if key in blocks[first])
    head, _, rest = blocks[first].partition(key)
    text, _, end = rest.partition(b'"')
    changed = {first: head + key + text + rb'\ud83d"' + end, second: _with_text(blocks[second], rb"\ude42")}
    return [changed.get(number, block) for number, block in enumerate(blocks)]


async def _bytewise(x: Exchange) -> None:
    """Every byte of the response is its own write, chunk framing included."""
    for byte in x.at_once():
        await x.send(bytes([byte]))
        await asyncio.sleep(0)


async def _split_utf8(x: Exchange) -> None:
    """Text in four scripts, beside ids; every character of several bytes is cut between two chunks."""
    text = "héllo 世界 🙂 ∑".encode()
    await _headers(x)
    for block in (_with_text(block, text) if x.request.gets_ids else block for block in x.blocks):
        cuts = [i for i, byte in enumerate(block) if 0x80 <= byte < 0xC0]
        for start, end in itertools.pairwise([0, *cuts, len(block)]):
            await x.send(x.framed(block[start:end]))
            await asyncio.sleep(0)
    await x.send(END_OF_CHUNKS)


async def _endless_event(x: Exchange) -> None:
    """An event that never ends, as fast as the client takes it: gigabytes if it lets us."""
    await _headers(x)
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


async def _one_piece(x: Exchange) -> None:
    """A proxy that buffers: all events arrive at once, at the end."""
    await asyncio.sleep(x.options.event_delay_s * (len(x.blocks) - 1))
    await x.send(x.at_once())


# The function of any other fault has its name.
TRANSPORT: dict[Fault, Transport] = {
    **{fault: globals()[name] for fault in Fault if (name := f"_{fault.name.lower()}") in globals()},
    Fault.HTTP_500: _response(500, "application/json", b'{"error":{"message":"stub failure","code":500}}'),
    Fault.HTTP_500_HTML: _response(500, "text/html", b"<html><h1>500</h1>\x1b[31mnginx\x1b[0m</html>"),
    Fault.HTTP_500_EMPTY: _response(500, "application/json", b""),
    Fault.HTTP_400_JSON: _response(
        400, "application/json", b'{"message":"The input is longer than the context"}'
    ),
    Fault.HTTP_429_EMPTY: _response(429, "text/plain", b""),
    Fault.HTTP_401: _response(401, "application/json", b'{"error":{"message":"Incorrect API key provided"}}'),
    Fault.HTTP_413_HTML: _response(413, "text/html", b"<html><h1>413 Request Entity Too Large</h1></html>"),
    Fault.HTTP_404: _response(404, "application/json", b'{"detail":"Not Found"}'),
    Fault.HTTP_503: _response(503, "text/plain", b"", "retry-after: 1\r\n"),
    Fault.REDIRECT: _response(302, "text/plain", b"", "location: http://127.0.0.1:9/elsewhere\r\n"),
    Fault.EMPTY_ANSWER: _response(200, "text/event-stream; charset=utf-8", b""),
    # A captive portal or a wrong port.
    Fault.HTML: _response(200, "text/html", b"<!doctype html>\n\n<html>welcome to nginx</html>"),
    Fault.RESET_AT_ONCE: _reset,
    Fault.RESET_BEFORE_FIRST: _then(_headers, _reset),
    Fault.RESET_IN_FIRST: _then(_headers, _half_an_event, _reset),
    Fault.RESET_AFTER_FIRST: _then(_headers, _one_event, _reset),
    Fault.RESET_MIDDLE: _then(_headers, _half, _reset),
    Fault.CLOSE_AT_ONCE: _close,
    Fault.CLOSE_AFTER_HEADERS: _then(_headers, _close),
    Fault.CUT_CHUNKED: _then(_headers, _half, _close),
    Fault.CUT_IN_CHUNK: _then(_headers, _half, _half_a_chunk, _close),
    Fault.CUT_LENGTH: _then(_half_a_length, _close),
    Fault.CUT_UNFRAMED: _then(_unframed(lambda blocks: _halved(b"".join(blocks))), _close),
    Fault.CUT_UNFRAMED_BETWEEN: _then(_unframed(lambda blocks: b"".join(_halved(blocks))), _close),
    Fault.NOT_HTTP: _then(lambda x: x.send(b"\x15\x03\x01\x00\x02\x02\x46 this is no HTTP\r\n\r\n"), _close),
    Fault.SILENT: _silence,
    Fault.SILENT_AFTER_HEADERS: _then(_headers, _silence),
    Fault.SILENT_AFTER_FIRST: _then(_headers, _one_event, _silence),
    Fault.HUGE_EVENT: _other_blocks(
        lambda blocks: [blocks[0].replace(b"{", b'{"note":"' + b"x" * 5_000_000 + b'",', 1), *blocks[1:]]
    ),
    Fault.OTHER_ID: _edited(_rename, place="all"),
    Fault.ID_CHANGES: _edited(_rename),
    Fault.OTHER_MODEL: _edited(_remodel),
    Fault.OTHER_PROMPT_COUNT: _edited(_recount),
    Fault.OTHER_INDEX: _give_answer(index=1),
    Fault.TWO_ANSWERS: _edited(_double),
    Fault.ERROR_INSIDE: _give_inside(error={"message": "stub error", "code": 500}),
    Fault.ERROR_OBJECT: _give(object="error", message="stub error", code=500),
    Fault.ERRORS_BESIDE: _give(errors=["stub error"]),
    Fault.STATUS_BESIDE: _give(status_code=500),
    Fault.DETAIL_BESIDE: _give(detail="out of memory"),
    Fault.FLAG_BESIDE: _give_inside(was_preempted=True),
    Fault.MESSAGE_AT_END: _edited(_excuse, place="end"),
    Fault.TRAILER_ERROR: _with_trailer(b"X-Error: the engine has died"),
    Fault.LENGTH_TRAILER: _with_trailer(b"Content-Length: 5"),
    Fault.EVENT_ABORT: _between(b"event: abort\ndata: x\n\n"),
    Fault.EVENT_ERROR_CR: _between(b"event: error\rdata: x\r\r"),
    Fault.HTML_INSIDE: _between(b"<html><h1>502 Bad Gateway</h1></html>\n\n"),
    Fault.RESPONSE_INSIDE: _between(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"),
    Fault.AFTER_DONE: _other_blocks(lambda blocks: [*blocks, *blocks[-2:]]),
    Fault.HALF_CHARACTER: _other_blocks(lambda blocks: [_with_text(block, rb"\ud83d") for block in blocks]),
    Fault.HALVED_CHARACTER: _other_blocks(_halved_character),
    Fault.NO_USAGE: _other_blocks(_without_usage),
    Fault.NULL_USAGE: _other_blocks(_null_usage),
    Fault.UNCOUNTED_PROMPT: _other_blocks(_without_prompt_count),
    Fault.REFUSAL: _edited(_refuse),
    Fault.NO_ERRORS: _give(error=False, errors=[], detail="", warning={}),
    Fault.NEW_COUNTERS: _give_inside(kv_blocks=7, step_times=[0.5, 1.5], ranks={"dp": 1}),
    Fault.HTTP_1_0: _then(_as_http_1_0, _close),
    Fault.RESET_AFTER_ALL: _then(_as_http_1_0, _reset),
    Fault.CRLF: _other_blocks(lambda blocks: [block.replace(b"\n", b"\r\n") for block in blocks]),
    Fault.BOM: _other_blocks(lambda blocks: [b"\xef\xbb\xbf" + blocks[0], *blocks[1:]]),
}
