"""Rendered requests in shared memory."""

import json
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

from harness.config.protocol import own_protocol
from harness.dataset.salt import SaltIds
from harness.endpoints.salting import with_salt
from sut.ipc.request_store import render_requests
from sut.wire import Wires
from tests.kit import VOCABULARY, make_request, parameters, sample_set

PROMPTS = [[200006, 1, 2], [7], list(range(5000)), [201087], [3, 3, 3]]

FIRSTS = {str(prompt[0]): (prompt[0],) for prompt in PROMPTS[2:]}


def rendered(prompts, wire="sglang", limits=None):
    wires = Wires(own_protocol(wire), parameters(), VOCABULARY, "m")
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


@pytest.mark.parametrize("wire", ["sglang", "openai", "trtllm", "llamacpp"])
def test_each_query_has_its_salt_in_place_of_the_placeholder(wire):
    """Whatever the widths of its ids; in a process that got the store, too."""
    ids = SaltIds("seed", (3, 70, 100_001, 5), 7)
    samples = with_salt(sample_set(Path("x.parquet"), PROMPTS[2:]), ids, (58,), (60, 220), FIRSTS)
    store = render_requests(samples, Wires(own_protocol(wire), parameters(), VOCABULARY, "m"))
    store = pickle.loads(ForkingPickler.dumps(store))
    for query, sample in ((0, 0), (1, 0), (1 << 31, 2), (12, 1)):
        request = make_request([1])
        request.body, request.salt = store.request(sample), store.salt(query, sample)
        first, *rest = PROMPTS[2 + sample]
        assert parsed(b"".join(request.pieces)) == [first, 58, *ids.of(query), 60, 220, *rest]
        assert store.prompt_tokens(sample) == len(rest) + 11
    assert len({ids.of(query) for query in range(1000)}) > 950  # of 16 384 that there are


def test_without_a_salt_a_request_is_its_samples(tmp_path):
    store = rendered(PROMPTS)
    assert store.salt(5, 1) is None
    request = make_request([1])
    request.body = store.request(1)
    assert request.pieces == (store.request(1),)
