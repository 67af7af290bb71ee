"""Requests of OpenAI's endpoints, in each dialect's names.

The names are those of the recorded requests (tests/data/wires) and of trtllm-serve's request models.
"""

import json
from types import SimpleNamespace
from typing import get_args

import pytest

from harness.config.protocol import Api, Dialect, Protocol, own_protocol
from harness.record.outcome import Completion, FailureKind, TextCompletion
from sut.client.connections import Request
from sut.client.endpoint import Access, resolve_endpoint
from sut.wire import make_wire, supported
from tests.kit import VOCABULARY, assert_failed, parameters, reader_of, wire_of
from tests.recorded_wires import exchange, names

PROTOCOLS = [protocol for dialect in get_args(Dialect) for protocol in supported(dialect)]
PROMPTS = {
    "completions-text": b'"[1,2] \\"a\\":[3]"',
    "chat": b'[{"role":"user","content":"[1,2]"}]',
}
PATHS = {
    "completions": "/v1/completions",
    "completions-text": "/v1/completions",
    "chat": "/v1/chat/completions",
    "chat-ids": "/v1/chat/completions",
}


def test_a_dialect_is_asked_in_its_own_way_first():
    for dialect in get_args(Dialect):
        own = own_protocol(dialect)
        assert supported(dialect)[0] == own
    assert {protocol.api for protocol in PROTOCOLS} == set(get_args(Api))


def test_answers_of_ids_are_preferred():
    for dialect in get_args(Dialect):
        answers = [protocol.answers for protocol in supported(dialect)]
        assert answers == sorted(answers)


def prompt_of(protocol):
    return PROMPTS.get(protocol.api, b"[200006,1,2]")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_every_request_is_json_with_its_prompt_in_front(protocol):
    """There what an answer repeats of it is compared with it, and a salt is put in."""
    wire, prompt = wire_of(protocol), prompt_of(protocol)
    body = wire.render(prompt)
    document = json.loads(body)
    assert 0 < body.index(prompt) < 32
    assert document["stream"] is True
    assert wire.path == PATHS.get(protocol.api, wire.path)
    head, opened = wire.opening("q-7", len(body)).split(b"\r\n\r\n")
    sent = opened + body[1:]
    assert f"Content-Length: {len(sent)}".encode() in head
    assert json.loads(sent).items() >= document.items()
    if not protocol.text_in:
        assert body[wire.prompt_offset([200006]) :].startswith(b"1,2]")


GREEDY = {"temperature": 0.0, "top_p": 1.0, "top_k": 1, "min_new_tokens": 1, "seed": 7}
COMMON = {"model": "m", "max_tokens": 20, "temperature": 0.0, "top_p": 1.0, "top_k": 1, "min_tokens": 1}
COMMON |= {"seed": 7, "stream": False}
# vLLM 0.32.0 and SGLang 0.5.23 take those of the model's generation_config.json where a request has none.
# (vLLM 0.33.0 warned of such a file: "Default vLLM sampling parameters have been overridden by the model's
# `generation_config.json`: {'repetition_penalty': 1.3, 'presence_penalty': -2.0, 'frequency_penalty': -2.0,
# 'temperature': 0.7, 'top_k': 5, 'min_p': 0.2, 'max_tokens': 20}"; each but the last applies.)
NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
NEUTRAL_LLAMACPP = {"min_p": 0, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
NEUTRAL_LLAMACPP |= {"dry_multiplier": 0, "xtc_probability": 0, "typical_p": 1, "mirostat": 0}
NEUTRAL_LLAMACPP |= {"dynatemp_range": 0, "top_n_sigma": -1, "adaptive_target": -1, "ignore_eos": False}
OPTIONS = {
    ("openai", "ids"): {"skip_special_tokens": True, "return_token_ids": True} | NEUTRAL,
    ("openai", "text"): {"skip_special_tokens": False, "include_stop_str_in_output": True} | NEUTRAL,
    ("sglang", "ids"): {"skip_special_tokens": True, "return_token_ids": True} | NEUTRAL,
    ("sglang", "text"): {"skip_special_tokens": False, "no_stop_trim": True} | NEUTRAL,
    ("trtllm", "ids"): {"skip_special_tokens": True, "include_stop_str_in_output": True, "detokenize": False},
    ("trtllm", "text"): {"skip_special_tokens": False, "include_stop_str_in_output": True},
    ("llamacpp", "text"): {"cache_prompt": False} | NEUTRAL_LLAMACPP,
    ("dynamo", "ids"): {"skip_special_tokens": True, "include_stop_str_in_output": True},
    ("dynamo", "text"): {"skip_special_tokens": False, "include_stop_str_in_output": True},
}
BACK = {"extra_fields": ["completion_token_ids", "prompt_token_ids"]}
ONE = [{"role": "user", "content": "."}]  # some servers take no empty list
OF_API = {
    ("openai", "chat-ids"): {"prompt_token_ids": [1, 2], "messages": []},
    ("trtllm", "chat-ids"): {"prompt_token_ids": [1, 2], "messages": []},
    ("sglang", "chat-ids"): {"input_ids": [1, 2], "messages": ONE},
    ("dynamo", "chat-ids"): {"nvext": {"token_data": [1, 2]}, "messages": ONE},
}


@pytest.mark.parametrize("protocol", [p for p in PROTOCOLS if p.api != "generate"], ids=str)
def test_bodies(protocol):
    """skip_special_tokens of the run bears on ids only: a text that is encoded again needs all of them."""
    dialect, api, answers = protocol.dialect, protocol.api, protocol.answers
    asked = parameters(stream=False, skip_special_tokens=True, extra={"x": 1}, **GREEDY)
    wire = make_wire(protocol, asked, VOCABULARY, "m")
    prompt = prompt_of(protocol) if protocol.text_in else b"[1,2]"
    expected = COMMON | OPTIONS[dialect, answers] | {"x": 1}
    expected |= OF_API.get((dialect, api), {"messages" if api == "chat" else "prompt": json.loads(prompt)})
    if dialect == "sglang" and answers == "text" and "chat" in api:
        expected |= {"separate_reasoning": False}
    if dialect == "llamacpp":
        del expected["min_tokens"]
    if dialect in ("openai", "trtllm") and api == "completions-text":
        expected |= {"add_special_tokens": False}
    if dialect == "dynamo" and answers == "ids":
        expected["nvext"] = expected.get("nvext", {}) | BACK
    assert json.loads(wire.render(prompt)) == expected


OFF = {"openai": -1, "sglang": -1, "dynamo": -1, "trtllm": 0, "llamacpp": 0}


@pytest.mark.parametrize("top_k", [0, -1])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_top_k_that_is_off(protocol, top_k):
    """As each server writes it: gpt-oss-120b's is off, and some refuse the other spelling."""
    body = json.loads(wire_of(protocol, top_k=top_k).render(prompt_of(protocol)))
    is_vllms_generate = (protocol.dialect, protocol.api) == ("openai", "generate")
    expected = 0 if is_vllms_generate else OFF[protocol.dialect]
    assert body.get("sampling_params", body)["top_k"] == expected


@pytest.mark.parametrize("stream", [True, False])
def test_vllms_generate(stream):
    wire = wire_of(Protocol("openai", "generate"), stream=stream, extra={"min_p": 0.1}, **GREEDY)
    sampling = {name: COMMON[name] for name in COMMON if name not in ("model", "stream")}
    sampling |= {"skip_special_tokens": False, "min_p": 0.1}
    expected = {"token_ids": [1, 2], "model": "m", "sampling_params": sampling, "stream": stream}
    expected |= {"stream_options": {"include_usage": True}} if stream else {}
    assert json.loads(wire.render(b"[1,2]")) == expected
    assert wire.path == "/inference/v1/generate"


@pytest.mark.parametrize("dialect", ["openai", "trtllm", "llamacpp", "dynamo", "sglang"])
def test_a_stream_asks_for_its_usage(dialect):
    for protocol in supported(dialect):
        if protocol != own_protocol(dialect) or dialect not in ("sglang", "llamacpp"):
            options = json.loads(wire_of(protocol).render(prompt_of(protocol)))["stream_options"]
            assert options["include_usage"] is True
            assert not options.get("continuous_usage_stats")


# What each server took (status 200) when its answers were recorded.
SERVERS = {"vllm-0.32.0": "openai", "sglang-0.5.23": "sglang", "dynamo-1.6.1": "dynamo"}
# Not in the recorded requests: common to all, or the sampling's own names in the servers' documents.
UNRECORDED = {"top_p", "top_k", "skip_special_tokens", "include_stop_str_in_output"}
UNRECORDED |= {"add_special_tokens", *NEUTRAL}


@pytest.mark.parametrize("server", SERVERS)
def test_the_servers_take_what_is_sent(server):
    taken = set().union(
        *(
            exchange(name).request
            for name in names(server)
            if exchange(name).status == 200 and isinstance(exchange(name).request, dict)
        )
    )
    for protocol in supported(SERVERS[server]):
        if protocol.api == "generate":
            continue
        assert set(json.loads(wire_of(protocol).render(prompt_of(protocol)))) <= taken | UNRECORDED


# -- whose answer it is


def request_of(protocol, prompt, prompt_tokens):
    wire = wire_of(protocol)
    body = memoryview(wire.render(prompt))
    request = Request(0, 0, 0, body, reader_of(protocol), wire.opening)
    request.prompt_tokens = prompt_tokens
    return request


ENDPOINT = resolve_endpoint("http://127.0.0.1:1", "/", Access())


def repeating(prompt_ids):
    """A reader of an answer that has repeated its prompt."""
    return SimpleNamespace(answer=SimpleNamespace(prompt_ids=prompt_ids, id=""))


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_a_repeated_prompt_is_compared_where_the_request_has_ids(protocol):
    """The ids of a text or of messages are the server's; their number is that of the prompt's tokens."""
    request = request_of(protocol, prompt_of(protocol), 3)
    answer = TextCompletion("a", "stop", 3, 1)
    for repeated, same in ((b"[200006,1,2]", True), (b"[200006, 1, 2]", True), (b"[200006,1,3]", False)):
        request.reader = repeating(repeated)
        refusal = request.refusal(answer, ENDPOINT)
        if same or protocol.text_in:
            assert refusal is None
        else:
            assert_failed(refusal, FailureKind.OTHER_REQUEST, "another prompt")


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        ("vllm-0.32.0/chat-ids-stream", Protocol("openai", "chat-ids", "text")),
        ("llamacpp-2026.10.11549/chat-ids-stream", Protocol("llamacpp", "chat", "text")),
        ("sglang-router-0.3.2/sglang-chat-input-ids-stream", Protocol("sglang", "chat-ids", "text")),
    ],
)
def test_ids_that_a_server_or_a_router_ignored(name, protocol):
    """It answered the empty template, or that of the message beside the ids, with status 200."""
    wire = make_wire(
        protocol,
        parameters(max_new_tokens=exchange(name).request["max_tokens"]),
        VOCABULARY,
        exchange(name).request["model"],
    )
    answer = wire.answer()
    assert not any(answer.feed(event) for event in exchange(name).events[:-1])
    outcome = answer.finish()
    assert isinstance(outcome, Completion | TextCompletion), outcome
    request = request_of(Protocol("openai", "chat-ids", "text"), b"[1,2]", 10)
    request.reader = repeating(b"")
    assert_failed(request.refusal(outcome, ENDPOINT), FailureKind.TOKEN_COUNT, "the query's has 10")
