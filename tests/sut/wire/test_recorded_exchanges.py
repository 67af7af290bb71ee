"""What real servers answered through each of OpenAI's endpoints, and what our readers make of it.

The exchanges are those of ``tests/data/wires``: of a tiny gpt-oss, greedy, that thinks and answers in
harmony's channels, and of one with random weights.
"""

import json

import pytest

from harness.config.protocol import Protocol
from harness.dataset import tokenizer as o200k
from harness.record.outcome import Completion, FailureKind, TextCompletion
from sut.wire import make_judge, make_wire
from sut.wire.fields import AnswersSeen
from tests.kit import VOCABULARY, assert_failed, parameters
from tests.recorded_wires import exchange
from tests.sut.wire.judging import recorded

VLLM, SGLANG, LLAMACPP, DYNAMO = "vllm-0.32.0", "sglang-0.5.23", "llamacpp-2026.10.11549", "dynamo-1.6.1"
ROUTERS = ["smg-1.13.0", "sglang-router-0.3.2", "vllm-router-0.1.17"]
LITELLM = "litellm-1.108.7"
DIALECTS = {VLLM: "openai", SGLANG: "sglang", LLAMACPP: "llamacpp", DYNAMO: "dynamo", LITELLM: "openai"}
HARMONY = [200005, 35644, 200008, 24672, 1078, 480, 18370, 11, 1815, 4167, 200007, 200006, 173781, 200005]
HARMONY += [17196, 200008, 32949, 4103, 99, 98, 0, 200002]
MARKED = "<|channel|>analysis<|message|> Think about it twice, then done<|end|><|start|>assistant"
MARKED += "<|channel|>final<|message|> Hello🦥!"
PLAIN = " Think about it twice, then done Hello🦥!"
BOTH = ("", "-stream")


def protocol_of(name, answers):
    server, recorded = name.split("/")[0], exchange(name)
    dialect = DIALECTS.get(server, "sglang")
    if "inference" in recorded.path:
        return Protocol(dialect, "generate", answers)
    if "chat" in recorded.path:
        asked = recorded.request.keys() & {"input_ids", "prompt_token_ids"} or "token_data" in str(
            recorded.request
        )
        return Protocol(dialect, "chat-ids" if asked else "chat", answers)
    as_ids = isinstance(recorded.request["prompt"], list)
    return Protocol(dialect, "completions" if as_ids else "completions-text", answers)


def reader_of(name, answers):
    """A reader that knows nothing but the recorded model and version of weights."""
    recorded, protocol = exchange(name), protocol_of(name, answers)
    request = recorded.request.get("sampling_params", recorded.request)
    asked = parameters(
        max_new_tokens=request.get("max_tokens", 5000), stream=bool(recorded.request.get("stream"))
    )
    names = ["openai/gpt-oss-120b", "gpt-oss-120b", "harmony-true", "tiny-gpt-oss-v1", "default"]
    seen = AnswersSeen(names=frozenset(names))
    judge = make_judge(protocol, "m", seen)
    return make_wire(protocol, asked, VOCABULARY, "m", judge).answer()


def outcome_of(name, answers):
    recorded, answer = exchange(name), reader_of(name, answers)
    events = recorded.events or [recorded.body]
    failures = (answer.feed(event) for event in events if event != b"[DONE]")
    return next(filter(None, failures), None) or answer.finish()


IDS = [
    (f"{VLLM}/harmony-completions-ids", HARMONY, "stop", 10),
    (f"{VLLM}/harmony-chat-ids-back", HARMONY, "stop", 77),
    (f"{VLLM}/completions-text-ids-back", None, "length", 10),
    (f"{VLLM}/generate", None, "length", 10),
    (f"{VLLM}/generate-end", [200002], "stop", 10),
    (f"{VLLM}/generate-text", [12837, 162681, 91450], "length", 10),
    (f"{SGLANG}/completions-ids-return-token-ids", HARMONY[:4], "length", 10),
    (f"{DYNAMO}/completions-ids-token-ids-out", None, "length", 10),
    (f"{DYNAMO}/completions-text", None, "length", 10),
    (f"{DYNAMO}/chat-token-data", None, "length", 10),
]


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize(("name", "ids", "reason", "prompt"), IDS)
def test_ids(name, ids, reason, prompt, stream):
    outcome = outcome_of(name + stream, "ids")
    assert isinstance(outcome, Completion), outcome
    assert (outcome.finish_reason, outcome.prompt_tokens) == (reason, prompt)
    if ids is not None:
        assert outcome.output_ids.tolist() == ids


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize(
    "name", [f"{VLLM}/harmony-completions-ids", f"{SGLANG}/completions-ids-return-token-ids"]
)
def test_a_prompt_that_is_repeated_in_the_choice_is_read(name, stream):
    """It shows an answer that is to another request."""
    recorded, answer = exchange(name + stream), reader_of(name + stream, "ids")
    for event in recorded.events or [recorded.body]:
        answer.feed(event)
    assert json.loads(answer.prompt_ids) == recorded.request["prompt"]


def test_ids_of_sglangs_chat_come_with_complete_answers_only():
    outcome = outcome_of(f"{SGLANG}/chat-return-token-ids", "ids")
    assert (outcome.output_ids.tolist(), outcome.prompt_tokens) == (HARMONY[:4], 16)
    assert exchange(f"{SGLANG}/chat-return-token-ids-stream").status == 400


TEXTS = [
    (f"{VLLM}/harmony-completions-text-include-stop", MARKED + "<|return|>", 10),
    (f"{VLLM}/harmony-completions-text", MARKED, 10),
    (f"{VLLM}/harmony-chat", PLAIN, 77),  # reasoning
    (f"{SGLANG}/completions-text-no-stop-trim", MARKED + "<|return|>", 10),
    (f"{SGLANG}/chat-no-separate-reasoning", MARKED + "<|return|>", 16),
    (f"{SGLANG}/chat-ids-exact-text", MARKED + "<|return|>", 10),
    (f"{SGLANG}/chat", PLAIN, 16),  # reasoning_content
    (f"{LLAMACPP}/harmony-completions-text", MARKED, 10),
    (f"{LLAMACPP}/harmony-chat", PLAIN, 16),
]


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize(("name", "text", "prompt"), TEXTS)
def test_texts(name, text, prompt, stream):
    """The server counts the end token, whether it writes it or not."""
    assert outcome_of(name + stream, "text") == TextCompletion(text, "stop", prompt, len(HARMONY))


@pytest.mark.parametrize("name", [name for name, text, _ in TEXTS if text.endswith("<|return|>")])
def test_a_complete_text_has_the_ids_of_the_answer(name):
    """What our requests ask for, of the servers that can: every special token, the end token among them."""
    outcome = outcome_of(name, "text")
    assert o200k.encode_harmony(outcome.text) == HARMONY
    asked = exchange(name).request
    assert asked["skip_special_tokens"] is False
    sent = make_wire(protocol_of(name, "text"), parameters(), VOCABULARY, "m").render(b"[1]")
    assert all(
        f'"{option}":true'.encode() in sent
        for option in asked.keys() & {"no_stop_trim", "include_stop_str_in_output"}
    )


LENGTHS = [
    (f"{VLLM}/harmony-chat-length", " Think about it"),
    (f"{SGLANG}/chat-length", " Think about it"),
    (f"{LLAMACPP}/harmony-chat-length", " Think about it"),
    (f"{SGLANG}/completions-text-length", "<|channel|>analysis<|message|> Think"),
    *((f"{router}/sglang-chat", " Think") for router in ROUTERS),
    (f"{LITELLM}/completions-text", " Depp ocorre.cont FAILUREniv uominité milliseconds"),
]


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize(("name", "text"), LENGTHS)
def test_texts_that_end_with_their_limit(name, text, stream):
    outcome = outcome_of(name + stream, "text")
    assert (outcome.text, outcome.finish_reason) == (text, "length")


@pytest.mark.parametrize("name", ["completions-text-stream", "chat-stream"])
def test_an_empty_choice_beside_the_usage_ends_nothing(name):
    """LiteLLM's last event; anything in that choice, or the choice without the usage, comes after the end."""
    *events, last, _ = exchange(f"{LITELLM}/{name}").events
    assert outcome_of(f"{LITELLM}/{name}", "text").counted == 8
    empty = b'"delta":{}' if b"delta" in last else b'"index":0'
    more = [empty + b',"finish_reason":"stop"', empty + b',"text":" x"']
    wrong = [last.replace(empty, other) for other in more]
    wrong.append(last.partition(b',"usage"')[0] + b"}")
    for event in wrong:
        answer = reader_of(f"{LITELLM}/{name}", "text")
        assert not any(answer.feed(one) for one in events)
        assert_failed(answer.feed(event), FailureKind.AFTER_END)


@pytest.mark.parametrize(
    "name", [f"{VLLM}/harmony-chat-stream", f"{SGLANG}/chat-stream", f"{LLAMACPP}/harmony-chat-stream"]
)
def test_the_first_fragment_is_the_first_text(name):
    """A role or an empty content is none; each later event has one."""
    answer, seen = reader_of(name, "text"), []
    for event in exchange(name).events[:-1]:
        assert answer.feed(event) is None
        seen.append(answer.tokens)
    # Seven of reasoning, three of content, of which one has three tokens.
    assert seen == [*range(11), 10, 10]
    assert not answer.ids


TRTLLM_TEXTS = [
    ("text", "completions", " the quick brown fox<|return|>", 5),
    ("whole_text", "completions", " the quick brown fox<|return|>", 5),
    ("chat", "chat-ids", " the quick brown fox<|return|>", 5),
    ("whole_chat", "chat-ids", " the quick brown fox<|return|>", 5),
    ("chat_stop_word_stripped", "chat-ids", " the quick brown fox", 4),
    ("whole_harmony", "chat", "the quickbrown fox jumps", 15),
    ("harmony", "chat", " the quick brown", 15),  # its last step is lost
]


@pytest.mark.parametrize(("name", "api", "text", "counted"), TRTLLM_TEXTS)
def test_texts_of_trtllm_serve(name, api, text, counted):
    """Of its own front end, over a made-up engine: each event has another id."""
    wire = make_wire(Protocol("trtllm", api, "text"), parameters(), VOCABULARY, "gpt-oss-120b")
    answer = wire.answer()
    assert not any(answer.feed(event) for event in recorded(f"trtllm_{name}"))
    outcome = answer.finish()
    assert (outcome.text, outcome.finish_reason, outcome.counted) == (text, "stop", counted)


FAILURES = {
    f"{LLAMACPP}/error-n-2": (FailureKind.MALFORMED, "2 choices"),
    **{
        f"{server}{stream}": (FailureKind.FINISH_REASON, "tool_calls")
        for server in (f"{VLLM}/harmony-chat-tools", f"{SGLANG}/chat-tools", f"{LLAMACPP}/harmony-chat-tools")
        for stream in BOTH
    },
    f"{LLAMACPP}/chat-end-stream": (FailureKind.NO_TOKENS, "without text, the server's count of tokens is 1"),
    f"{VLLM}/completions-text-special-stripped": (FailureKind.NO_TOKENS, "count of tokens is 3"),
    f"{DYNAMO}/dead-chat-stream": (FailureKind.IN_BAND_ERROR, "unavailable"),
    "smg-1.13.0/sglang-dead-chat-stream": (FailureKind.IN_BAND_ERROR, "unexpected EOF"),
    "vllm-router-0.1.17/sglang-dead-chat-stream": (FailureKind.UNFINISHED, ""),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(name):
    assert_failed(outcome_of(name, "text"), *FAILURES[name])


@pytest.mark.parametrize("name", [f"{DYNAMO}/completions-ids", f"{SGLANG}/completions-ids", f"{VLLM}/chat"])
@pytest.mark.parametrize("stream", BOTH)
def test_ids_that_were_not_returned(name, stream):
    assert_failed(outcome_of(name + stream, "ids"), FailureKind.TOKEN_COUNT, "tokens without ids")
