"""OpenAI-compatible completions: vLLM's answers, and every way in which an answer can be wrong.

The recorded answers are those of vLLM 0.32.0's CPU build with a tiny Llama of random weights, greedy, and of
llama.cpp, which sends no ids. End tokens were forced by logit_bias. The other chunks have the members that
vLLM sends with return_token_ids and stream_options.include_usage.
"""

import json
from functools import partial

import pytest

from harness.record.outcome import Completion, FailureKind
from sut.wire.openai import OpenAIWire
from tests.kit import DATA, VOCABULARY, assert_failed, parameters, payloads, wire_of
from tests.sut.wire import judging
from tests.sut.wire.judging import BAD_FIRST_IDS, BAD_IDS, assert_completed

judge = partial(judging.judge, "openai")
IDS = [200005, 35644, 200008, 976]


def encoded(document):
    return json.dumps(document, separators=(",", ":")).encode()


def chunk(ids, finish=None, usage=None, **more):
    choice = {"index": 0, "text": "x", "logprobs": None, "finish_reason": finish, "stop_reason": None}
    choice |= {"prompt_token_ids": None, "token_ids": ids}
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    return encoded(head | {"choices": [choice], "usage": usage} | more)


def counts(completion, prompt=3):
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def usage(completion):
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    return encoded(head | {"choices": [], "usage": counts(completion)})


def stream(*ends, finish="stop", claimed=None):
    starts = (0, *ends[:-1])
    last = len(ends) - 1
    parts = enumerate(zip(starts, ends, strict=True))
    chunks = [chunk(IDS[a:b], finish if i == last else None) for i, (a, b) in parts]
    return [*chunks, usage(ends[-1] if claimed is None else claimed)]


def test_request_body():
    body = json.loads(OpenAIWire(parameters(top_p=0.9), VOCABULARY, "gpt-oss").render([1, 2]))
    sampling = {"max_tokens": 20, "temperature": 1.0, "top_p": 0.9, "top_k": -1, "skip_special_tokens": False}
    form = {"return_token_ids": True, "stream": True, "stream_options": {"include_usage": True}}
    assert body == {"prompt": [1, 2], "model": "gpt-oss"} | sampling | form


def test_request_body_without_stream():
    wire = wire_of("openai", stream=False, top_k=7, extra={"seed": 3})
    body = json.loads(wire.render([1]))
    assert (body["stream"], body["top_k"], body["seed"], wire.streams) == (False, 7, 3, False)
    assert "stream_options" not in body  # an error for vLLM and OpenAI without stream


def test_least_length_and_seed():
    """In the names of vLLM."""
    sent = json.loads(wire_of("openai", min_new_tokens=1, seed=42).render([1]))
    assert sent.items() >= {"min_tokens": 1, "seed": 42}.items()


HONEST = {
    "a token each": stream(1, 2, 3, 4),
    "several at once": stream(2, 4),
    "all at once": stream(4),
    "first chunk without tokens": [chunk([]), *stream(1, 4)],
    "first chunk with null tokens": [chunk(None), *stream(1, 4)],
    "finish in a chunk of its own": [*stream(1, 4, finish=None)[:-1], chunk([], "stop"), usage(4)],
    "usage with the last chunk": [chunk(IDS[:2]), chunk(IDS[2:], "stop", counts(4))],
    "running usage": [chunk(IDS[:2], None, counts(2)), chunk(IDS[2:], "stop", counts(4)), usage(4)],
    "error null": [chunk(IDS, "stop", error=None), usage(4)],
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_answers(name):
    assert_completed(judge(HONEST[name]), IDS, prompt=3)


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_one_token(finish):
    assert_completed(judge(stream(1, finish=finish), asked=1), IDS[:1], finish, prompt=3)


def test_whole_answer():
    assert_completed(judge([chunk(IDS, "length", counts(4))], asked=4), IDS, "length", prompt=3)


def test_first_token_is_known_with_its_chunk():
    answer = wire_of("openai").answer()
    answer.feed(chunk([]))
    assert (answer.tokens, answer.first_id) == (0, -1)
    answer.feed(chunk(IDS[:2]))
    answer.feed(chunk(IDS[2:]))
    assert (answer.tokens, answer.first_id) == (4, IDS[0])


GREEDY = [5224, 80208, 68809, 71859]
END, MESSAGE_END = 128009, 128001
# Recorded with vLLM: name, ids, finish reason, and how many tokens were asked for.
RECORDED = [
    ("length", GREEDY, "length", 4),
    ("one_token", GREEDY[:1], "length", 1),
    ("eos", [*GREEDY[:3], END], "stop", 20),  # min_tokens 3: not before the fourth token
    ("other_eos", [*GREEDY[:3], MESSAGE_END], "stop", 20),  # named in stop_reason, unlike the first end token
    ("min_tokens", [GREEDY[0], END], "stop", 20),  # min_tokens 1: an end token and one before it
    ("eos_at_once", [END], "stop", 20),  # min_tokens 0
]


@pytest.mark.parametrize(("name", "ids", "reason", "asked"), RECORDED)
def test_recorded_streams(name, ids, reason, asked):
    assert_completed(judge(payloads(f"vllm_{name}.txt"), asked), ids, reason, prompt=12)


@pytest.mark.parametrize(("name", "ids", "reason", "asked"), [RECORDED[0], RECORDED[2]])
def test_recorded_complete_answers(name, ids, reason, asked):
    whole = (DATA / f"vllm_whole_{name}.txt").read_bytes()
    assert_completed(judge([whole], asked), ids, reason, prompt=12)


def test_a_recorded_stream_with_a_stream_interval():
    """--stream-interval 8: the first token is an event of its own."""
    answer = wire_of("openai").answer()
    counts_seen = []
    for event in payloads("vllm_interval8.txt"):
        assert answer.feed(event) is None
        counts_seen.append(answer.tokens)
    assert counts_seen == [1, 9, 17, 20, 20]
    assert isinstance(answer.finish(), Completion)


def test_a_recorded_answer_that_filled_the_context():
    """A prompt of 250 tokens, 20 asked for, --max-model-len 256: vLLM cuts without an error."""
    whole = [(DATA / "vllm_whole_context_full.txt").read_bytes()]
    for recorded in (payloads("vllm_context_full.txt"), whole):
        assert_failed(judge(recorded), FailureKind.UNFINISHED, "cut off after 6 of 20 tokens")


def test_a_recorded_refusal_of_a_prompts_id():
    """Under status 200, in the stream."""
    assert_failed(judge(payloads("vllm_error_prompt_id.txt")), FailureKind.IN_BAND_ERROR, "out of vocabulary")


def test_a_recorded_answer_without_return_token_ids():
    assert_failed(judge(payloads("vllm_no_ids.txt")), FailureKind.TOKEN_COUNT, "4 tokens without ids")


@pytest.mark.parametrize("name", ["llamacpp_openai_stream.txt", "llamacpp_openai_logprobs.txt"])
def test_a_recorded_server_that_sends_no_ids(name):
    assert_failed(judge(payloads(name)), FailureKind.TOKEN_COUNT, "4 tokens without ids")


FAILED = {
    "no usage": (stream(1, 4)[:-1], FailureKind.TOKEN_COUNT),
    "usage counts more": (stream(1, 4, claimed=5), FailureKind.TOKEN_COUNT),
    "usage counts fewer": (stream(1, 4, claimed=3), FailureKind.TOKEN_COUNT),
    "usage counts a huge number": (stream(1, 4, claimed=10**30), FailureKind.TOKEN_COUNT),
    "usage counts a negative number": (stream(1, 4, claimed=-4), FailureKind.TOKEN_COUNT),
    "usage counts nothing": (stream(1, 4, claimed=0), FailureKind.TOKEN_COUNT),
    "a chunk twice": ([chunk(IDS[:1]), *stream(1, 4)], FailureKind.TOKEN_COUNT),
    "a chunk is missing": ([stream(1, 2, 3, 4)[i] for i in (0, 1, 3, 4)], FailureKind.TOKEN_COUNT),
    "ids shrink": ([chunk(IDS), chunk(IDS[:2], "stop"), usage(2)], FailureKind.TOKEN_COUNT),
    "no token": ([chunk([], "stop"), usage(0)], FailureKind.NO_TOKENS),
    "no choice but usage": ([usage(0)], FailureKind.UNFINISHED),
    "nothing": ([], FailureKind.UNFINISHED),
    "no finish reason": (stream(1, 4, finish=None), FailureKind.UNFINISHED),
    "neither finish reason nor usage": (stream(1, 4, finish=None)[:-1], FailureKind.UNFINISHED),
    "abort": (stream(1, 4, finish="abort"), FailureKind.ABORTED),
    "abort without tokens": ([chunk([], "abort"), usage(0)], FailureKind.ABORTED),
    # vLLM's engine ends a request with stop, length, abort, error or repetition.
    "length with fewer tokens than asked": (stream(1, 4, finish="length"), FailureKind.UNFINISHED),
    "error as finish reason": (stream(1, 4, finish="error"), FailureKind.ABORTED),
    "an unknown finish reason": (stream(1, 4, finish="cancelled"), FailureKind.FINISH_REASON),
    "an empty finish reason": (stream(1, 4, finish=""), FailureKind.FINISH_REASON),
    "repetition": (stream(1, 4, finish="repetition"), FailureKind.FINISH_REASON),
    "two ends": ([*stream(1, 4)[:-1], chunk([], "stop"), usage(4)], FailureKind.AFTER_END),
    "tokens after the end": ([chunk(IDS[:2], "stop"), chunk(IDS[2:]), usage(4)], FailureKind.AFTER_END),
    "choices null": ([encoded({"choices": None, "usage": None})], FailureKind.MALFORMED),
    "an error object of old vLLM": (
        [encoded({"object": "error", "message": "boom", "code": 400})],
        FailureKind.MALFORMED,
    ),
    "no JSON": ([b"oops"], FailureKind.MALFORMED),
    "empty": ([b""], FailureKind.MALFORMED),
    "a list": ([b"[]"], FailureKind.MALFORMED),
    "cut": ([chunk(IDS)[:-1]], FailureKind.MALFORMED),
    "token_ids a string": ([chunk("12")], FailureKind.MALFORMED),
    "finish reason an object": ([chunk(IDS, {"type": "stop"})], FailureKind.MALFORMED),
    "usage without a count": ([chunk(IDS, "stop", {"prompt_tokens": 3})], FailureKind.MALFORMED),
}


@pytest.mark.parametrize("name", FAILED)
def test_failures(name):
    chunks, kind = FAILED[name]
    assert_failed(judge(chunks), kind)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("error", [{"message": "boom", "type": "InternalServerError", "code": 500}, "boom"])
def test_in_band_errors(place, error):
    chunks = stream(1, 2, 4)
    chunks.insert(place, encoded({"error": error}))
    assert_failed(judge(chunks), FailureKind.IN_BAND_ERROR, "boom")


def test_more_tokens_than_asked():
    outcome = judge(stream(1, 4), asked=3)
    assert_failed(outcome, FailureKind.TOO_MANY_TOKENS, "got 4 tokens, asked for 3")


@pytest.mark.parametrize("place", [0, 2, 3])
@pytest.mark.parametrize(("bad", "kind"), BAD_IDS.values(), ids=BAD_IDS)
def test_ids_that_no_model_has(bad, kind, place):
    ids = [*IDS[:place], bad, *IDS[place + 1 :]]
    chunks = [*(chunk([i]) for i in ids[:-1]), chunk(ids[-1:], "stop"), usage(4)]
    assert_failed(judge(chunks), kind)
    assert_failed(judge([chunk(ids, "stop", counts(4))]), kind)


@pytest.mark.parametrize("bad", BAD_FIRST_IDS)
def test_a_bad_first_id_fails_before_it_is_reported(bad):
    assert_failed(wire_of("openai").answer().feed(chunk([bad])), FailureKind.TOKEN_VALUE)
