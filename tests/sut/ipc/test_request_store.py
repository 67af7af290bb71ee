"""Rendered requests in shared memory."""

import json
from pathlib import Path

import pytest

from sut.ipc.request_store import render_requests
from sut.wire import Wires
from tests.kit import VOCABULARY, parameters, sample_set

PROMPTS = [[200006, 1, 2], [7], list(range(5000)), [201087], [3, 3, 3]]


def rendered(prompts, wire="sglang", limits=None):
    wires = Wires(wire, parameters(), VOCABULARY, "m")
    return render_requests(sample_set(Path("x.parquet"), prompts, limits), wires)


def parsed(view):
    """The prompt of a request's body."""
    document = json.loads(bytes(view))
    return document.get("input_ids") or document["prompt"]


@pytest.mark.parametrize("wire", ["sglang", "openai", "trtllm", "llamacpp"])
def test_every_sample_is_its_own_request(wire):
    store = rendered(PROMPTS, wire)
    assert [parsed(store.request(i)) for i in range(len(PROMPTS))] == PROMPTS
    assert [store.prompt_tokens(i) for i in range(len(PROMPTS))] == [len(prompt) for prompt in PROMPTS]
    assert store.request(0).readonly
    with pytest.raises(IndexError):
        store.request(len(PROMPTS))


@pytest.mark.parametrize(
    ("wire", "name"), [("openai", "max_tokens"), ("trtllm", "max_tokens"), ("llamacpp", "n_predict")]
)
def test_each_sample_has_its_own_limit_or_the_runs(wire, name):
    for limits, sent in (([5, 1, 5, 20, 7], [5, 1, 5, 20, 7]), (None, [20] * 5)):
        store = rendered(PROMPTS, wire, limits)
        bodies = [json.loads(bytes(store.request(i))) for i in range(5)]
        assert [body[name] for body in bodies] == sent
        assert [store.limit(i) for i in range(5)] == (limits or [0] * 5)
