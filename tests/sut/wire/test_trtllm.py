"""TensorRT-LLM's completions: requests that it takes, and answers recorded from its own front end.

tests/engines/trtllm_server.py records them, over a made-up engine; no GPU has made any of them.
"""

import json
import re

import pytest

from harness.record.outcome import FailureKind
from tests.kit import assert_failed, wire_of
from tests.sut.wire import judging

# CompletionRequest's fields; it forbids others.
KNOWN = {
    *("model", "prompt", "best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n"),
    *("presence_penalty", "seed", "stop", "stream", "stream_options", "suffix", "temperature", "top_p"),
    *("user", "lora_request", "prompt_ignore_length", "use_beam_search", "top_k", "top_p_min", "min_p"),
    *("repetition_penalty", "length_penalty", "early_stopping", "stop_token_ids"),
    *("include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens"),
    *("spaces_between_special_tokens", "truncate_prompt_tokens", "return_context_logits", "detokenize"),
    *("add_special_tokens", "response_format", "disaggregated_params"),
}
WORDS = [290, 4853, 19705, 68347, 65613]
END, OTHER_END = 200002, 200012
FOUR = WORDS[:4]


def judge(name, asked=20, change=lambda events: events):
    return judging.judge("trtllm", change(judging.recorded(name)), asked)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        ({}, {"top_k": 0, "max_tokens": 20, "detokenize": False, "include_stop_str_in_output": True}),
        ({"top_k": -1}, {"top_k": 0}),  # a negative one is refused
        ({"top_k": 1, "temperature": 0.0}, {"top_k": 1, "temperature": 0.0}),
        ({"min_new_tokens": 1, "seed": 42}, {"min_tokens": 1, "seed": 42}),
        ({"extra": {"min_p": 0.1}}, {"min_p": 0.1}),
    ],
)
def test_request_body(changes, sent, stream):
    body = json.loads(wire_of("trtllm", stream=stream, **changes).render(b"[1,2]"))
    assert body.items() >= (sent | {"prompt": [1, 2], "model": "m", "stream": stream}).items()
    assert set(body) <= KNOWN
    options = {"include_usage": True, "continuous_usage_stats": False} if stream else None
    assert body.get("stream_options") == options  # an error without stream


@pytest.mark.parametrize(
    ("name", "asked", "ids", "reason"),
    [
        ("trtllm_stop", 20, [*FOUR, END], "stop"),
        ("trtllm_whole_stop", 20, [*FOUR, END], "stop"),
        ("trtllm_stop_word", 20, [*FOUR, OTHER_END], "stop"),
        (
            "trtllm_stop_word_stripped",
            20,
            FOUR,
            "stop",
        ),  # what include_stop_str_in_output is asked for against
        ("trtllm_no_end_token", 20, WORDS, "stop"),  # TRTLLMSampler; its last event has no ids
        ("trtllm_length", 3, WORDS[:3], "length"),
        ("trtllm_usage_in_each", 20, [*FOUR, END], "stop"),
    ],
)
def test_honest_answers(name, asked, ids, reason):
    judging.assert_completed(judge(name, asked), ids, reason, prompt=12)


def _usage_of_newer_versions(events):
    return [*events[:-1], events[-1].replace(b"chat.completion.chunk", b"text_completion")]


def test_the_usage_is_a_completion_in_newer_versions():
    outcome = judge("trtllm_stop", change=_usage_of_newer_versions)
    judging.assert_completed(outcome, [*FOUR, END], prompt=12)


def _with_an_error(events):
    return [*events[:2], b'{"error":{"message":"boom","type":"server_error"}}']


def _without_ids(events):
    return [re.sub(rb'"token_ids":\[[0-9,]*\]', b'"token_ids":[]', event) for event in events]


@pytest.mark.parametrize(
    ("name", "change", "kind"),
    [
        ("trtllm_cancelled", list, FailureKind.FINISH_REASON),
        (
            "trtllm_cancelled",
            lambda events: [e.replace(b'"cancelled"', b'"timeout"') for e in events],
            FailureKind.FINISH_REASON,
        ),
        ("trtllm_stop", _with_an_error, FailureKind.IN_BAND_ERROR),
        ("trtllm_text", list, FailureKind.TOKEN_COUNT),  # detokenize was not heeded
        ("trtllm_whole_text", list, FailureKind.TOKEN_COUNT),
        ("trtllm_stop", _without_ids, FailureKind.TOKEN_COUNT),
        ("trtllm_stop", lambda events: events[:-1], FailureKind.TOKEN_COUNT),
        ("trtllm_stop", lambda events: events[:2], FailureKind.UNFINISHED),  # an error in mid-stream
        ("trtllm_length", list, FailureKind.UNFINISHED),  # fewer than asked for
    ],
)
def test_failures(name, change, kind):
    assert_failed(judge(name, change=change), kind)
