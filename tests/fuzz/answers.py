"""Fuzz targets of the request path: HTTP, events and the protocols.

The oracle is a second reading of the same bytes, with another JSON parser and nothing clever: a Completion
may only hold the ids that it finds too, as many as the server counted; a TextCompletion only that text.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from harness.config.protocol import Protocol
from harness.record.outcome import Completion, Failure, Outcome, TextCompletion
from sut.ipc.messages import TokenMessageReader
from sut.wire.sse import EventReader, EventTooLargeError, NoEventError, OtherEventError
from tests.batched import read_at_once, read_batched, read_plainly
from tests.fuzz.damage import damaged, pieces, shuffled
from tests.kit import DATA, VOCABULARY, reader_of
from tests.recorded_wires import exchange

MOST_EVENT = 1 << 20
DETAIL = 2000
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LINES = (b"data", b"event", b"id", b"retry", b"")


def _events(name: str) -> list[bytes]:
    return [part + b"\n\n" for part in (DATA / name).read_bytes().split(b"\n\n") if part]


def _exchanged(name: str) -> list[bytes]:
    return [b"data: " + event + b"\n\n" for event in exchange(name).events]


CHAT = Protocol("openai", "chat", "text")
CHAT_IDS = Protocol("openai", "chat")
# protocol, blocks of a true stream, max_new_tokens
STREAMS: dict[str, tuple[Any, list[bytes], int]] = {
    "sglang-cumulative": ("sglang", _events("sglang_cumulative_interval1.txt"), 20),
    "sglang-interval": ("sglang", _events("sglang_cumulative_interval8.txt"), 20),
    "sglang-incremental": ("sglang", _events("sglang_incremental_interval1.txt"), 20),
    "sglang-eos": ("sglang", _events("sglang_eos.txt"), 20),
    "sglang-rust": ("sglang", _exchanged("sglang-0.5.23-rust/native-ids-stream"), 60),
    "sglang-rust-incremental": (
        "sglang",
        _exchanged("sglang-0.5.23-rust/native-ids-incremental-stream"),
        60,
    ),
    "openai": ("openai", _events("vllm_eos.txt"), 20),
    "openai-interval": ("openai", _events("vllm_interval8.txt"), 20),
    "llamacpp": ("llamacpp", _events("llamacpp_stream.txt"), 8),
    "chat": (CHAT, _exchanged("vllm-0.32.0/harmony-chat-stream"), 60),
    "chat-with-ids": (CHAT_IDS, _exchanged("vllm-0.32.0/harmony-chat-ids-back-stream"), 60),
    "chat-of-llamacpp": (
        Protocol("llamacpp", "chat", "text"),
        _exchanged("llamacpp-2026.10.11549/harmony-chat-stream"),
        60,
    ),
    "completions-text": (
        Protocol("sglang", "completions-text", "text"),
        _exchanged("sglang-0.5.23/completions-text-no-stop-trim-stream"),
        60,
    ),
    "openai-rust": ("openai", _exchanged("vllm-0.32.0-rust/completions-ids-back-stream"), 60),
    "generate": (Protocol("openai", "generate"), _exchanged("vllm-0.32.0/generate-stream"), 8),
    "dynamo": ("dynamo", _exchanged("dynamo-1.6.1/completions-ids-token-ids-out-stream"), 4),
}
WHOLE: dict[str, tuple[Any, bytes, int]] = {
    "sglang-whole": ("sglang", (DATA / "sglang_whole.txt").read_bytes(), 4),
    "llamacpp-whole": ("llamacpp", (DATA / "llamacpp_whole.txt").read_bytes(), 8),
    "openai-whole": ("openai", (DATA / "vllm_whole_length.txt").read_bytes(), 4),
    "chat-whole": (CHAT, exchange("vllm-0.32.0/harmony-chat").body, 60),
    "dynamo-whole": ("dynamo", exchange("dynamo-1.6.1/chat-token-data").body, 4),
}
KINDS = {"sglang": "sglang", "openai": "openai", "llamacpp": "llamacpp", "chat": CHAT, "chat-ids": CHAT_IDS}


def stream(name: str, rng: Random) -> None:
    """Blocks of a recorded stream shuffled and damaged, then framed as a server would."""
    wire, blocks, asked = STREAMS[name]
    blocks = shuffled(blocks, rng)
    response = chunked(blocks)
    if rng.random() < 0.3:
        response = damaged(response, rng)
    check(wire, response, asked, rng, streams=True)


def whole(name: str, rng: Random) -> None:
    """A damaged document with its true length, or damaged with its head."""
    wire, body, asked = WHOLE[name]
    body = damaged(body, rng)
    response = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    if rng.random() < 0.3:
        response = damaged(response, rng)
    check(wire, response, asked, rng, streams=False)


def noise(kind: str, rng: Random) -> None:
    """Bytes that are no answer at all."""
    wire = KINDS[kind]
    streams = rng.random() < 0.5
    body = rng.randbytes(rng.randrange(300))
    response = rng.choice((body, _HEAD + body, chunked([body]), chunked([b"data: " + body + b"\n\n"])))
    assert isinstance(check(wire, response, 20, rng, streams=streams), Failure)


_MEMBERS = (
    "output_ids", "meta_info", "completion_tokens", "finish_reason", "type", "error", "choices", "token_ids",
    "usage", "tokens", "stop", "stop_type", "tokens_predicted", "prompt_tokens", "delta", "message",
    "content", "reasoning", "reasoning_content", "tool_calls", "function", "arguments", "text", "role",
    "refusal",
)  # fmt: skip


def _value(rng: Random, depth: int = 0) -> object:
    """Any JSON value, most of them out of the members that the protocols read."""
    if depth < 3 and rng.random() < 0.6:
        if rng.random() < 0.3:
            return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
        return {rng.choice(_MEMBERS): _value(rng, depth + 1) for _ in range(rng.randrange(5))}
    return rng.choice((None, True, False, 7, -1, 2**70, 1.5, float("nan"), "", "stop", "\ud800"))


def values(kind: str, rng: Random) -> None:
    """Events of other members and values than any server's."""
    wire = KINDS[kind]
    streams = rng.random() < 0.7
    documents = [json.dumps(_value(rng)).encode() for _ in range(rng.randrange(1, 4))]
    blocks = [b"data: " + document + b"\n\n" for document in documents]
    check(wire, chunked(blocks if streams else documents[:1]), 20, rng, streams=streams)


def messages(_: object, rng: Random) -> None:
    """What LoadGen's process reads from a worker: any bytes in any pieces, and nothing beyond them."""
    reader = TokenMessageReader()
    for piece in pieces(rng.randbytes(rng.randrange(300)), rng):
        buffer, found = reader.feed(piece)
        for message in found:
            assert 0 <= message.offset <= message.offset + message.size <= len(buffer)


def events(_: object, rng: Random) -> None:
    """Any cut gives the same payloads, and these are what the rules of event streams say."""
    alphabet = rng.choice((b"\r\n", b"\r\n da:t", bytes(range(256))))
    data = bytes(rng.choice(alphabet) for _ in range(rng.randrange(60)))
    data = b"data: x" + data if rng.random() < 0.5 else damaged(b"".join(STREAMS["openai"][1]), rng)
    reader = EventReader(MOST_EVENT)
    expected, rest = _payloads(data)
    try:
        payloads = [payload for piece in pieces(data, rng) for payload in reader.feed(piece)]
    except (NoEventError, OtherEventError):
        assert expected is None
        return
    assert payloads == expected
    assert reader.flush() == rest.strip()
    small = EventReader(16)
    try:
        for piece in pieces(data, rng):
            small.feed(piece)
    except EventTooLargeError:
        assert len(data) > 16
    else:
        assert len(small.flush()) <= 16


def chunked(blocks: Sequence[bytes]) -> bytes:
    """The blocks as a chunked response."""
    return _HEAD + b"".join(b"%x\r\n%b\r\n" % (len(b), b) for b in blocks if b) + b"0\r\n\r\n"


def check(wire: Any, response: bytes, asked: int, rng: Random, *, streams: bool) -> Outcome:
    """Read a response in pieces; the outcome must be honest."""
    made = partial(reader_of, wire, MOST_EVENT, stream=streams, max_new_tokens=asked)
    reader, cut = made(), pieces(response, rng)
    outcome = read_at_once(reader, cut)
    assert isinstance(outcome, Completion | TextCompletion | Failure)
    if reader.first_token_ns:
        batched, _ = read_batched(made(), cut)
        plain = read_plainly(made(), cut)
        assert _shown(batched) == _shown(outcome) == _shown(plain), (batched, outcome, plain, cut)
    assert all(one < VOCABULARY for one in reader.answer.ids[:1])
    if isinstance(outcome, Failure):
        assert outcome.detail.isprintable() and len(outcome.detail) <= DETAIL, outcome
        return outcome
    body = _body(response)
    documents = _payloads(body)[0] if streams else [body]
    assert documents is not None
    if isinstance(outcome, TextCompletion):
        assert outcome.text and outcome.text == _text(documents), (outcome, response)
        assert outcome.counted in range(1, asked + 1) and outcome.counted == _counted(documents), response
        return outcome
    ids = outcome.output_ids.tolist()
    assert reader.first_event_tokens <= asked
    assert 1 <= len(ids) <= asked and min(ids) >= 0 and max(ids) < VOCABULARY
    assert ids in _readings(wire, documents), (ids, response)
    return outcome


def _shown(outcome: Outcome) -> object:
    """What an outcome says, however its bytes were read."""
    if isinstance(outcome, Failure):
        return outcome.kind
    return outcome.output_ids.tolist() if isinstance(outcome, Completion) else outcome.text


def _text(documents: Sequence[bytes]) -> str:
    """Reasoning, content and calls of tools of all documents; pieces of characters are joined."""
    parts = {"reasoning": "", "content": "", "tools": ""}
    for document in documents:
        if document == b"[DONE]":
            continue
        found = json.loads(document.decode("utf-8", "surrogateescape"), strict=False, parse_int=_integer)
        choice = (found.get("choices") or [{}])[0]
        message = choice.get("delta") or choice.get("message")
        if message is None:
            message = {} if choice.get("delta") == {} else {"content": choice.get("text")}
        parts["reasoning"] += message.get("reasoning_content") or message.get("reasoning") or ""
        parts["content"] += message.get("content") or ""
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            parts["tools"] += (function.get("name") or "") + (function.get("arguments") or "")
    text = "".join(parts.values()).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return re.sub(
        "[\udc80-\udcff]+", lambda found: found[0].encode("utf-8", "surrogateescape").decode(), text
    )


def _counted(documents: Sequence[bytes]) -> int | None:
    """The last count of tokens."""
    counts = [
        _choice(json.loads(document.decode("utf-8", "replace"), strict=False, parse_int=_integer))[1]
        for document in documents
        if document != b"[DONE]"
    ]
    return next((count for count in reversed(counts) if count is not None), None)


def _payloads(data: bytes) -> tuple[list[bytes] | None, bytes]:
    """The payloads of a stream and what is left of it; None where a complete event has a line of no event."""
    *events, rest = _LINE_END.sub(b"\n", data).split(b"\n\n")
    found = []
    for event in events:
        lines = event.removeprefix(BOM_UTF8).split(b"\n")
        fields = [line.partition(b":")[::2] for line in lines]
        types = {value.strip() for name, value in fields if name == b"event"}
        if not types <= {b"", b"message"} or any(name not in _LINES for name, _ in fields):
            return None, rest
        values = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        if values:
            found.append(b"\n".join(values))
    return found, rest


def _body(response: bytes) -> bytes:
    """The body of a response that is well-formed enough to be read at all."""
    while True:
        head, _, rest = response.partition(b"\r\n\r\n")
        if not re.match(rb"HTTP/\d\.\d 1\d\d", head):
            break
        response = rest  # an informational response before the true one
    if not re.search(rb"(?im)^transfer-encoding:\s*chunked", head):
        length = re.search(rb"(?im)^content-length:\s*(\d+)", head)
        return rest[: int(length[1])] if length else rest
    body = b""
    while size := _chunk_size(rest):
        rest = rest.partition(b"\r\n")[2]
        body, rest = body + rest[:size], rest[size + 2 :]
    return body


def _chunk_size(rest: bytes) -> int:
    found = re.match(rb"[0-9a-fA-F]+", rest)
    assert found, rest
    return int(found[0], 16)


def _readings(wire: Any, documents: Sequence[bytes]) -> list[list[int]]:
    """What the ids may be: all of the last document, or those of all documents one after another."""
    parts: list[list[int]] = []
    counts: list[int] = []
    for document in documents:
        try:
            found = json.loads(document.decode("utf-8", "replace"), strict=False, parse_int=_integer)
        except (ValueError, RecursionError):
            continue  # of a cumulative stream's inner events only the count is read
        ids, count = _PARTS.get(wire, _choice)(found if isinstance(found, dict) else {})
        parts += [ids] if ids is not None else []
        counts += [count] if count is not None else []
    readings = [*parts[-1:], [token for part in parts for token in part]]
    return [reading for reading in readings if counts and counts[-1] == len(reading)]


def _integer(digits: str) -> int:
    """Python refuses thousands of digits, also in a member that nobody reads."""
    return int(digits) if len(digits) < 4000 else -1


def _sglang(document: dict[str, Any]) -> tuple[list[int] | None, int | None]:
    return document.get("output_ids"), (document.get("meta_info") or {}).get("completion_tokens")


def _choice(document: dict[str, Any]) -> tuple[list[int] | None, int | None]:
    first = (document.get("choices") or [{}])[0]
    return first.get("token_ids"), (document.get("usage") or {}).get("completion_tokens")


def _llamacpp(document: dict[str, Any]) -> tuple[list[int] | None, int | None]:
    return document.get("tokens"), document.get("tokens_predicted")


def _nvext(document: dict[str, Any]) -> tuple[list[int] | None, int | None]:
    ids, count = _choice(document)
    return ids or (document.get("nvext") or {}).get("completion_token_ids"), count


_PARTS = {"sglang": _sglang, "llamacpp": _llamacpp, "dynamo": _nvext}
