"""One HTTP response, fed in every cut: framing, statuses, and the times of what arrived."""

import gzip
import json

import numpy as np
import pytest

from harness.record.outcome import Completion, Failure, FailureKind
from sut.client.response import ResponseReader
from sut.client.transport import RECEIVE_BYTES
from sut.wire.answer_checks import MAX_DETAIL
from sut.wire.sse import DONE, EVENT_END
from tests.kit import DATA, assert_failed, reader_of, wire_of
from tests.sut.wire.judging import GREEDY, LLAMACPP, VLLM, cumulative

SGLANG_HTTP, PYTORCH_HTTP, VLLM_HTTP, LLAMA_HTTP = (
    (DATA / f"{name}_http_response.txt").read_bytes() for name in ("sglang", "pytorch", "vllm", "llamacpp")
)
EVENTS = [b"data: %b\n\n" % event for event in (*cumulative(1, 2, 3), DONE)]
STREAM = b"".join(EVENTS)
WHOLE = (DATA / "sglang_whole.txt").read_bytes()
OK = b"HTTP/1.1 200 OK\r\n"
EVENT_STREAM = b"content-type: text/event-stream\r\n"
# How many tokens the recorded answers that end with "length" were asked for.
ASKED = {("sglang", True): 20, ("sglang", False): 4, ("llamacpp", True): 8, ("openai", True): 4}


def reader(streams=True, wire="sglang", max_bytes=None):
    asked = ASKED.get((wire, streams), 20)
    return reader_of(wire, max_bytes, stream=streams, max_new_tokens=asked)


def run(pieces, streams=True, wire="sglang", max_bytes=None):
    """The outcome, with the close of the connection after the last piece."""
    response = reader(streams, wire, max_bytes)
    for when, piece in enumerate(pieces, start=1):
        outcome = response.feed(piece, when)
        if outcome is not None:
            return outcome
    return response.closed()


def sized(body, status=b"200 OK", more=b""):
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


def chunked(*blocks, more=b""):
    framed = b"".join(b"%x\r\n%b\r\n" % (len(block), block) for block in blocks)
    return OK + EVENT_STREAM + b"transfer-encoding: chunked\r\n" + more + b"\r\n" + framed + b"0\r\n\r\n"


def until_close(body):
    return OK + EVENT_STREAM + b"connection: close\r\n\r\n" + body


THREE = (True, "sglang", GREEDY[:3])
TRAILER = b"0;last\r\nx-took: 3\r\n\r\n"
INFORMATIONAL = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
# name: bytes, streams, wire, ids. Those that end with the connection are told apart below.
VALID = {
    "recorded SGLang": (SGLANG_HTTP, True, "sglang", GREEDY),
    "recorded PyTorch": (PYTORCH_HTTP, True, "sglang", [140, 190, 47, 175]),
    "recorded vLLM": (VLLM_HTTP, True, "openai", VLLM),
    "recorded llama.cpp": (LLAMA_HTTP, True, "llamacpp", LLAMACPP),
    "content-length": (sized(STREAM), *THREE),
    "an event a chunk": (chunked(*EVENTS), *THREE),
    "one chunk": (chunked(STREAM), *THREE),
    "chunks that split events": (chunked(STREAM[:100], STREAM[100:101], STREAM[101:]), *THREE),
    "chunk extension and trailer": (TRAILER.join(chunked(*EVENTS).rsplit(b"0\r\n\r\n", 1)), *THREE),
    "100 continue before": (b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(*EVENTS), *THREE),
    "two informational before": (INFORMATIONAL + chunked(*EVENTS), *THREE),
    "whole JSON": (sized(WHOLE), False, "sglang", GREEDY[:4]),
    "whole JSON, chunked": (chunked(WHOLE[:99], WHOLE[99:]), False, "sglang", GREEDY[:4]),
    "no end mark": (chunked(*EVENTS[:-1]), *THREE),
    "crlf events": (chunked(STREAM.replace(b"\n", b"\r\n")), *THREE),
}


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.engine)])
def test_cut_at_every_byte(name, thorough):
    """The bytes up to the cut give no outcome, and a close there a Failure; the rest completes them.

    In the quick loop at every byte around a line end, and at every 13th.
    """
    data, streams, wire, ids = VALID[name]
    assert run([data[i : i + 1] for i in range(len(data))], streams, wire).output_ids.tolist() == ids
    for cut in range(len(data)):
        if not (thorough or cut % 13 == 0 or b"\n" in data[cut - 2 : cut + 2]):
            continue
        response = reader(streams, wire)
        complete = response.feed(data[:cut], 1) if cut else None
        if complete is not None:  # llhttp ends a trailer-less body at the last chunk's first line end
            assert data[cut:] in (b"\n", b"\r\n"), (cut, complete)
        else:
            complete = response.feed(data[cut:], 2)
            closed = run([data[:cut]] if cut else [], streams, wire)
            assert_failed(closed, FailureKind.TRUNCATED if cut else FailureKind.NO_RESPONSE)
        assert isinstance(complete, Completion), (cut, complete)
        assert complete.output_ids.tolist() == ids
        assert complete.output_ids.dtype == np.int32


def run_holding(pieces, wire="sglang"):
    """The outcome where all is held that may be, once the first token is there; and the number of pieces."""
    response, held = reader(wire=wire), 0
    for when, piece in enumerate(pieces, start=1):
        if response.first_token_ns and response.holds and piece.endswith(EVENT_END):
            response.hold(piece, when)
            held += 1
        elif (outcome := response.feed(piece, when)) is not None:
            return outcome, held
    return response.closed(), held


def event(ids, count, more=b"null", after=b""):
    """One incremental event of SGLang in one chunk."""
    meta = b'{"finish_reason":%b,"prompt_tokens":3,"completion_tokens":%d}' % (more, count)
    data = b'data: {"text":"","output_ids":%b,"meta_info":%b%b}\n\n' % (json.dumps(ids).encode(), meta, after)
    return b"%x\r\n%b\r\n" % (len(data), data)


HEAD = OK + EVENT_STREAM + b"transfer-encoding: chunked\r\n\r\n"
STOP = b'{"type":"stop"}'
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
TWO, LAST = [HEAD + event([1, 2], 2), event([3, 4], 4)], event([7], 7, STOP)
# name: pieces as they arrive, how many of them are held.
HELD = {
    "complete": ([*TWO, event([5, 6], 6), LAST + END], 2),
    "the end in pieces": ([*TWO, event([5, 6], 6), LAST, END[:-4], END[-4:-1], END[-1:]], 3),
    "two events in one read": ([*TWO, event([5], 5) + event([6], 6), LAST, END], 3),
    "an event in two reads": ([*TWO, event([5, 6], 6)[:50], event([5, 6], 6)[50:], LAST + END], 2),
    "broken JSON": ([*TWO, event([5, 6], 6, b"nul"), LAST + END], 2),
    "an id lost": ([*TWO, event([6], 6), LAST + END], 2),
    "an event again": ([*TWO, TWO[1], LAST + END], 2),
    "an error": ([*TWO, event([5, 6], 6, after=b',"error":{"message":"full"}'), LAST + END], 2),
    "a wrong id": ([*TWO, event([-5, 6], 6), LAST + END], 2),
    "an event after the end": ([*TWO, event([5], 5, STOP), event([6], 6), END], 3),
    "another finish reason": ([*TWO, event([5, 6], 6, b'{"type":"abort"}'), LAST + END], 2),
    "a broken chunk": ([*TWO, b"zz" + event([5, 6], 6), LAST + END], 2),
    "closed after an event": ([*TWO, event([5, 6], 6)], 2),
    "closed inside an event": ([*TWO, event([5, 6], 6), LAST[:60]], 2),
    "no finish reason": ([*TWO, event([5, 6], 6) + END], 1),
}


@pytest.mark.parametrize("name", HELD)
def test_what_is_held_is_checked_like_the_rest(name):
    pieces, number = HELD[name]
    expected, (outcome, held) = run(pieces), run_holding(pieces)
    assert held == number
    if isinstance(expected, Completion):
        assert outcome.output_ids.tolist() == expected.output_ids.tolist()
    else:
        assert_failed(outcome, expected.kind)


@pytest.mark.parametrize("later", [END[: -len(b"0\r\n\r\n")], event([8], 8)], ids=["mark", "event"])
def test_nothing_may_follow_the_end_mark_in_a_later_read(later):
    mark, end = END[: -len(b"0\r\n\r\n")], b"0\r\n\r\n"
    outcome = run([*TWO, event([5, 6], 6), LAST, mark, later + end])
    assert_failed(outcome, FailureKind.AFTER_END, "after the end mark")


def test_what_is_held_is_parsed_on_request():
    response = reader_of("sglang", stream=True, max_new_tokens=1 << 20)
    response.feed(HEAD + event([1], 1), 1)
    response.hold(event([1], 2), 2)
    response.hold(event([1], 3), 3)
    assert (response.answer.tokens, response.last_byte_ns) == (1, 3)
    assert response.parse_held() is None
    assert (response.answer.tokens, response.last_byte_ns) == (3, 3)


def test_a_recorded_vllm_that_was_ended_in_the_middle():
    """SIGTERM: the stream ends well, with its usage and end mark, but for the finish reason."""
    data = (DATA / "vllm_http_aborted.txt").read_bytes()
    assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    response = reader_of("openai", max_new_tokens=4000)
    assert_failed(response.feed(data, 1), FailureKind.ABORTED, "63 tokens")


def test_until_close_cut_at_every_byte():
    """Only the close ends such a body: it completes when every id has come, and never with fewer."""
    data = until_close(STREAM)
    last_event = data.index(b"data: [DONE]")
    for cut in range(len(data) + 1):
        outcome = run([data[:cut]])
        if cut in (last_event, len(data)):
            assert isinstance(outcome, Completion), (cut, outcome)
            assert outcome.output_ids.tolist() == GREEDY[:3]
        else:
            assert isinstance(outcome, Failure), (cut, outcome)
    assert isinstance(run([b"HTTP/1.0 200 OK\r\n\r\n" + STREAM]), Completion)


def test_whole_json_until_close_is_complete_or_failed():
    for cut in range(len(WHOLE)):
        assert isinstance(run([until_close(WHOLE[:cut])], streams=False), Failure), cut
    assert_failed(run([until_close(WHOLE[:-9])], streams=False), FailureKind.TRUNCATED)
    for head in (until_close(b""), b"HTTP/1.0 200 OK\r\n\r\n"):
        assert isinstance(run([head + WHOLE], streams=False), Completion)


@pytest.mark.parametrize(("body", "streams", "complete"), [(STREAM, True, STREAM), (WHOLE, False, WHOLE)])
def test_a_connection_that_breaks_is_an_end_where_the_content_shows_one(body, streams, complete):
    """The same over TLS as over TCP; a body with framing never ends so."""
    for cut in range(len(body) + 1):
        response = reader(streams)
        assert response.feed(until_close(body[:cut]), 1) is None
        assert isinstance(response.broken(), Completion) == (body[:cut] == complete), cut
        framed = reader(streams)
        assert framed.feed(sized(body + b" ")[: -1 - len(body) + cut], 1) is None
        assert framed.broken() is None


TRAILERS = {
    b"X-Error: the engine has died": FailureKind.IN_BAND_ERROR,
    b"grpc-status: 13": FailureKind.IN_BAND_ERROR,
    b"grpc-status: 0\r\ngrpc-message: boom": FailureKind.IN_BAND_ERROR,
    b"Content-Length: 5\r\nX-Error: boom": FailureKind.IN_BAND_ERROR,
    b"x-note: half of it": FailureKind.IN_BAND_ERROR,
    b"x-status: 500": FailureKind.IN_BAND_ERROR,
    b"grpc-status: 0": None,
    b"Content-Length: 5": None,
    b"Server-Timing: total;dur=5": None,
    b"x-took: 3.5": None,
    b"x-error:": None,
}


@pytest.mark.parametrize("trailer", TRAILERS)
def test_trailers(trailer):
    for body, streams in ((STREAM, True), (WHOLE, False)):
        data = chunked(body)[:-2] + trailer + b"\r\n\r\n"
        for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
            outcome = run(pieces, streams)
            if (kind := TRAILERS[trailer]) is None:
                assert isinstance(outcome, Completion), outcome
            elif pieces == [data] or b"Content-Length" not in trailer:  # llhttp reads no further
                assert_failed(outcome, kind)


# LiteLLM 1.108.7 has retries and fallbacks on all answers, the key on those of its cache. Envoy documents its
# count (include_attempt_count_in_response), Cloudflare and CloudFront theirs.
HEADERS = {
    b"x-litellm-attempted-retries: 2": "an earlier attempt at it failed",
    b"x-litellm-attempted-fallbacks: 1": "an earlier attempt at it failed",
    b"X-Envoy-Attempt-Count: 2": "an earlier attempt at it failed",
    b"x-litellm-cache-key: 970d468f": "it is from a cache",
    b"CF-Cache-Status: HIT": "it is from a cache",
    b"X-Cache: Hit from cloudfront": "it is from a cache",
    b"Cache-Status: OriginCache; hit; ttl=1100": "it is from a cache",  # RFC 9211
    b"X-Prefix-Cache: hit": "",
    b"x-litellm-attempted-retries: 0\r\nx-litellm-attempted-fallbacks: 0\r\nx-litellm-max-retries: 2": "",
    b"x-envoy-attempt-count: 1": "",
    b"Cache-Control: no-cache\r\nX-Cache: MISS\r\nCF-Cache-Status: DYNAMIC": "",
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_proxy_that_says_that_an_answer_is_not_the_first(header):
    said = HEADERS[header]
    for answer, streams in (
        (chunked(*EVENTS, more=header + b"\r\n"), True),
        (sized(WHOLE, more=header + b"\r\n"), False),
    ):
        outcome = run([answer], streams)
        if said:
            assert_failed(outcome, FailureKind.IN_BAND_ERROR, said)
        else:
            assert isinstance(outcome, Completion), outcome
    assert_failed(run([sized(b"busy", b"503 Busy", header + b"\r\n")]), FailureKind.HTTP_STATUS, "503: busy")


AFTER_THE_END_MARK = [EVENTS[0], EVENTS[-1], b"data: {}\n\n", b'data: {"error":"late"}\n\n']


@pytest.mark.parametrize("event", AFTER_THE_END_MARK)
def test_nothing_follows_the_end_mark_in_a_body(event):
    for body in (STREAM + event, EVENTS[0] + EVENTS[-1] + event):
        assert_failed(run([chunked(body)]), FailureKind.AFTER_END)
        assert_failed(run([chunked(body[: len(body) - len(event)], event)]), FailureKind.AFTER_END)
    assert isinstance(run([chunked(STREAM + b": ping\n\n")]), Completion)


JSON_ERROR = b'{"error":{"message":"boom"}}'
STATUSES = {
    "json": (sized(JSON_ERROR, b"500 Internal Server Error"), "HTTP 500", "boom"),
    "html": (sized(b"<h1>Bad Gateway</h1>\x1b[31m", b"502 Bad Gateway"), "HTTP 502", "Bad Gateway"),
    "empty": (sized(b"", b"503 Service Unavailable", b"retry-after: 1\r\n"), "HTTP 503", ""),
    "redirect": (sized(b"", b"302 Found", b"location: http://x/\r\n"), "HTTP 302", ""),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", "HTTP 204", ""),
    "accepted": (sized(STREAM, b"202 Accepted"), "HTTP 202", ""),
    "no reason phrase": (sized(JSON_ERROR, b"500 "), "HTTP 500", "boom"),
    "binary": (sized(bytes(range(256)), b"500 X"), "HTTP 500", ""),
    "chunked": (chunked(JSON_ERROR).replace(b"200 OK", b"400 Bad Request"), "HTTP 400", "boom"),
    "until close": (b"HTTP/1.1 500 X\r\nconnection: close\r\n\r\n" + JSON_ERROR, "HTTP 500", "boom"),
    "until close, HTTP/1.0": (b"HTTP/1.0 503 X\r\n\r\nno slot is free", "HTTP 503", "no slot is free"),
    "until close, empty": (b"HTTP/1.1 500 X\r\n\r\n", "HTTP 500", ""),
    "a large page": (sized(b"<p>boom</p>" * 100_000, b"500 X"), "HTTP 500", "boom"),
}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("name", STATUSES)
def test_statuses(name, streams):
    data, status, wording = STATUSES[name]
    for pieces in ([data], [data[i : i + 1000] for i in range(0, len(data), 1000)]):
        outcome = run(pieces, streams)
        assert_failed(outcome, FailureKind.HTTP_STATUS, status)
        assert wording in outcome.detail and not outcome.detail.endswith(": ")


GARBAGE = {
    "tls alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "smtp": b"220 mail ESMTP\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "http/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http/2 settings": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
    "zeros": bytes(100),
    "bad chunk size": OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    "negative length": OK + b"content-length: -5\r\n\r\nabc",
    "two lengths": OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "length and chunks": OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "header without colon": OK + b"oops\r\n\r\n",
    "status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "switching protocols": b"HTTP/1.1 101 X\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_answer_fails(name):
    data = GARBAGE[name]
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        assert_failed(run(pieces), FailureKind.HTTP_PROTOCOL)


FOLLOWING = {
    "garbage": b"garbage",
    "an error response": sized(JSON_ERROR, b"500 X"),
    "the same response": chunked(*EVENTS),
    "another stream": chunked(b'data: {"error":"late"}\n\n'),
    "half a response": b"HTTP/1.1 200",
    "an upgrade": GARBAGE["switching protocols"],
}


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("framed", [chunked(*EVENTS), sized(STREAM)])
def test_bytes_after_the_answer_do_not_change_it_but_end_the_connection(name, framed):
    response = reader()
    outcome = response.feed(framed + FOLLOWING[name], 1)
    assert isinstance(outcome, Completion), outcome
    assert outcome.output_ids.tolist() == GREEDY[:3]
    assert not response.reusable


@pytest.mark.parametrize(
    ("data", "reusable"),
    [
        (chunked(*EVENTS), True),
        (sized(STREAM), True),
        (sized(STREAM, more=b"content-encoding: identity\r\n"), True),
        (chunked(*EVENTS, more=b"connection: keep-alive\r\n"), True),
        (chunked(*EVENTS, more=b"connection: close\r\n"), False),
        (chunked(*EVENTS, more=b"Connection: Close\r\n"), False),
        (sized(STREAM, more=b"connection: close\r\n"), False),
        (sized(STREAM).replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (sized(STREAM, more=b"connection: keep-alive\r\n").replace(b"HTTP/1.1", b"HTTP/1.0"), True),
        (SGLANG_HTTP, False),
    ],
)
def test_reusable(data, reusable):
    response = reader()
    assert not response.reusable
    assert response.feed(data[:-3], 1) is None
    assert not response.reusable
    assert isinstance(response.feed(data[-3:], 2), Completion)
    assert response.reusable is reusable


def test_times_are_those_of_the_feed_that_held_the_byte():
    response = reader()
    head, *chunks = [OK + b"transfer-encoding: chunked\r\n\r\n", *EVENTS]
    framed = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks]
    assert response.feed(head[:4], 10) is None
    assert response.feed(head[4:], 20) is None
    assert (response.first_byte_ns, response.first_token_ns, response.answer.tokens) == (10, 0, 0)
    assert response.feed(framed[0][:-9], 30) is None
    assert (response.first_token_ns, list(response.answer.ids)) == (0, [])
    assert response.feed(framed[0][-9:], 40) is None
    assert (response.first_token_ns, response.first_event_tokens) == (40, 1)
    assert list(response.answer.ids) == GREEDY[:1]
    assert response.feed(framed[1] + framed[2], 50) is None
    assert response.feed(framed[3], 60) is None
    assert isinstance(response.feed(b"0\r\n\r\n", 70), Completion)
    assert (response.first_byte_ns, response.first_token_ns, response.last_byte_ns) == (10, 40, 70)


def test_times_of_an_answer_in_one_piece_and_of_a_body_until_close():
    response = reader()
    assert isinstance(response.feed(chunked(*EVENTS), 5), Completion)
    assert (response.first_byte_ns, response.first_token_ns, response.last_byte_ns) == (5, 5, 5)
    assert response.first_event_tokens == 3  # what came with the first one
    unframed = reader()
    unframed.feed(until_close(STREAM), 4)
    assert isinstance(unframed.closed(), Completion)
    assert (unframed.first_token_ns, unframed.last_byte_ns) == (4, 4)


def test_times_of_a_whole_answer():
    whole = reader(streams=False)
    data = sized(WHOLE)
    assert whole.feed(data[:-1], 3) is None
    assert whole.first_token_ns == 0
    assert isinstance(whole.feed(data[-1:], 9), Completion)
    assert (whole.first_byte_ns, whole.first_token_ns, whole.last_byte_ns) == (3, 9, 9)
    assert (whole.answer.ids[0], whole.first_event_tokens) == (GREEDY[0], 4)


def test_the_first_failure_stays():
    bad = b'data: {"error":"boom"}\n\n'
    response = reader()
    assert_failed(response.feed(chunked(EVENTS[0], bad, *EVENTS[1:]), 1), FailureKind.IN_BAND_ERROR, "boom")
    assert_failed(response.closed(), FailureKind.IN_BAND_ERROR, "boom")


@pytest.mark.parametrize("claimed", [10**6, 10**15, 2**63, -1])
def test_a_wrong_count_of_a_whole_answer_leaves_no_trace_in_the_first_event(claimed):
    """first_event_tokens goes into 32 bits of the journal."""
    document = json.loads(WHOLE)
    document["meta_info"]["completion_tokens"] = claimed
    response = reader(streams=False)
    assert_failed(response.feed(sized(json.dumps(document).encode()), 1), FailureKind.TOKEN_COUNT)
    assert response.first_event_tokens < 2**32


@pytest.mark.parametrize("streams", [True, False])
def test_an_endless_event_or_answer_is_too_large(streams):
    head = OK + (EVENT_STREAM + b"\r\ndata: " if streams else b"content-length: 100000\r\n\r\n")
    outcome = run([head, *[b"x" * 1000] * 10], streams, max_bytes=5000)
    assert_failed(outcome, FailureKind.TOO_LARGE, "5000 bytes")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"no \xc3\xb6 here", "no ö here"),
        (b"a\tb\n\x1b[31m\xff", r"a\tb\n\x1b[31m\xff"),
        (b"x" * (MAX_DETAIL + 1), "x" * MAX_DETAIL + "…"),
    ],
)
def test_what_a_server_says_is_one_printable_line(body, shown):
    outcome = reader().feed(sized(body, b"500 Internal Server Error"), 1)
    assert (outcome.kind, outcome.detail) == (FailureKind.HTTP_STATUS, f"HTTP 500: {shown}")


@pytest.mark.parametrize("streams", [True, False])
def test_a_long_answer_is_not_too_large(streams):
    """20 000 tokens of 100 bytes, and their ids, in one event."""
    document = json.loads(WHOLE)
    document["text"], document["output_ids"] = "x" * 2_000_000, [199_998] * 20_000
    document["meta_info"]["completion_tokens"] = 20_000
    body = json.dumps(document).encode()
    sent = chunked(b"data: %b\n\n" % body, EVENTS[-1]) if streams else sized(body)
    response = reader_of("sglang", stream=streams, max_new_tokens=20_000)
    starts = range(0, len(sent), RECEIVE_BYTES)
    *others, outcome = (response.feed(sent[start : start + RECEIVE_BYTES], 1) for start in starts)
    assert others == [None] * len(others)
    assert isinstance(outcome, Completion), outcome
    assert len(outcome.output_ids) == 20_000


def test_an_event_cut_off_inside_a_framed_body():
    assert_failed(run([chunked(*EVENTS[:2], EVENTS[2][:50])]), FailureKind.TRUNCATED, "2 tokens")


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("body", "more", "wording"),
    [
        (gzip.compress(b"", mtime=0), b"content-encoding: gzip\r\n", "compressed"),
        (STREAM, b"Content-Encoding: br\r\n", "compressed"),
        (b"<html>\n\nwelcome</html>", b"content-type: text/html\r\n", "JSON"),
        (b"welcome", b"content-type: text/plain\r\n", "JSON"),
    ],
)
def test_what_is_no_json_is_named_so(streams, body, more, wording):
    assert_failed(run([sized(body, more=more)], streams), FailureKind.MALFORMED, wording)


def test_one_document_where_a_stream_was_asked_for():
    assert_failed(run([sized(JSON_ERROR)]), FailureKind.IN_BAND_ERROR, "boom")
    assert_failed(run([sized(WHOLE)]), FailureKind.MALFORMED, WHOLE[:20].decode())


@pytest.mark.parametrize("cut", range(12))
def test_a_byte_order_mark_hides_no_event(cut):
    data = chunked(b"\xef\xbb\xbf" + STREAM)
    start = data.index(b"\xef") - 3 + cut
    response = reader()
    assert response.feed(data[:start], 1) is None
    outcome = response.feed(data[start:], 2)
    assert isinstance(outcome, Completion)
    assert outcome.output_ids.tolist() == GREEDY[:3]
    assert run([sized(b"\xef\xbb\xbf" + WHOLE)], streams=False).output_ids.tolist() == GREEDY[:4]


@pytest.mark.parametrize("field", [b"event: error", b"event:error", b"id: 7\nevent: error"])
def test_an_event_of_the_type_error(field):
    body = EVENTS[0] + field + b'\ndata: {"message":"boom"}\n\n' + b"".join(EVENTS[1:])
    assert_failed(run([chunked(body)]), FailureKind.IN_BAND_ERROR, "boom")


@pytest.mark.parametrize(
    ("text_after", "cuts", "seen"),
    [
        (0, 1, (1, 1, 1, 1)),
        (1, 1, (1, 1, 2, 2)),
        (2, 1, (1, 1, 3, 3)),
        (3, 1, (1, 1, 0, 0)),  # all tokens are framing
        (1, 2, (1, 2, 1, 2)),  # two events in one read
        (2, 2, (1, 2, 2, 3)),
    ],
)
def test_the_first_text_is_that_of_the_event_behind_the_framing(text_after, cuts, seen):
    wire = wire_of()
    response = ResponseReader(
        wire.answer(), streams=True, max_event_bytes=wire.max_event_bytes, text_after=text_after
    )
    head = OK + EVENT_STREAM + b"connection: close\r\n\r\n"
    pieces = [b"".join(EVENTS[at : at + cuts]) for at in range(0, len(EVENTS), cuts)]
    for when, piece in enumerate([head + pieces[0], *pieces[1:]], start=1):
        assert response.feed(piece, when) is None
    assert isinstance(response.closed(), Completion)
    found = (response.first_token_ns, response.first_event_tokens, response.visible_ns)
    assert (*found, response.visible_tokens) == seen
