"""Answers as servers of each protocol send them, and driven as the response reader drives them.

Every form takes the number of ids after each event: ``chunks(1, 3)`` are three tokens in two events.
"""

import json
import math
from itertools import pairwise

import pytest

from harness.config.protocol import Protocol
from harness.record.outcome import Completion, FailureKind
from sut.wire.sse import DONE, EventReader
from tests.kit import DATA, VOCABULARY, wire_of
from tests.stub.protocol import compact

# What transformers and SGLang's four stream modes agreed on when its streams were recorded.
GREEDY = [99304, 59433, 40763, 101338, 92283, 106967, 180716, 120084, 124208, 183873]
GREEDY += [19922, 22999, 103508, 123831, 29770, 16916, 36053, 190273, 71319, 195947]
# llama.cpp's, the same from its stream and from its whole answer (seed 7), and vLLM's.
LLAMACPP = [44991, 63478, 196390, 91552, 62556, 53950, 17517, 82780]
VLLM = [5224, 80208, 68809, 71859]
BAD_IDS = {
    "negative": (-1, FailureKind.TOKEN_VALUE),
    "the vocabulary's size": (VOCABULARY, FailureKind.TOKEN_VALUE),
    "beyond int32": (2**31, FailureKind.TOKEN_VALUE),
    "beyond uint32": (2**32, FailureKind.TOKEN_VALUE),
    "beyond int64": (2**63, FailureKind.TOKEN_VALUE),
    "beyond uint64": (2**64, FailureKind.TOKEN_VALUE),
    "far beyond": (2**70, FailureKind.TOKEN_VALUE),
    "far below int64": (-(2**70), FailureKind.TOKEN_VALUE),
    "fraction": (1000.5, FailureKind.MALFORMED),
    "float": (1000.0, FailureKind.MALFORMED),
    "NaN": (math.nan, FailureKind.MALFORMED),
    "infinite": (math.inf, FailureKind.MALFORMED),
    "null": (None, FailureKind.MALFORMED),
    "true": (True, FailureKind.MALFORMED),
    "string": ("7", FailureKind.MALFORMED),
    "list": ([7], FailureKind.MALFORMED),
}


def recorded(name):
    """The events of a recorded stream, but for its end mark, or the one of a complete answer."""
    data = (DATA / f"{name}.txt").read_bytes()
    events = [data] if data.startswith(b"{") else EventReader(1 << 20).feed(data)
    return [event for event in events if event != DONE]


# What is done to a byte of an event: all at each byte, or in the quick loop one at each, in turn.
THOROUGHLY = pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.engine)])


def damaged(event, thorough, step=1):
    """The event with a byte replaced, lost or doubled."""
    for number, at in enumerate(range(0, len(event), step)):
        pieces = (b"", b"0", b'"', b",", b"]", b"}", b"\\", b"\x01", b"\xff", event[at : at + 1] * 2)
        for piece in pieces if thorough else (pieces[number % len(pieces)],):
            yield event[:at] + piece + event[at + 1 :]


def judge(protocol, events, asked=20):
    """The outcome of an answer, which is the same however many of its events are taken together."""
    events = list(events)
    outcomes = [_judged(protocol, events, asked, alone) for alone in sorted({0, 1, 3, len(events)})]
    assert len(set(map(_shown, outcomes))) == 1, outcomes
    return outcomes[0]


def _judged(protocol, events, asked, alone):
    """``alone``: the number of events that are taken one by one before the others."""
    answer = wire_of(protocol, max_new_tokens=asked).answer()
    for event in events[:alone]:
        if (failure := answer.feed(event)) is not None:
            return failure
    return answer.feed_all(events[alone:]) or answer.finish()


def _shown(outcome):
    return repr((outcome.output_ids.tolist(), outcome) if isinstance(outcome, Completion) else outcome)


def assert_completed(outcome, ids, reason="stop", prompt=4):
    assert isinstance(outcome, Completion), outcome
    assert outcome.output_ids.tolist() == ids
    assert outcome.output_ids.dtype == "int32"
    assert (outcome.finish_reason, outcome.prompt_tokens) == (reason, prompt)


def sglang_event(ids, count=None, finish=None, **more):
    """An event in SGLang's key order; ``finish`` "stop"/"length"/"abort"."""
    reason = None if finish is None else {"type": finish}
    meta = {"id": "x", "finish_reason": reason, "prompt_tokens": 4, "num_retractions": 0}
    meta |= {"completion_tokens": len(ids) if count is None else count, "cached_tokens": 0}
    return compact({"text": "", "output_ids": ids, "meta_info": meta} | more)


def cumulative(*ends, ids=GREEDY, finish="stop", claimed=None):
    """Events that repeat everything."""
    *inner, last = ends
    end = sglang_event(ids[:last], last if claimed is None else claimed, finish)
    return [*(sglang_event(ids[:n], n) for n in inner), end]


def incremental(*ends, ids=GREEDY, finish="stop", claimed=None):
    *inner, last = pairwise((0, *ends))
    end = sglang_event(ids[slice(*last)], last[1] if claimed is None else claimed, finish)
    return [*(sglang_event(ids[a:b], b) for a, b in inner), end]


def as_rust(event):
    """The same in the order of SGLang's Rust server: the ids last, the count before the finish reason."""
    document = json.loads(event)
    ids = {name: document.pop(name) for name in ("output_ids",) if name in document}
    if isinstance(meta := document.get("meta_info"), dict):
        first = ("id", "prompt_tokens", "completion_tokens", "finish_reason")
        document["meta_info"] = {name: meta[name] for name in first if name in meta} | meta
    return compact(document | ids)


def rust_cumulative(*ends, **more):
    return [*map(as_rust, cumulative(*ends, **more))]


def rust_incremental(*ends, **more):
    return [*map(as_rust, incremental(*ends, **more))]


def sglang_complete(*ends, **more):
    return cumulative(ends[-1], **more)


def chunk(ids, finish=None, usage=None, **more):
    """As vLLM sends it with return_token_ids."""
    choice = {"index": 0, "text": "x", "logprobs": None, "finish_reason": finish, "stop_reason": None}
    choice |= {"prompt_token_ids": None, "token_ids": ids}
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    return compact(head | {"choices": [choice], "usage": usage} | more)


def counts(completion):
    return {"prompt_tokens": 4, "total_tokens": 4 + completion, "completion_tokens": completion}


def usage(completion):
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    return compact(head | {"choices": [], "usage": counts(completion)})


def chunks(*ends, ids=GREEDY, finish="stop", claimed=None):
    parts = [ids[a:b] for a, b in pairwise((0, *ends))]
    end = usage(ends[-1] if claimed is None else claimed)
    return [*map(chunk, parts[:-1]), chunk(parts[-1], finish), end]


def openai_complete(*ends, ids=GREEDY, finish="stop", claimed=None):
    return [chunk(ids[: ends[-1]], finish, counts(ends[-1] if claimed is None else claimed))]


def chat_chunk(ids, finish=None, usage=None, **more):
    """As vLLM sends a chat's with return_token_ids: its events have text, or none."""
    choice = {"index": 0, "delta": {"content": "x"} if len(ids) == 1 else {}, "logprobs": None}
    choice |= {"finish_reason": finish, "token_ids": ids}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return compact(head | {"choices": [choice]} | ({"usage": usage} if usage else {}) | more)


def chat_chunks(*ends, ids=GREEDY, finish="stop", claimed=None):
    parts = [ids[a:b] for a, b in pairwise((0, *ends))]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    end = head | {"choices": [], "usage": counts(ends[-1] if claimed is None else claimed)}
    begin = compact(head | {"choices": [first], "prompt_token_ids": [1, 2, 3, 4]})
    return [begin, *map(chat_chunk, parts[:-1]), chat_chunk(parts[-1], finish), compact(end)]


def dynamo_chunk(ids, finish=None):
    """As Dynamo sends it with nvext.extra_fields."""
    choice = {"text": "x", "index": 0} | ({"finish_reason": finish} if finish is not None else {})
    head = {"id": "cmpl-1", "choices": [choice], "created": 1, "model": "m", "system_fingerprint": None}
    return compact(
        head | {"object": "text_completion", "usage": None, "nvext": {"completion_token_ids": ids}}
    )


def dynamo(*ends, ids=GREEDY, finish="stop", claimed=None):
    parts = [ids[a:b] for a, b in pairwise((0, *ends))]
    end = usage(ends[-1] if claimed is None else claimed)
    return [*map(dynamo_chunk, parts[:-1]), dynamo_chunk(parts[-1], finish), end]


def llamacpp_event(ids, predicted, **more):
    document = {"index": 0, "content": "x", "tokens": ids, "stop": False, "id_slot": -1}
    return compact(document | {"tokens_predicted": predicted, "tokens_evaluated": 4} | more)


def llamacpp_last(predicted, stop_type="eos", ids=(), **more):
    document = {"tokens": list(ids), "stop": True, "stop_type": stop_type, "tokens_predicted": predicted}
    return compact(document | {"tokens_evaluated": 4, "truncated": False} | more)


STOP_TYPES = {"stop": "eos", "length": "limit"}  # the finish reasons' names in llama.cpp


def llamacpp(*ends, ids=GREEDY, finish="stop", claimed=None):
    events = [llamacpp_event(ids[a:b], b) for a, b in pairwise((0, *ends))]
    last = llamacpp_last(ends[-1] if claimed is None else claimed, STOP_TYPES.get(finish, finish))
    return events if finish is None else [*events, last]


def llamacpp_complete(*ends, ids=GREEDY, finish="stop", claimed=None):
    count = ends[-1] if claimed is None else claimed
    return [llamacpp_last(count, STOP_TYPES.get(finish, finish), ids[: ends[-1]], stop=finish is not None)]


FORMS = {
    "sglang, cumulative": ("sglang", cumulative),
    "sglang, incremental": ("sglang", incremental),
    "sglang, Rust, cumulative": ("sglang", rust_cumulative),
    "sglang, Rust, incremental": ("sglang", rust_incremental),
    "sglang, complete": ("sglang", sglang_complete),
    "openai": ("openai", chunks),
    "openai, complete": ("openai", openai_complete),
    "openai, chat": (Protocol("openai", "chat-ids"), chat_chunks),
    "dynamo": ("dynamo", dynamo),
    "llamacpp": ("llamacpp", llamacpp),
    "llamacpp, complete": ("llamacpp", llamacpp_complete),
}
