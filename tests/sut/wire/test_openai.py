"""OpenAI-compatible completions: vLLM's answers, and what is wrong in their own way.

The recorded answers are those of vLLM 0.32.0's CPU build with a tiny Llama of random weights, greedy, and of
llama.cpp, which sends no ids. End tokens were forced by logit_bias. The other chunks have the members that
vLLM sends with return_token_ids and stream_options.include_usage.
"""

import json
from functools import partial

import pytest

from harness.record.outcome import Completion, FailureKind
from tests.kit import assert_failed, wire_of
from tests.sut.wire import judging
from tests.sut.wire.judging import (
    GREEDY,
    VLLM,
    assert_completed,
    chunk,
    chunks,
    compact,
    counts,
    recorded,
    usage,
)

judge = partial(judging.judge, "openai")
IDS = GREEDY[:4]
HONEST = {
    "first chunk with null tokens": [chunk(None), *chunks(1, 4)],
    "finish in a chunk of its own": [chunk(IDS), chunk([], "stop"), usage(4)],
    "usage with the last chunk": [chunk(IDS[:2]), chunk(IDS[2:], "stop", counts(4))],
    "running usage": [chunk(IDS[:2], None, counts(2)), chunk(IDS[2:], "stop", counts(4)), usage(4)],
    "error null": [chunk(IDS, "stop", error=None), usage(4)],
    "NaN in the model's own words": [
        chunk(IDS, "stop").replace(b'"text":"x"', b'"text":"x is NaN here"'),
        usage(4),
    ],
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_answers(name):
    assert_completed(judge(HONEST[name]), IDS)


def test_a_model_that_computes_no_numbers():
    """As SGLang says it here."""
    last = chunk(IDS, "stop").replace(b'"stop_reason":null', b'"matched_stop":"NaN happened"')
    assert_failed(judge([last, usage(4)]), FailureKind.IN_BAND_ERROR, "NaN happened")


END, MESSAGE_END = 128009, 128001
# Recorded with vLLM: name, ids, finish reason, and how many tokens were asked for.
RECORDED = [
    ("length", VLLM, "length", 4),
    ("whole_length", VLLM, "length", 4),
    ("one_token", VLLM[:1], "length", 1),
    ("eos", [*VLLM[:3], END], "stop", 20),  # min_tokens 3: not before the fourth token
    ("whole_eos", [*VLLM[:3], END], "stop", 20),
    ("other_eos", [*VLLM[:3], MESSAGE_END], "stop", 20),  # named in stop_reason, unlike the first end token
    ("min_tokens", [VLLM[0], END], "stop", 20),  # min_tokens 1: an end token and one before it
    ("eos_at_once", [END], "stop", 20),  # min_tokens 0
]


@pytest.mark.parametrize(("name", "ids", "reason", "asked"), RECORDED)
def test_recorded_answers(name, ids, reason, asked):
    assert_completed(judge(recorded(f"vllm_{name}"), asked), ids, reason, prompt=12)


def test_a_recorded_stream_with_a_stream_interval():
    """--stream-interval 8: the first token is an event of its own."""
    answer = wire_of("openai").answer()
    counts_seen = []
    for event in recorded("vllm_interval8"):
        assert answer.feed(event) is None
        counts_seen.append(answer.tokens)
    assert counts_seen == [1, 9, 17, 20, 20]
    assert isinstance(answer.finish(), Completion)


# vLLM 0.33.0 with --generation-config FOLDER answers alike after max_new_tokens of the folder's file.
FULL = (FailureKind.UNFINISHED, "cut off after 6 of 20 tokens: context full, or a limit of the server's own")
NO_IDS = (FailureKind.TOKEN_COUNT, "4 tokens without ids")
RECORDED_FAILURES = {
    # A prompt of 250 tokens, 20 asked for, --max-model-len 256: vLLM cuts without an error.
    "vllm_context_full": FULL,
    "vllm_whole_context_full": FULL,
    # A prompt's id, refused under status 200, in the stream.
    "vllm_error_prompt_id": (FailureKind.IN_BAND_ERROR, "out of vocabulary"),
    "vllm_no_ids": NO_IDS,  # return_token_ids was not sent
    "llamacpp_openai_stream": NO_IDS,
    "llamacpp_openai_logprobs": NO_IDS,
}


@pytest.mark.parametrize("name", RECORDED_FAILURES)
def test_recorded_failures(name):
    assert_failed(judge(recorded(name)), *RECORDED_FAILURES[name])


def with_id_beside(event):
    """An empty choice, as LiteLLM's usage has, and an id beside it, as Dynamo's ids are."""
    beside = {"choices": [{}], "nvext": {"completion_token_ids": IDS[:1]}}
    return compact(json.loads(event) | beside)


FAILED = {
    "no usage": (chunks(1, 4)[:-1], FailureKind.TOKEN_COUNT, "the server sent no usage"),
    "another count of the prompt": (
        [chunk(IDS[:2], None, counts(2)), chunk(IDS[2:], "stop", counts(4) | {"prompt_tokens": 5})],
        FailureKind.TOKEN_COUNT,
        "the prompt had 4 tokens, then 5",
    ),
    "ids shrink": ([chunk(IDS), chunk(IDS[:2], "stop"), usage(2)], FailureKind.TOKEN_COUNT),
    "no choice but usage": ([usage(0)], FailureKind.UNFINISHED),
    "neither finish reason nor usage": (chunks(1, 4, finish=None)[:-1], FailureKind.UNFINISHED),
    "two ends": ([*chunks(1, 4)[:-1], chunk([], "stop"), usage(4)], FailureKind.AFTER_END),
    "tokens after the end": ([chunk(IDS[:2], "stop"), chunk(IDS[2:]), usage(4)], FailureKind.AFTER_END),
    "an id with the usage": (
        [*chunks(1, 4)[:-1], with_id_beside(usage(4))],
        FailureKind.AFTER_END,
    ),
    "another prompt in the second event": (
        [
            chunk(IDS[:2], prompt_token_ids=[1, 2, 3, 4]),
            chunk(IDS[2:], "stop", prompt_token_ids=[1, 2, 3, 5]),
            usage(4),
        ],
        FailureKind.OTHER_REQUEST,
    ),
    "another request_id in the second event": (  # vLLM's /generate has that name
        [chunk(IDS[:2], id=None, request_id="a"), chunk(IDS[2:], "stop", id=None, request_id="b")],
        FailureKind.OTHER_REQUEST,
    ),
    "choices null": ([compact({"choices": None, "usage": None})], FailureKind.MALFORMED),
    "an error object of old vLLM": (
        [compact({"object": "error", "message": "boom", "code": 400})],
        FailureKind.IN_BAND_ERROR,
    ),
    "token_ids a string": ([chunk("12")], FailureKind.MALFORMED),
    "finish reason an object": ([chunk(IDS, {"type": "stop"})], FailureKind.MALFORMED),
    "usage without a count": ([chunk(IDS, "stop", {"prompt_tokens": 3})], FailureKind.MALFORMED),
}


@pytest.mark.parametrize("name", FAILED)
def test_failures(name):
    events, *said = FAILED[name]
    assert_failed(judge(events), *said)
