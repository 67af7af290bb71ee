"""llama.cpp's /completion: recorded answers (xllamacpp), and every way in which an answer can be wrong."""

import json
from functools import partial

import pytest

from harness.record.outcome import FailureKind
from tests.kit import DATA, assert_failed, payloads, wire_of
from tests.sut.wire import judging
from tests.sut.wire.judging import BAD_FIRST_IDS, BAD_IDS, assert_completed

judge = partial(judging.judge, "llamacpp")
# The recording run's ids, the same from its stream and from its whole answer (seed 7).
IDS = [44991, 63478, 196390, 91552, 62556, 53950, 17517, 82780]


def event(ids, predicted, **more):
    document = {"index": 0, "content": "x", "tokens": ids, "stop": False, "id_slot": -1}
    return json.dumps(document | {"tokens_predicted": predicted, "tokens_evaluated": 4} | more).encode()


def last(predicted, stop_type="eos", ids=(), **more):
    document = {"tokens": list(ids), "stop": True, "stop_type": stop_type, "tokens_predicted": predicted}
    return json.dumps(document | {"tokens_evaluated": 4, "truncated": False} | more).encode()


def stream(count):
    return [event([token], i + 1) for i, token in enumerate(IDS[:count])]


@pytest.mark.parametrize(("given", "sent"), [(0, 0), (-1, 0), (40, 40)])
def test_request_body(given, sent):
    wire = wire_of("llamacpp", top_k=given, extra={"ignore_eos": True})
    expected = {"prompt": [1, 2], "n_predict": 20, "top_k": sent, "stream": True, "cache_prompt": False}
    expected |= {"min_p": 0, "return_tokens": True, "ignore_eos": True}  # min_p's default, 0.05, is a filter
    assert json.loads(wire.render([1, 2])).items() >= expected.items()


def test_seed():
    """llama.cpp has no name for the least length, as a warning says before the run."""
    plain, seeded = (
        json.loads(wire_of("llamacpp", **given).render([1]))
        for given in ({}, {"min_new_tokens": 1, "seed": 42})
    )
    assert seeded == plain | {"seed": 42}


@pytest.mark.parametrize(
    ("name", "ids", "reason"),
    [
        ("llamacpp_stream.txt", IDS, "length"),
        ("llamacpp_response_fields.txt", IDS, "length"),
        ("llamacpp_one_token.txt", IDS[:1], "length"),
        ("llamacpp_eos.txt", [200002], "stop"),
    ],
)
def test_recorded_streams(name, ids, reason):
    assert_completed(judge(payloads(name), asked=len(ids)), ids, reason)


def test_recorded_whole_answer():
    whole = (DATA / "llamacpp_whole.txt").read_bytes()
    assert_completed(judge([whole], asked=8), IDS, "length")


def test_recorded_stream_that_withheld_ids():
    """Ids whose text ends inside a UTF-8 character are never sent; only the count jumps."""
    outcome = judge(payloads("llamacpp_withheld_ids.txt"))
    assert_failed(outcome, FailureKind.TOKEN_COUNT, "token ids, the server counted")


def test_recorded_stream_that_the_context_cut_off():
    """A prompt of 510 tokens in a context of 512, asked for 50: llama.cpp calls that its limit."""
    events = payloads("llamacpp_context_full.txt")
    assert_failed(judge(events, asked=50), FailureKind.UNFINISHED, "2 of 50 tokens")


def test_recorded_error():
    body = (DATA / "llamacpp_error_prompt_too_long.txt").read_bytes()
    assert_failed(judge([body]), FailureKind.IN_BAND_ERROR, "exceeds the available context size")


def test_a_recorded_stream_without_one_of_its_events():
    events = payloads("llamacpp_stream.txt")
    for gone in range(len(events)):
        kind = FailureKind.UNFINISHED if gone == len(events) - 1 else FailureKind.TOKEN_COUNT
        assert_failed(judge(events[:gone] + events[gone + 1 :], asked=8), kind)


HONEST = {
    "token by token": [*stream(3), last(3)],
    "two at once": [event(IDS[:2], 2), event(IDS[2:3], 3), last(3)],
    "first event without tokens": [event([], 0), *stream(3), last(3)],
    "whole": [last(3, ids=IDS[:3])],
    "a stop word": [*stream(3), last(3, "word")],
    "error null": [event(IDS[:3], 3, error=None), last(3)],
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_answers(name):
    assert_completed(judge(HONEST[name]), IDS[:3], "stop")


FAILED = {
    "nothing": ([], FailureKind.UNFINISHED),
    "no last event": (stream(3), FailureKind.UNFINISHED),
    "goes on after its last event": ([*stream(2), last(2), event(IDS[2:3], 3)], FailureKind.AFTER_END),
    "an unknown stop type": (
        [*stream(3), event([], 3, stop=True, stop_type="cancelled")],
        FailureKind.FINISH_REASON,
    ),
    "no stop type": ([*stream(3), event([], 3, stop=True)], FailureKind.FINISH_REASON),
    "no tokens": ([last(0)], FailureKind.NO_TOKENS),
    "counts one more": ([*stream(3), last(4)], FailureKind.TOKEN_COUNT),
    "counts one fewer": ([*stream(3), last(2)], FailureKind.TOKEN_COUNT),
    "counts a huge number": ([*stream(3), last(10**30)], FailureKind.TOKEN_COUNT),
    "counts a negative number": ([*stream(3), last(-3)], FailureKind.TOKEN_COUNT),
    "an event twice": ([*stream(3), event(IDS[2:3], 3), last(3)], FailureKind.TOKEN_COUNT),
    "events swapped": ([stream(3)[i] for i in (0, 2, 1)] + [last(3)], FailureKind.TOKEN_COUNT),
    "one lost, another twice": ([stream(3)[i] for i in (0, 1, 1)] + [last(3)], FailureKind.TOKEN_COUNT),
    "no count": ([*stream(3), last(None)], FailureKind.MALFORMED),
    "no tokens member": ([b'{"content":"x","stop":false}'], FailureKind.MALFORMED),
    "tokens null": ([event(None, 1)], FailureKind.MALFORMED),
    "stop a string": ([event(IDS[:1], 1, stop="yes")], FailureKind.MALFORMED),
    "no JSON": ([b"oops"], FailureKind.MALFORMED),
    "empty": ([b""], FailureKind.MALFORMED),
    "cut": ([stream(1)[0][:-2]], FailureKind.MALFORMED),
}


@pytest.mark.parametrize("name", FAILED)
def test_failures(name):
    events, kind = FAILED[name]
    assert_failed(judge(events), kind)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_in_band_errors(place):
    events = [*stream(2), last(2)]
    events.insert(place, b'{"error":{"code":500,"message":"boom","type":"server_error"}}')
    assert_failed(judge(events), FailureKind.IN_BAND_ERROR, "boom")


def test_more_tokens_than_asked():
    assert_failed(judge([*stream(3), last(3)], asked=2), FailureKind.TOO_MANY_TOKENS)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(("bad", "kind"), BAD_IDS.values(), ids=BAD_IDS)
def test_ids_that_no_model_has(bad, kind, place):
    ids = [*IDS[:place], bad, *IDS[place + 1 : 3]]
    assert_failed(judge([*(event([token], i + 1) for i, token in enumerate(ids)), last(3)]), kind)
    assert_failed(judge([last(3, ids=ids)]), kind)


@pytest.mark.parametrize("bad", BAD_FIRST_IDS)
def test_a_bad_first_id_fails_before_it_is_reported(bad):
    assert_failed(wire_of("llamacpp").answer().feed(event([bad], 1)), FailureKind.TOKEN_VALUE)
