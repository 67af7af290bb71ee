"""A dead server behind a router: a Failure with its reason, although the router's /health stays 200."""

import pytest

from harness.config.protocol import Protocol
from harness.record.outcome import Failure, FailureKind
from tests.kit import reader_of
from tests.recorded_wires import exchange

# Streams of real servers, which the router passes on until theirs dies.
STREAMS = {
    Protocol("sglang", "generate"): "sglang-0.5.23/native-ids-stream",
    Protocol("sglang", "chat", "text"): "sglang-0.5.23/chat-stream",
    Protocol("openai", "completions"): "vllm-0.32.0/completions-ids-stream",
    Protocol("openai", "completions", "text"): "vllm-0.32.0/completions-ids-stream",
    Protocol("openai", "chat", "text"): "vllm-0.32.0/harmony-chat-stream",
}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
# How they end the stream then: SMG 1.13.0, Dynamo 1.6.1; sglang-router 0.3.2 and vllm-router 0.1.17 break it.
IN_BAND = {
    "SMG": b'{"error":{"message":"Stream error: error decoding response body","type":"stream_error"}}',
    "Dynamo": b'{"error":{"message":"Service temporarily unavailable","code":503}}',
}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def begun(protocol):
    """A reader that has taken the first events of an answer, none of which is wrong."""
    reader = reader_of(protocol, max_new_tokens=60)
    events = exchange(STREAMS[protocol]).events[:4]
    assert reader.feed(HEAD + b"".join(chunk(b"data: %b\n\n" % event) for event in events), 1) is None
    return reader


@pytest.mark.parametrize("router", IN_BAND)
@pytest.mark.parametrize("protocol", STREAMS, ids=str)
def test_a_stream_that_ends_with_the_error_of_a_router(protocol, router):
    reader = begun(protocol)
    end = chunk(b"data: %b\n\n" % IN_BAND[router]) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    outcome = reader.feed(end, 2)
    assert isinstance(outcome, Failure), outcome
    assert outcome.kind is FailureKind.IN_BAND_ERROR
    assert IN_BAND[router].split(b'"')[5].decode()[:20] in outcome.detail


@pytest.mark.parametrize("protocol", STREAMS, ids=str)
def test_a_stream_that_a_router_breaks(protocol):
    outcome = begun(protocol).closed()
    assert isinstance(outcome, Failure) and outcome.kind is FailureKind.TRUNCATED


@pytest.mark.parametrize("protocol", STREAMS, ids=str)
@pytest.mark.parametrize(("status", "body"), [(500, b"Request failed"), (503, b"No available workers")])
def test_a_router_without_servers(protocol, status, body):
    reader = reader_of(protocol)
    head = b"HTTP/1.1 %d -\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    outcome = reader.feed(head + body, 1)
    assert isinstance(outcome, Failure) and outcome.kind is FailureKind.HTTP_STATUS
    assert f"{status}: {body.decode()}" in outcome.detail
