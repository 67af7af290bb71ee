"""SGLang's /generate: recorded answers of SGLang 0.5.23, and what is wrong in its own way.

Every event of a cumulative stream is checked, although only its new part is decoded.
"""

import json
from functools import partial

import pytest

from harness.record.outcome import Failure, FailureKind
from sut.wire.sglang import SglangAnswer
from tests.kit import assert_failed, wire_of
from tests.recorded_wires import exchange
from tests.stub.protocol import compact
from tests.sut.wire import judging
from tests.sut.wire.judging import GREEDY, as_rust, assert_completed, cumulative, incremental, recorded
from tests.sut.wire.judging import sglang_event as event

judge = partial(judging.judge, "sglang")


# Of pytorch/run_server.sh with the tiny DeepSeek of tests/engines/models/make_tiny_models.py.
PYTORCH = [140, 190, 47, 175, 315, 201]


@pytest.mark.parametrize(
    ("name", "ids", "asked", "reason"),
    [
        ("sglang_cumulative_interval1", GREEDY, 20, "length"),
        ("sglang_cumulative_interval8", GREEDY, 20, "length"),
        ("sglang_incremental_interval1", GREEDY, 20, "length"),
        ("sglang_incremental_interval8", GREEDY, 20, "length"),
        ("sglang_cumulative_skip_tokenizer", GREEDY[:3], 3, "stop"),
        ("sglang_stop_token_third", GREEDY[:3], 3, "stop"),
        ("sglang_one_token", GREEDY[:1], 1, "length"),
        ("sglang_whole", GREEDY[:4], 4, "length"),
        ("sglang_eos", [200002], 20, "stop"),  # at once
        ("pytorch_length", PYTORCH, 6, "length"),
        ("pytorch_whole_length", PYTORCH, 6, "length"),
        ("pytorch_stop", PYTORCH[:4], 6, "stop"),
        ("pytorch_whole_stop", PYTORCH[:4], 6, "stop"),
    ],
)
def test_recorded_answers(name, ids, asked, reason):
    assert_completed(judge(recorded(name), asked), ids, reason)


@pytest.mark.parametrize(
    ("name", "kind", "wording"),
    [
        ("pytorch_ended", FailureKind.ABORTED, "the server is ending"),
        ("sglang_error_prompt_too_long", FailureKind.IN_BAND_ERROR, "longer than the model's context"),
        ("sglang_error_top_k_zero", FailureKind.IN_BAND_ERROR, "top_k must be -1"),
        ("sglang_zero_tokens", FailureKind.NO_TOKENS, "without a token"),
    ],
)
def test_recorded_failures(name, kind, wording):
    assert_failed(judge(recorded(name)), kind, wording)


@pytest.mark.parametrize("mode", ["cumulative", "incremental"])
@pytest.mark.parametrize("interval", [1, 8])
def test_a_recorded_stream_without_one_of_its_events(mode, interval):
    events = recorded(f"sglang_{mode}_interval{interval}")
    for gone in range(len(events)):
        outcome = judge(events[:gone] + events[gone + 1 :])
        if gone == len(events) - 1:
            assert_failed(outcome, FailureKind.UNFINISHED)
        elif mode == "cumulative":
            assert_completed(outcome, GREEDY, "length")
        else:
            assert_failed(outcome, FailureKind.TOKEN_COUNT)


@pytest.mark.parametrize("mode", ["cumulative", "incremental"])
def test_a_recorded_stream_with_two_events_swapped(mode):
    events = recorded(f"sglang_{mode}_interval1")
    for i in range(len(events) - 1):
        outcome = judge([*events[:i], events[i + 1], events[i], *events[i + 2 :]])
        assert isinstance(outcome, Failure), i


BARE = [e.replace(b'"text":"",', b"") for e in cumulative(1, 2, 3, 4)]  # as with --skip-tokenizer-init
WORDS = ["", " a\\", ' a\\ "b', ' a\\ "b","output_ids":[1']  # what could end a text, were it not escaped


def worded(*words):
    """A cumulative stream with text before the ids."""
    events = cumulative(*range(1, len(words) + 1))
    return [compact(json.loads(e) | {"text": word}) for e, word in zip(events, words, strict=True)]


HONEST = {
    "final event repeats, cumulative": [*cumulative(1, 2, 4, finish=None), event(GREEDY[:4], 4, "stop")],
    "final event has no new ids, incremental": [*incremental(1, 2, 4, finish=None), event([], 4, "stop")],
    "one token, then the end": [event(GREEDY[:1]), event([], 1, "stop")],
    "one token, repeated at the end": [event(GREEDY[:1]), event(GREEDY[:1], 1, "stop")],
    "error null": [event(GREEDY[:2], error=None), event(GREEDY[:4], 4, "stop", error=None)],
    "unknown members": [event(GREEDY[:4], 4, "stop", routed_experts=[[1.5, None]], index=0)],
    "indented JSON": [json.dumps(json.loads(e), indent=1).encode() for e in cumulative(1, 2, 3, 4)],
    "meta_info first": [compact(dict(reversed(json.loads(e).items()))) for e in cumulative(1, 2, 3, 4)],
    "bare": BARE,
    "text": worded(*WORDS),
    "other text": worded("a", "ab", "a\ufffd", "a\u00e9d"),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_answers(name):
    ids = GREEDY[:1] if name.startswith("one token") else GREEDY[:4]
    assert_completed(judge(HONEST[name]), ids)
    assert_completed(judge(map(as_rust, HONEST[name])), ids)


@pytest.mark.parametrize("name", ["sglang-0.5.23/native-ids", "sglang-0.5.23-rust/native-ids"])
def test_most_events_of_a_recorded_stream_are_not_decoded(name, monkeypatch):
    """Only what is new in a cumulative one is, and that only where it is not as in the event before."""
    taken = []
    for method in (SglangAnswer._take, SglangAnswer._take_rest):
        monkeypatch.setattr(SglangAnswer, method.__name__, counted(method, taken))
    *events, done = exchange(f"{name}-stream").events
    assert done == b"[DONE]"
    answer = wire_of("sglang", max_new_tokens=60).answer()
    assert not any(map(answer.feed, events))
    assert answer.finish().output_ids.tolist() == json.loads(events[-1])["output_ids"]
    assert len(taken) == 3 < len(events)


def counted(method, calls):
    def call(*arguments):
        calls.append(arguments)
        return method(*arguments)

    return call


@pytest.mark.parametrize("mode", [cumulative, incremental])
@pytest.mark.parametrize(
    "text", ['"completion_tokens":1', '"completion_tokens":99,', '"completion_tokens":"x"}}']
)
def test_text_that_looks_like_the_count(mode, text):
    events = [json.loads(e) | {"text": text} for e in mode(1, 2, 3, 4)]
    for order in (dict, lambda e: dict(reversed(e.items()))):
        assert_completed(judge([compact(order(e)) for e in events]), GREEDY[:4])


CUMULATIVE_3, INCREMENTAL_3 = cumulative(1, 2, 3, finish=None), incremental(1, 2, 3, finish=None)
CHANGED = [GREEDY[0] + 1, *GREEDY[1:4]]
WRONG_COUNT = {
    "cumulative: ids shrink": [*cumulative(1, 2, 4, finish=None), event(GREEDY[:2], 2, "stop")],
    "cumulative: ids shrink in the middle": [*cumulative(1, 2, 4, finish=None), *cumulative(3, 5)],
    "cumulative: back to none": [*CUMULATIVE_3, event([], 0, "stop")],
    "cumulative: first id changed": [*CUMULATIVE_3, event(CHANGED, 4, "stop")],
    "cumulative: second event changed": [event(GREEDY[:1]), event(CHANGED[:2], 2, "stop")],
    "cumulative: a digit more": [*CUMULATIVE_3, event([*GREEDY[:2], GREEDY[2] * 10 + 5], 4, "stop")],
    "cumulative: two digits more": [*CUMULATIVE_3, event([*GREEDY[:2], GREEDY[2] * 100 + 34], 4, "stop")],
    "cumulative: ids end early": [*CUMULATIVE_3, event(GREEDY[:3], 4, "stop")],
    "cumulative turns incremental": [*CUMULATIVE_3, event([GREEDY[3]], 4, "stop")],
    "incremental turns cumulative": [*INCREMENTAL_3, event(GREEDY[:4], 4, "stop")],
    "incremental: an event twice": [*INCREMENTAL_3, event([GREEDY[2]], 3), event([], 3, "stop")],
    "incremental: count goes back": [*INCREMENTAL_3, event([GREEDY[3]], 2, "stop")],
    "first event: count without ids": [event([], 1), event(GREEDY[:4], 4, "stop")],
    "first event: ids without count": [event(GREEDY[:1], 0), event(GREEDY[:4], 4, "stop")],
}


@pytest.mark.parametrize("name", WRONG_COUNT)
def test_ids_that_do_not_add_up(name):
    assert_failed(judge(WRONG_COUNT[name]), FailureKind.TOKEN_COUNT)
    assert_failed(judge(map(as_rust, WRONG_COUNT[name])), FailureKind.TOKEN_COUNT)


def test_an_in_band_error_beside_ids():
    broken = event(GREEDY[:4], 4, "stop", error={"message": "out of memory"})
    assert_failed(judge([*CUMULATIVE_3, broken]), FailureKind.IN_BAND_ERROR, "out of memory")


@pytest.mark.parametrize(
    "text", [json.dumps("\x1b[31m\u202e" + "x" * 5000, ensure_ascii=False).encode(), b'"\xff\xfe"']
)
def test_hostile_error_text_is_made_printable(text):
    assert_failed(judge([b'{"error":%b}' % text]), FailureKind.IN_BAND_ERROR)


def test_abort_says_why():
    last = json.loads(event(GREEDY[:1], 1, "abort"))
    last["meta_info"]["finish_reason"] |= {"message": "client gone", "status_code": 503, "err_type": None}
    assert_failed(judge([compact(last)]), FailureKind.ABORTED, "client gone")


def test_a_model_that_computes_no_numbers():
    """SGLang replaces its token by the end, and says so here alone."""
    last = json.loads(event(GREEDY[:1], 1, "stop"))
    last["meta_info"]["finish_reason"]["matched"] = "NaN happened"
    assert_failed(judge([compact(last)]), FailureKind.IN_BAND_ERROR, "NaN happened")
    last["meta_info"]["finish_reason"]["matched"] = "<|eot_id|>"
    assert_completed(judge([compact(last)]), GREEDY[:1])


def test_a_finish_reason_has_nothing_undocumented():
    for name, value in (("retries", 3), ("retries", 0)):
        last = json.loads(event(GREEDY[:4], 4, "stop"))
        last["meta_info"]["finish_reason"][name] = value
        if value:
            assert_failed(judge([compact(last)]), FailureKind.IN_BAND_ERROR, "retries is 3")
        else:
            assert_completed(judge([compact(last)]), GREEDY[:4])


@pytest.mark.parametrize("count", [21, 2**32, 2**64, 10**23])
def test_a_count_beyond_what_was_asked_is_held_against_the_ids_at_once(count):
    """Inner events of a cumulative stream are not decoded; their count alone must not be believed."""
    events = [*cumulative(1, 2, finish=None), event(GREEDY[:3], count), event(GREEDY, 20, "length")]
    assert_failed(judge(events), FailureKind.TOKEN_COUNT, "3 token ids")


MALFORMED = {
    "no output_ids": b'{"meta_info":{"completion_tokens":0}}',
    "no meta_info": b'{"output_ids":[7]}',
    "no completion_tokens": b'{"output_ids":[7],"meta_info":{"finish_reason":null}}',
    "output_ids null": event(GREEDY[:1], 1, "stop", output_ids=None),
    "output_ids an object": event(GREEDY[:1], 1, "stop", output_ids={}),
    "count a float": event(GREEDY[:1], 1.5),
    "count a string": event(GREEDY[:1], "1"),
    "count null": event(GREEDY[:1]).replace(b'"completion_tokens":1', b'"completion_tokens":null'),
    "finish reason a string": event(GREEDY[:1]).replace(b'"finish_reason":null', b'"finish_reason":"stop"'),
    "a finish reason that is not UTF-8": event(GREEDY[:1], 1, "stop").replace(b'"stop"', b'"\xff"'),
    # It is put aside undecoded, and must fail, not raise, when the answer is judged.
    "nested deeply": event(GREEDY[:4], 4, "stop")[:-1] + b',"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_events(name):
    for before in ([], CUMULATIVE_3, INCREMENTAL_3):
        assert_failed(judge([*before, MALFORMED[name]]), FailureKind.MALFORMED)


def test_a_text_that_is_repeated_with_a_fault_is_malformed():
    events = worded("ab", "abc", "abcd", "abcde")
    events[3] = events[3].replace(b'"abcd', b'"a\x01cd')
    assert_failed(judge(events), FailureKind.MALFORMED)


MIDDLES = {
    "an error": (lambda e: e[:-1] + b',"error":{"message":"boom"}}', FailureKind.IN_BAND_ERROR),
    "an abort": (lambda e: event(GREEDY[:4], 4, "abort"), FailureKind.ABORTED),
    "a finish reason": (lambda e: event(GREEDY[:4], 4, "stop"), FailureKind.AFTER_END),
    "an unknown finish reason": (lambda e: event(GREEDY[:4], 4, "cancelled"), FailureKind.FINISH_REASON),
    "no list end": (lambda e: e.replace(b"]", b"", 1), FailureKind.MALFORMED),
    "cut off": (lambda e: e[:-1], FailureKind.MALFORMED),
    "cut behind the ids before": (lambda e: e[: e.index(b",%d]" % GREEDY[3])], FailureKind.MALFORMED),
    "a comma without an id": (lambda e: e.replace(b",%d]" % GREEDY[3], b",]"), FailureKind.MALFORMED),
    "a count and nothing else": (lambda e: b'{"meta_info":{"completion_tokens":4}}', FailureKind.MALFORMED),
    "ids swapped": (lambda e: event([GREEDY[1], GREEDY[0], *GREEDY[2:4]]), FailureKind.TOKEN_COUNT),
    "the last id longer": (
        lambda e: event([*GREEDY[:2], GREEDY[2] * 10 + 1, GREEDY[3]]),
        FailureKind.TOKEN_COUNT,
    ),
    "a count too high": (lambda e: event(GREEDY[:4], 5), FailureKind.TOKEN_COUNT),
    "no new id, but a count": (lambda e: event(GREEDY[:3], 4), FailureKind.TOKEN_COUNT),
    "a text that breaks off": (lambda e: e.replace(b'"text":""', b'"text":"'), FailureKind.MALFORMED),
    "a control character": (lambda e: e.replace(b'"text":""', b'"text":"\x01"'), FailureKind.MALFORMED),
    "a wrong escape": (lambda e: e.replace(b'"text":""', b'"text":"\\q"'), FailureKind.MALFORMED),
}


@pytest.mark.parametrize("name", MIDDLES)
def test_an_event_in_the_middle_is_checked_like_any_other(name):
    changed, kind = MIDDLES[name]
    events = cumulative(1, 2, 3, 4, 5, 6)
    events[3] = changed(events[3])
    assert_failed(judge(events), kind)
    if kind is not FailureKind.MALFORMED:
        assert_failed(judge([e.replace(b'"text":"",', b"") for e in events]), kind)
    events = [*map(as_rust, cumulative(1, 2, 3, 4, 5, 6))]
    events[3] = changed(events[3])
    assert_failed(judge(events), kind)
