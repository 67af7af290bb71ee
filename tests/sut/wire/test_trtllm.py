"""TensorRT-LLM's completions: requests that it takes, and answers with the members of its sources.

From ``tensorrt_llm/serve/openai_protocol.py`` and ``postprocess_handlers.py``; nothing here was recorded.
"""

import json

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
IDS = [200005, 35644, 200008, 200002]


def judge(documents, asked=20):
    return judging.judge("trtllm", [json.dumps(document).encode() for document in documents], asked)


def chunk(ids, finish=None):
    choice = {"index": 0, "text": "", "token_ids": ids, "logprobs": None, "finish_reason": finish}
    choice |= {"stop_reason": None, "avg_decoded_tokens_per_iter": 1.0}
    head = {"id": "cmpl-7", "object": "text_completion", "created": 1795316214, "model": "m"}
    return head | {"choices": [choice], "usage": None}


def usage(tokens):
    counts = {"prompt_tokens": 3, "total_tokens": 3 + tokens, "completion_tokens": tokens}
    return counts | {"prompt_tokens_details": {"cached_tokens": 0}}


def last(tokens):
    return chunk([]) | {"choices": [], "usage": usage(tokens)}


def complete(ids, finish):
    choice = chunk(ids, finish)["choices"][0] | {"context_logits": None, "disaggregated_params": None}
    return chunk([]) | {"choices": [choice], "usage": usage(len(ids)), "prompt_token_ids": None}


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
    body = json.loads(wire_of("trtllm", stream=stream, **changes).render([1, 2]))
    assert body.items() >= (sent | {"prompt": [1, 2], "model": "m", "stream": stream}).items()
    assert set(body) <= KNOWN
    assert (body.get("stream_options") == {"include_usage": True}) is stream  # an error without stream


@pytest.mark.parametrize(
    ("documents", "asked", "ids", "reason"),
    [
        ([*(chunk([i]) for i in IDS[:3]), chunk(IDS[3:], "stop"), last(4)], 20, IDS, "stop"),
        ([chunk(IDS[:1]), chunk(IDS[1:], "length"), last(4)], 4, IDS, "length"),
        # TRTLLMSampler: the model's first end token is not returned.
        ([chunk(IDS[:2]), chunk(IDS[2:3]), chunk([], "stop"), last(3)], 20, IDS[:3], "stop"),
        ([complete(IDS, "stop")], 20, IDS, "stop"),
        ([complete(IDS, "length")], 4, IDS, "length"),
    ],
)
def test_honest_answers(documents, asked, ids, reason):
    judging.assert_completed(judge(documents, asked), ids, reason, prompt=3)


@pytest.mark.parametrize(
    ("documents", "kind"),
    [
        ([chunk([], "stop"), last(0)], FailureKind.NO_TOKENS),  # an end token alone, not returned
        ([chunk(IDS), chunk([], "cancelled"), last(4)], FailureKind.FINISH_REASON),
        ([chunk(IDS), chunk([], "timeout"), last(4)], FailureKind.FINISH_REASON),
        ([chunk(IDS), {"error": {"message": "boom", "type": "server_error"}}], FailureKind.IN_BAND_ERROR),
        ([chunk(None), chunk(None, "stop"), last(4)], FailureKind.TOKEN_COUNT),  # detokenize was not heeded
        ([complete(IDS, "length")], FailureKind.UNFINISHED),
    ],
)
def test_failures(documents, kind):
    assert_failed(judge(documents), kind)
