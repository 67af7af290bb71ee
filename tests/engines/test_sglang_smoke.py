"""Real SGLang has the protocol that the code expects, and gives transformers' greedy tokens."""

import json
import urllib.request
from itertools import chain

import pytest

from harness.dataset import tokenizer
from tests.engines import sglang_server as sglang

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

NEW_TOKENS = 20
# The second is "The quick brown fox jumps over the lazy dog."; the last is "Grüße aus Zürich! " thirty times,
# longer than the sliding window of 128 tokens, and its repetitions lead to ties.
PROMPTS = [
    [200006, 17360, 200008, 3575],
    [976, 4853, 19705, 68347, 65613, 1072, 290, 29082, 6446, 13],
    [3193, 572, 13153, 3976, 127483, 0, 220] * 30,
]
# How many tokens can be known after an event, by stream interval. A busy server skips some.
COUNTS = {1: set(range(1, NEW_TOKENS + 1)), 8: {1, 9, 17, 20}}


def generate(url: str, input_ids: list[int], **parameters) -> list[str]:
    """The payloads of the stream's events."""
    sampling = {"temperature": 0.0, "top_k": -1, "skip_special_tokens": False, "ignore_eos": True}
    body = {"input_ids": input_ids, "sampling_params": sampling | parameters, "stream": True}
    request = urllib.request.Request(
        f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        events = response.read().decode().split("\n\n")
    return [event.removeprefix("data: ") for event in events if event]


def is_cumulative(server) -> bool:
    return "--incremental-streaming-output" not in server.arguments


def whole(parts: list[list[int]], cumulative: bool) -> list[int]:
    return parts[-1] if cumulative else list(chain.from_iterable(parts))


@pytest.fixture(scope="session")
def first_outputs():
    """The outputs of the first configuration, which the others must repeat."""
    return {}


@pytest.mark.parametrize("sglang_server", list(sglang.CONFIGURATIONS), indirect=True)
def test_every_stream_shape_carries_transformers_greedy_tokens(sglang_server, first_outputs):
    outputs = []
    for prompt in PROMPTS:
        *events, done = generate(sglang_server.url, prompt, max_new_tokens=NEW_TOKENS)
        assert done == "[DONE]"
        answers = [json.loads(event) for event in events]
        outputs.append(whole([answer["output_ids"] for answer in answers], is_cumulative(sglang_server)))
        counts = [answer["meta_info"]["completion_tokens"] for answer in answers]
        assert counts == sorted(set(counts))
        assert counts[-1] == NEW_TOKENS
        assert set(counts) <= COUNTS[int(sglang_server.arguments[1])]
        reasons = [answer["meta_info"]["finish_reason"] for answer in answers]
        assert reasons == [None] * (len(events) - 1) + [{"type": "length", "length": NEW_TOKENS}]
    gaps = sglang.greedy_gaps(list(zip(PROMPTS, outputs, strict=True)))
    assert [len(gap) for gap in gaps] == [NEW_TOKENS] * len(PROMPTS)
    *exact, tied = gaps
    assert set(chain.from_iterable(exact)) == {0.0}
    assert max(tied) < sglang.GREEDY_GAP
    assert outputs == first_outputs.setdefault("outputs", outputs)


def test_the_greedy_gap_of_a_wrong_token_is_large(sglang_installed):
    """Else the test above could not fail: ids that are not the model's choice are far from it."""
    (gaps,) = sglang.greedy_gaps(
        [(PROMPTS[1], tokenizer.encode(" and runs away from all the other animals"))]
    )
    assert min(gaps) > 5 * sglang.GREEDY_GAP


def test_the_stop_token_is_part_of_the_answer_and_counted(sglang_server):
    ids = json.loads(generate(sglang_server.url, PROMPTS[0], max_new_tokens=NEW_TOKENS)[-2])["output_ids"]
    *_, last, _ = generate(sglang_server.url, PROMPTS[0], stop_token_ids=[ids[2]], ignore_eos=False)
    answer = json.loads(last)
    assert answer["output_ids"] == ids[:3]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": ids[2]}


def test_a_refused_request_is_an_error_inside_a_200_response(sglang_server):
    refused, done = generate(sglang_server.url, [5] * 8000, max_new_tokens=1000)
    assert json.loads(refused)["error"]["code"] == 400
    assert done == "[DONE]"


def test_top_k_zero_is_refused(sglang_server):
    refused, _ = generate(sglang_server.url, PROMPTS[0], temperature=1.0, top_k=0)
    assert "top_k must be -1" in json.loads(refused)["error"]["message"]


def test_least_length_and_seed_have_these_names(sglang_server):
    """And the least length needs the server's tokenizer, which knows the end tokens."""
    url = sglang_server.url
    ids = json.loads(generate(url, PROMPTS[0], max_new_tokens=NEW_TOKENS)[-2])["output_ids"]
    seeded = json.loads(generate(url, PROMPTS[0], max_new_tokens=NEW_TOKENS, sampling_seed=42)[-2])
    assert seeded["output_ids"] == ids
    ended = {"stop_token_ids": [ids[0]], "ignore_eos": False, "max_new_tokens": NEW_TOKENS}
    answer = json.loads(generate(url, PROMPTS[0], **ended, min_new_tokens=3)[-2])
    if "--skip-tokenizer-init" in sglang_server.arguments:
        assert answer["error"]["message"].startswith("min_new_tokens=3 is unavailable")
    else:
        assert answer["meta_info"]["completion_tokens"] >= 3


def test_the_server_tells_what_the_preflight_asks(sglang_server):
    with urllib.request.urlopen(f"{sglang_server.url}/server_info", timeout=10) as response:
        info = json.load(response)
    asked = ("version", "context_length", "dp_size", "stream_interval", "incremental_streaming_output")
    assert [info[key] for key in asked] == ["0.5.23", sglang.CONTEXT_LENGTH, 1, 1, False]
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == sglang.MAX_RUNNING_REQUESTS
