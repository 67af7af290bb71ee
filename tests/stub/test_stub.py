"""The stub against a foreign reader, http.client, and what a real server sent.

tests/sut/client/test_client_failures.py shows what each fault is to a client; here is what it would not see.
"""

import http.client
import json
import socket
import sys
from contextlib import contextmanager

import pytest

from harness.dataset import tokenizer
from tests.kit import DATA
from tests.recorded_wires import exchange
from tests.stub import Facts, Fault, StubServer, expected_ids, expected_words

PROMPT = [200006, 17360, 200008, 5]


@contextmanager
def connection(stub):
    conn = http.client.HTTPConnection("127.0.0.1", stub.port, timeout=60)
    try:
        yield conn
    finally:
        conn.close()


def post(conn, stream=True):
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 8}, "stream": stream}
    conn.request("POST", "/generate", json.dumps(body))
    return conn.getresponse()


def events(body):
    assert body.endswith(b"data: [DONE]\n\n")
    return [json.loads(part.removeprefix(b"data: ")) for part in body.split(b"\n\n")[:-2]]


# The published check value: CRC-32 of "123456789" is 0xCBF43926 = 3421780262.
def test_expected_ids_are_the_documented_rule():
    assert expected_ids([123456789], 4) == [81262, 89181, 97100, 5019]


def test_cumulative_stream():
    with StubServer(tokens_per_event=3) as stub, connection(stub) as conn:
        response = post(conn)
        assert response.getheader("transfer-encoding") == "chunked"
        got = events(response.read())
    assert [len(event["output_ids"]) for event in got] == [1, 4, 7, 8]
    assert got[-1]["output_ids"] == expected_ids(PROMPT, 8)
    assert [event["meta_info"]["finish_reason"] for event in got[:-1]] == [None] * 3
    assert got[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 8}
    assert got[-1]["meta_info"]["prompt_tokens"] == 4
    assert stub.requests[0].prompt_ids == PROMPT
    assert stub.requests[0].answered


@pytest.mark.parametrize("announce", [True, False])
def test_close_after_response(announce):
    with StubServer(close_after_response=True, announce_close=announce) as stub, connection(stub) as conn:
        assert post(conn).getheader("connection") == ("close" if announce else None)


def test_pages():
    facts = {"/get_model_info": ("model_path", "openai/gpt-oss-120b"), "/model_info": ("is_generation", True)}
    facts |= {"/get_server_info": ("dp_size", 4), "/server_info": ("context_length", 131072)}
    statuses = {"/health": 503, "/v1/models": 200, "/nowhere": 404} | dict.fromkeys(facts, 200)
    with StubServer(facts=Facts(dp_size=4), healthy=False) as stub, connection(stub) as conn:
        for path, status in statuses.items():
            conn.request("GET", path)
            response = conn.getresponse()
            body = response.read()
            assert response.status == status
            if path in facts:
                key, value = facts[path]
                assert json.loads(body)[key] == value
        assert stub.requests == []
    with StubServer(api_key="secret") as stub, connection(stub) as conn:
        assert post(conn).status == 401


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", [Fault.RESET_AT_ONCE, Fault.RESET_MIDDLE])
def test_reset(fault, stream):
    with StubServer(faults=fault) as stub, connection(stub) as conn:
        with pytest.raises(ConnectionResetError) as raised:
            post(conn, stream).read()
        assert raised.type is ConnectionResetError  # of a FIN http.client makes one of its own


def test_completions_have_the_members_that_vllm_sends():
    prompt = [128000, 403]
    body = {"model": "m", "prompt": prompt, "max_tokens": 4, "return_token_ids": True, "stream": True}
    body |= {"stream_options": {"include_usage": True}}
    with StubServer() as stub, connection(stub) as conn:
        conn.request("POST", "/v1/completions", json.dumps(body))
        ours = events(conn.getresponse().read())
    recorded = events((DATA / "vllm_length.txt").read_bytes())
    assert len(ours) == len(recorded) == 5  # four tokens and the usage
    assert [i for event in ours[:-1] for i in event["choices"][0]["token_ids"]] == expected_ids(prompt, 4)
    assert ours[-2]["choices"][0]["finish_reason"] == recorded[-2]["choices"][0]["finish_reason"] == "length"
    assert ours[-1]["usage"] == {"prompt_tokens": 2, "total_tokens": 6, "completion_tokens": 4}
    for mine, real in zip(ours, recorded, strict=True):
        assert mine.keys() <= real.keys()
        assert [choice.keys() for choice in mine["choices"]] == [choice.keys() for choice in real["choices"]]
    prompts = [event["choices"][0]["prompt_token_ids"] for event in ours[:-1]]
    assert prompts == [prompt, None, None, None]


def shape(value, path=""):
    """Where in a document something other than null stands, lists taken together."""
    if isinstance(value, dict):
        return set().union(*(shape(inner, f"{path}.{name}") for name, inner in value.items()))
    if isinstance(value, list):
        return {path}.union(*(shape(inner, path) for inner in value))
    return set() if value is None else {path}


FORMS = [
    "vllm-0.32.0/completions-ids",
    "vllm-0.32.0/completions-text",
    "vllm-0.32.0/completions-text-ids-back",
    "vllm-0.32.0/chat",
    "vllm-0.32.0/chat-ids-back",
    "vllm-0.32.0/generate",
    "sglang-0.5.23/completions-text-length",
    "sglang-0.5.23/chat-length",
    "sglang-0.5.23/native-ids",
    "llamacpp-2026.10.11549/native-ids",
    "llamacpp-2026.10.11549/completions-text",
    "llamacpp-2026.10.11549/chat",
    "dynamo-1.6.1/completions-ids-extra",
    "dynamo-1.6.1/chat-token-data",
]


@pytest.mark.parametrize("stream", ["", "-stream"])
@pytest.mark.parametrize("name", FORMS)
def test_the_forms_of_real_servers(name, stream):
    """The stub, asked the same, says nothing in a place where the recorded server says nothing."""
    recorded = exchange(name + stream)
    with StubServer(tokens=3) as stub, connection(stub) as conn:
        conn.request("POST", recorded.path, json.dumps(recorded.request), {"X-Request-Id": "q-000017"})
        body = conn.getresponse().read()
    ours, theirs = (events(body), recorded.chunks) if stream else (json.loads(body), recorded.answer)
    assert shape(ours) <= shape(theirs)


ASKED = [{"role": "user", "content": " one two"}]
TEXT_IN = {
    "/v1/completions": {"prompt": " one two"},
    "/v1/chat/completions": {"messages": ASKED},
}


@pytest.mark.parametrize("path", TEXT_IN)
def test_a_text_encodes_to_the_ids_that_it_is_of(path):
    """Cut anywhere into parts and events, and counted as these ids."""
    body = TEXT_IN[path] | {"max_tokens": 40, "stream": True, "stream_options": {"include_usage": True}}
    with (
        StubServer(tokens_per_event=3, parts=("reasoning_content", "content")) as stub,
        connection(stub) as conn,
    ):
        conn.request("POST", path, json.dumps(body))
        got = events(conn.getresponse().read())
    said = [choice.get("delta", choice) for event in got for choice in event["choices"]]
    text = "".join(
        part.get("reasoning_content") or part.get("content") or part.get("text") or "" for part in said
    )
    prompt = tokenizer.encode(" one two")
    assert stub.requests[0].prompt_ids == prompt
    assert tokenizer.encode(text) == expected_words(prompt, 40)
    assert not text.isascii()
    assert got[-1]["usage"] == {"prompt_tokens": 2, "total_tokens": 42, "completion_tokens": 40}
    assert path == "/v1/completions" or {"reasoning_content", "content"} <= {
        key for part in said for key in part
    }


def test_ids_in_a_chat_are_ignored_by_some_servers():
    body = {"messages": [], "prompt_token_ids": PROMPT, "max_tokens": 2}
    for knows, prompt_tokens in ((True, len(PROMPT)), (False, 8)):
        with StubServer(chat_ids=knows) as stub, connection(stub) as conn:
            conn.request("POST", "/v1/chat/completions", json.dumps(body))
            assert json.loads(conn.getresponse().read())["usage"]["prompt_tokens"] == prompt_tokens
            assert stub.requests[0].prompt_ids == PROMPT


def test_as_many_may_connect_at_once_as_a_client_does():
    """Linux tells a listener's limit in tcpi_sacked; asyncio sets one of its own."""
    with StubServer() as stub, connection(stub) as conn:
        conn.request("GET", "/health")
        conn.getresponse().read()
        info = stub._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    assert int.from_bytes(info[28:], sys.byteorder) >= 512
