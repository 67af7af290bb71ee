"""What holds for the requests and answers of every protocol; trtllm's answers are read as openai's."""

import json

import pytest

from harness.record.outcome import FailureKind
from tests.kit import VOCABULARY, assert_failed, wire_of
from tests.sut.wire.judging import BAD_IDS, FORMS, GREEDY, assert_completed, judge

GPT_OSS = {"temperature": 1.0, "top_p": 1.0, "skip_special_tokens": False}
# The names are SGLang 0.5.23's, which refuses other servers', vLLM's and llama.cpp's.
BODIES = [
    ("sglang", {"max_new_tokens": 20, "top_k": -1} | GPT_OSS),  # SGLang refuses top_k 0
    (
        "openai",
        {"max_tokens": 20, "top_k": -1, "min_p": 0, "repetition_penalty": 1, "return_token_ids": True}
        | {"model": "m", "presence_penalty": 0, "frequency_penalty": 0}
        | GPT_OSS,
    ),
    # min_p's default in llama.cpp, 0.05, is a filter; the others are flags of llama-server.
    (
        "llamacpp",
        {"n_predict": 20, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0, "return_tokens": True}
        | {"repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "dry_multiplier": 0}
        | {"xtc_probability": 0, "typical_p": 1, "mirostat": 0, "cache_prompt": False}
        | {"dynatemp_range": 0, "top_n_sigma": -1, "adaptive_target": -1, "ignore_eos": False},
    ),
]
OPTIONS = [
    ("sglang", {"min_new_tokens": 1, "seed": 42}, {"min_new_tokens": 1, "sampling_seed": 42}),
    ("openai", {"min_new_tokens": 1, "seed": 42}, {"min_tokens": 1, "seed": 42}),
    # It has no name for the least length, as a warning says before the run.
    ("llamacpp", {"min_new_tokens": 1, "seed": 42}, {"seed": 42}),
    *((protocol, {"top_k": 50, "top_p": 0.9}, {"top_k": 50, "top_p": 0.9}) for protocol, _ in BODIES),
    *((protocol, {"top_k": -1}, {"top_k": 0 if protocol == "llamacpp" else -1}) for protocol, _ in BODIES),
    *((protocol, {"extra": {"x": 0.1}}, {"x": 0.1}) for protocol, _ in BODIES),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("protocol", "options", "changed"), [*((protocol, {}, {}) for protocol, _ in BODIES), *OPTIONS]
)
def test_request_body(protocol, options, changed, stream):
    wire = wire_of(protocol, stream=stream, **options)
    sampling, body = dict(BODIES)[protocol] | changed, {"stream": stream}
    if protocol == "sglang":
        body |= {"input_ids": [200006, 1, 2], "sampling_params": sampling}
    else:
        body |= {"prompt": [200006, 1, 2]} | sampling
    if protocol == "openai" and stream:  # an error for vLLM and OpenAI without stream
        body |= {"stream_options": {"include_usage": True}}
    assert json.loads(wire.render(b"[200006,1,2]")) == body
    assert wire.streams is stream


@pytest.mark.parametrize(("finish", "asked"), [("stop", 20), ("stop", 4), ("length", 4)])
@pytest.mark.parametrize("ends", [(1, 2, 3, 4), (2, 4), (4,), (0, 1, 4)])
@pytest.mark.parametrize("form", FORMS)
def test_honest_answers(form, ends, finish, asked):
    """The first token is known with the first event that has one."""
    protocol, made = FORMS[form]
    answer = wire_of(protocol, max_new_tokens=asked).answer()
    known = {(0, ())}
    for event in made(*ends, finish=finish):
        assert answer.feed(event) is None
        known.add((answer.tokens, tuple(answer.ids[:1])))
    assert known == {(0, ())} | {(n, (GREEDY[0],)) for n in (ends[-1:] if "complete" in form else ends) if n}
    assert_completed(answer.finish(), GREEDY[:4], finish)


@pytest.mark.parametrize("only", [0, 1, VOCABULARY - 1])
@pytest.mark.parametrize("form", FORMS)
def test_an_answer_of_one_token_at_the_edges_of_the_vocabulary(form, only):
    protocol, made = FORMS[form]
    for finish in ("stop", "length"):
        assert_completed(judge(protocol, made(1, ids=[only], finish=finish), asked=1), [only], finish)


def with_its_end_twice(events):
    (place,) = [number for number, event in enumerate(events) if b':"stop"' in event or b':"eos"' in event]
    return [*events[: place + 1], *events[place:]]


# Answers to a request of four tokens.
FAILED = {
    "nothing": (lambda made: [], FailureKind.UNFINISHED),
    "no finish reason": (lambda made: made(1, 2, 4, finish=None), FailureKind.UNFINISHED),
    "neither a finish reason nor a token": (lambda made: made(0, finish=None), FailureKind.UNFINISHED),
    "no token": (lambda made: made(0), FailureKind.NO_TOKENS),
    "cut off by the context": (lambda made: made(1, 2, 3, finish="length"), FailureKind.UNFINISHED),
    "more than asked": (lambda made: made(1, 2, 3, 4, 5), FailureKind.TOO_MANY_TOKENS),
    **{
        f"counts {claimed}": (lambda made, n=claimed: made(1, 2, 4, claimed=n), FailureKind.TOKEN_COUNT)
        for claimed in (5, 3, 0, -4, 10**30)
    },
    "counts none as fewer": (lambda made: made(0, claimed=-1), FailureKind.TOKEN_COUNT),
    "aborted": (lambda made: made(1, 4, finish="abort"), FailureKind.ABORTED),
    "aborted without a token": (lambda made: made(0, finish="abort"), FailureKind.ABORTED),
    # vLLM's engine ends a request with stop, length, abort, error or repetition.
    "ended by an error": (lambda made: made(1, 4, finish="error"), FailureKind.ABORTED),
    **{
        f"ended by {reason!r}": (lambda made, r=reason: made(1, 4, finish=r), FailureKind.FINISH_REASON)
        for reason in ("cancelled", "timeout", "", "content_filter", "repetition")
    },
    "its end twice": (lambda made: with_its_end_twice(made(1, 4)), FailureKind.AFTER_END),
}
WORDINGS = {"more than asked": "5 tokens", "cut off by the context": "3 of 4 tokens"}
WORDINGS |= {"aborted": "4 tokens", "ended by 'cancelled'": "cancelled"}


@pytest.mark.parametrize("name", FAILED)
@pytest.mark.parametrize("form", FORMS)
def test_failures(form, name):
    protocol, made = FORMS[form]
    events, kind = FAILED[name]
    assert_failed(judge(protocol, events(made), asked=4), kind, WORDINGS.get(name, ""))


@pytest.mark.parametrize("form", ["sglang, incremental", "openai", "llamacpp"])
def test_an_event_twice_or_never(form):
    protocol, made = FORMS[form]
    events = made(1, 2, 3, 4)
    for place in range(3):
        twice, never = [*events[: place + 1], *events[place:]], [*events[:place], *events[place + 1 :]]
        assert_failed(judge(protocol, twice), FailureKind.TOKEN_COUNT)
        assert_failed(judge(protocol, never), FailureKind.TOKEN_COUNT)


@pytest.mark.parametrize("error", [{"message": "boom", "type": "InternalServerError", "code": 500}, "boom"])
@pytest.mark.parametrize("form", FORMS)
def test_in_band_errors(form, error):
    protocol, made = FORMS[form]
    events = made(1, 2, 4)
    for place in range(len(events) + 1):
        broken = [*events[:place], json.dumps({"error": error}).encode(), *events[place:]]
        assert_failed(judge(protocol, broken), FailureKind.IN_BAND_ERROR, "boom")


MALFORMED = {
    "empty": b"",
    "text": b"oops",
    "list": b"[]",
    "number": b"7",
    "null": b"null",
    "object without anything": b"{}",
    "nested deeply": b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "nested without end": b'{"x":' + b"[" * 50_000,
    "cut short": None,
    "two documents": None,
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("form", FORMS)
def test_malformed_events(form, name):
    """At every place of an answer, its end included."""
    protocol, made = FORMS[form]
    events = made(1, 2, 4)
    for place, event in enumerate([*events, events[-1]]):
        bad = {"cut short": event[:-1], "two documents": 2 * event}.get(name, MALFORMED[name])
        assert_failed(judge(protocol, [*events[:place], bad]), FailureKind.MALFORMED)


@pytest.mark.parametrize("name", BAD_IDS)
@pytest.mark.parametrize("form", FORMS)
def test_ids_that_no_model_has(form, name):
    """In the first place it fails before the worker passes it on, as four bytes, as soon as it is known."""
    (protocol, made), (bad, kind) = FORMS[form], BAD_IDS[name]
    for place in range(4):
        ids = [*GREEDY[:place], bad, *GREEDY[place + 1 : 4]]
        assert_failed(judge(protocol, made(1, 2, 3, 4, ids=ids)), kind)
    answer = wire_of(protocol).answer()
    assert_failed(next(filter(None, map(answer.feed, made(1, ids=[bad])[:2]))), kind)
    assert not answer.ids
