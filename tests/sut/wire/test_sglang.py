"""SGLang's /generate: recorded answers of SGLang 0.5.23, and every way in which an answer can be wrong."""

import json
from functools import partial

import pytest

from harness.record.outcome import Failure, FailureKind
from tests.kit import DATA, VOCABULARY, assert_failed, payloads, wire_of
from tests.sut.wire import judging
from tests.sut.wire.judging import BAD_FIRST_IDS, BAD_IDS, assert_completed

judge = partial(judging.judge, "sglang")
# What transformers and SGLang's four stream modes agreed on when the streams were recorded.
GREEDY = [99304, 59433, 40763, 101338, 92283, 106967, 180716, 120084, 124208, 183873]
GREEDY += [19922, 22999, 103508, 123831, 29770, 16916, 36053, 190273, 71319, 195947]


def event(ids, count=None, finish=None, **more):
    """An event in SGLang's key order; ``finish`` "stop"/"length"/"abort"."""
    meta = {"id": "x", "finish_reason": finish and {"type": finish}, "prompt_tokens": 4, "num_retractions": 0}
    meta |= {"completion_tokens": len(ids) if count is None else count, "cached_tokens": 0}
    return compact({"text": "", "output_ids": ids, "meta_info": meta} | more)


def compact(document):
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def cumulative(*lengths, finish="stop"):
    """Events that repeat everything: ``lengths`` tokens so far in each."""
    return [event(GREEDY[:n], finish=finish if n == lengths[-1] else None) for n in lengths]


def incremental(*ends, finish="stop"):
    starts = (0, *ends[:-1])
    return [
        event(GREEDY[a:b], b, finish if i == len(ends) - 1 else None)
        for i, (a, b) in enumerate(zip(starts, ends, strict=True))
    ]


def test_request_body():
    body = json.loads(wire_of().render([200006, 1, 2]))
    sampling = {"max_new_tokens": 20, "temperature": 1.0, "top_p": 1.0, "top_k": -1}  # SGLang refuses top_k 0
    sampling |= {"skip_special_tokens": False}
    assert body == {"input_ids": [200006, 1, 2], "sampling_params": sampling, "stream": True}


def test_least_length_and_seed():
    """In the names of SGLang 0.5.23, which refuses other servers' names."""
    sent = json.loads(wire_of(min_new_tokens=1, seed=42).render([1]))
    assert sent["sampling_params"].items() >= {"min_new_tokens": 1, "sampling_seed": 42}.items()


@pytest.mark.parametrize(("given", "sent"), [(0, -1), (-1, -1), (1, 1), (50, 50)])
def test_top_k(given, sent):
    wire = wire_of(top_k=given)
    assert json.loads(wire.render([1]))["sampling_params"]["top_k"] == sent


def test_extra_parameters_travel_as_they_are():
    wire = wire_of(stream=False, extra={"min_p": 0.1})
    body = json.loads(wire.render([1]))
    assert body["sampling_params"]["min_p"] == 0.1
    assert body["stream"] is False


@pytest.mark.parametrize(
    ("name", "count", "reason"),
    [
        ("sglang_cumulative_interval1.txt", 20, "length"),
        ("sglang_cumulative_interval8.txt", 20, "length"),
        ("sglang_incremental_interval1.txt", 20, "length"),
        ("sglang_incremental_interval8.txt", 20, "length"),
        ("sglang_cumulative_skip_tokenizer.txt", 3, "stop"),
        ("sglang_stop_token_third.txt", 3, "stop"),
        ("sglang_one_token.txt", 1, "length"),
    ],
)
def test_recorded_streams(name, count, reason):
    assert_completed(judge(payloads(name), asked=count), GREEDY[:count], reason)


def test_recorded_end_of_text_at_once():
    assert_completed(judge(payloads("sglang_eos.txt")), [200002])


def test_recorded_whole_answer():
    whole = (DATA / "sglang_whole.txt").read_bytes()
    assert_completed(judge([whole], asked=4), GREEDY[:4], "length")


# Of pytorch/run_server.sh with the tiny DeepSeek of tests/engines/models/make_tiny_models.py.
PYTORCH = [140, 190, 47, 175, 315, 201]


@pytest.mark.parametrize(("name", "count", "reason"), [("length", 6, "length"), ("stop", 4, "stop")])
def test_recorded_answers_of_the_pytorch_server(name, count, reason):
    whole = (DATA / f"pytorch_whole_{name}.txt").read_bytes()
    for events in (payloads(f"pytorch_{name}.txt"), [whole]):
        assert_completed(judge(events, asked=6), PYTORCH[:count], reason)


@pytest.mark.parametrize(
    ("name", "kind", "wording"),
    [
        ("pytorch_ended.txt", FailureKind.ABORTED, "the server is ending"),
        ("sglang_error_prompt_too_long.txt", FailureKind.IN_BAND_ERROR, "longer than the model's context"),
        ("sglang_error_top_k_zero.txt", FailureKind.IN_BAND_ERROR, "top_k must be -1"),
        ("sglang_zero_tokens.txt", FailureKind.NO_TOKENS, "without a token"),
    ],
)
def test_recorded_failures(name, kind, wording):
    assert_failed(judge(payloads(name)), kind, wording)


@pytest.mark.parametrize("mode", ["cumulative", "incremental"])
@pytest.mark.parametrize("interval", [1, 8])
def test_a_recorded_stream_without_one_of_its_events(mode, interval):
    events = payloads(f"sglang_{mode}_interval{interval}.txt")
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
    events = payloads(f"sglang_{mode}_interval1.txt")
    for i in range(len(events) - 1):
        outcome = judge([*events[:i], events[i + 1], events[i], *events[i + 2 :]])
        assert isinstance(outcome, Failure), i


HONEST = {
    "cumulative": cumulative(1, 2, 3, 4),
    "incremental": incremental(1, 2, 3, 4),
    "cumulative, 3 an event": cumulative(1, 4),
    "incremental, 3 an event": incremental(1, 4),
    "first event with several": cumulative(3, 4),
    "first event with several, incremental": incremental(3, 4),
    "one event": cumulative(4),
    "first event without tokens, cumulative": cumulative(0, 1, 4),
    "first event without tokens, incremental": incremental(0, 1, 4),
    "final event repeats, cumulative": [*cumulative(1, 2, 4, finish=None), event(GREEDY[:4], 4, "stop")],
    "final event has no new ids, incremental": [*incremental(1, 2, 4, finish=None), event([], 4, "stop")],
    "one token, then the end": [event(GREEDY[:1]), event([], 1, "stop")],
    "one token, repeated at the end": [event(GREEDY[:1]), event(GREEDY[:1], 1, "stop")],
    "error null": [event(GREEDY[:2], error=None), event(GREEDY[:4], 4, "stop", error=None)],
    "unknown members": [event(GREEDY[:4], 4, "stop", routed_experts=[[1.5, None]], index=0)],
    "spaced JSON": [json.dumps(json.loads(e)).encode() for e in cumulative(1, 2, 3, 4)],
    "indented JSON": [json.dumps(json.loads(e), indent=1).encode() for e in cumulative(1, 2, 3, 4)],
    "meta_info first": [compact(dict(reversed(json.loads(e).items()))) for e in cumulative(1, 2, 3, 4)],
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_answers(name):
    events = HONEST[name]
    ids = GREEDY[:1] if name.startswith("one token") else GREEDY[:4]
    assert_completed(judge(events), ids)


@pytest.mark.parametrize("mode", [cumulative, incremental])
@pytest.mark.parametrize(
    "text", ['"completion_tokens":1', '"completion_tokens":99,', '"completion_tokens":"x"}}']
)
def test_text_that_looks_like_the_count(mode, text):
    events = [json.loads(e) | {"text": text} for e in mode(1, 2, 3, 4)]
    for order in (dict, lambda e: dict(reversed(e.items()))):
        assert_completed(judge([compact(order(e)) for e in events]), GREEDY[:4])


def test_first_token_is_known_with_the_first_event():
    answer = wire_of().answer()
    assert (answer.tokens, answer.first_id) == (0, -1)
    answer.feed(event([], 0))
    assert (answer.tokens, answer.first_id) == (0, -1)
    answer.feed(event(GREEDY[:2]))
    assert (answer.tokens, answer.first_id) == (2, GREEDY[0])
    answer.feed(event(GREEDY[:3]))
    assert (answer.tokens, answer.first_id) == (3, GREEDY[0])


CUMULATIVE_3, INCREMENTAL_3 = cumulative(1, 2, 3, finish=None), incremental(1, 2, 3, finish=None)
CHANGED = [GREEDY[0] + 1, *GREEDY[1:4]]
WRONG_COUNT = {
    "cumulative: ids shrink": [*cumulative(1, 2, 4, finish=None), event(GREEDY[:2], 2, "stop")],
    "cumulative: ids shrink in the middle": [*cumulative(1, 2, 4, finish=None), *cumulative(3, 5)],
    "cumulative: back to none": [*CUMULATIVE_3, event([], 0, "stop")],
    "cumulative: first id changed": [*CUMULATIVE_3, event(CHANGED, 4, "stop")],
    "cumulative: second event changed": [event(GREEDY[:1]), event(CHANGED[:2], 2, "stop")],
    "cumulative: count too high": [*CUMULATIVE_3, event(GREEDY[:4], 5, "stop")],
    "cumulative: count too low": [*CUMULATIVE_3, event(GREEDY[:4], 3, "stop")],
    "cumulative: ids end early": [*CUMULATIVE_3, event(GREEDY[:3], 4, "stop")],
    "cumulative turns incremental": [*CUMULATIVE_3, event([GREEDY[3]], 4, "stop")],
    "incremental turns cumulative": [*INCREMENTAL_3, event(GREEDY[:4], 4, "stop")],
    "incremental: an event twice": [*INCREMENTAL_3, event([GREEDY[2]], 3), event([], 3, "stop")],
    "incremental: second event twice": [
        *(*incremental(1, 2, finish=None), event([GREEDY[1]], 2), event([GREEDY[2]], 3, "stop"))
    ],
    "incremental: first event twice": [event(GREEDY[:1]), *incremental(1, 2, 4)],
    "incremental: an event is missing": [incremental(1, 2, 3, 4)[i] for i in (0, 1, 3)],
    "incremental: count goes back": [*INCREMENTAL_3, event([GREEDY[3]], 2, "stop")],
    "first event: count without ids": [event([], 1), event(GREEDY[:4], 4, "stop")],
    "first event: ids without count": [event(GREEDY[:1], 0), event(GREEDY[:4], 4, "stop")],
    "one event: count too high": [event(GREEDY[:4], 5, "stop")],
    "one event: count huge": [event(GREEDY[:4], 10**30, "stop")],
    "one event: count negative": [event(GREEDY[:4], -4, "stop")],
    "nothing but a negative count": [event([], -1, "stop")],
}


@pytest.mark.parametrize("name", WRONG_COUNT)
def test_ids_that_do_not_add_up(name):
    assert_failed(judge(WRONG_COUNT[name]), FailureKind.TOKEN_COUNT)


@pytest.mark.parametrize("name", BAD_IDS)
@pytest.mark.parametrize("place", ["only", "first", "middle", "last"])
@pytest.mark.parametrize("mode", ["whole", "cumulative", "incremental"])
def test_ids_that_no_model_has(name, place, mode):
    bad, kind = BAD_IDS[name]
    at = {"only": 0, "first": 0, "middle": 2, "last": 3}[place]
    count = 1 if place == "only" else 4
    ids = [*GREEDY[:at], bad, *GREEDY[at + 1 : count]]
    ends = [count] if mode == "whole" else range(1, count + 1)
    starts = [n - 1 if mode == "incremental" else 0 for n in ends]
    last = ["stop" if n == count else None for n in ends]
    assert_failed(
        judge([event(ids[a:n], n, end) for a, n, end in zip(starts, ends, last, strict=True)]), kind
    )


@pytest.mark.parametrize("bad", BAD_FIRST_IDS)
def test_a_bad_first_id_fails_before_it_is_reported(bad):
    assert_failed(wire_of().answer().feed(event([bad], 1)), FailureKind.TOKEN_VALUE)


@pytest.mark.parametrize("ok", [0, 1, VOCABULARY - 1])
def test_ids_at_the_edges_of_the_vocabulary(ok):
    assert_completed(judge([event([ok], 1, "stop")]), [ok])


ERROR = b'{"error":{"message":"out of memory","code":500}}'


@pytest.mark.parametrize("mode", [cumulative, incremental])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("error", [ERROR, b'{"error":"out of memory"}'])
def test_in_band_errors(mode, place, error):
    events = mode(1, 2, 3, 4)
    assert_failed(
        judge([*events[:place], error, *events[place:]]), FailureKind.IN_BAND_ERROR, "out of memory"
    )


def test_an_in_band_error_beside_ids():
    broken = event(GREEDY[:4], 4, "stop", error={"message": "out of memory"})
    assert_failed(judge([*CUMULATIVE_3, broken]), FailureKind.IN_BAND_ERROR, "out of memory")


def test_hostile_error_text_is_made_printable():
    error = json.dumps({"error": "\x1b[31m\u202e" + "x" * 5000}, ensure_ascii=False).encode()
    assert_failed(judge([error]), FailureKind.IN_BAND_ERROR)
    assert_failed(judge([b'{"error":"\xff\xfe"}']), FailureKind.IN_BAND_ERROR)


@pytest.mark.parametrize("mode", [cumulative, incremental])
@pytest.mark.parametrize("tokens", [0, 1, 4])
def test_abort(mode, tokens):
    lengths = (1, 2, 3, 4)[:tokens] or (0,)
    assert_failed(judge(mode(*lengths, finish="abort")), FailureKind.ABORTED, f"after {tokens} tokens")


def test_abort_says_why():
    last = json.loads(event(GREEDY[:1], 1, "abort"))
    last["meta_info"]["finish_reason"] |= {"message": "client gone", "status_code": 503, "err_type": None}
    assert_failed(judge([json.dumps(last).encode()]), FailureKind.ABORTED, "client gone")


@pytest.mark.parametrize("mode", [cumulative, incremental])
@pytest.mark.parametrize("lengths", [(1,), (1, 2), (1, 2, 3, 4), (0,)])
def test_no_finish_reason(mode, lengths):
    assert_failed(judge(mode(*lengths, finish=None)), FailureKind.UNFINISHED)


def test_no_event_at_all():
    assert_failed(judge([]), FailureKind.UNFINISHED)


def test_an_answer_that_goes_on_after_its_end():
    events = [*cumulative(1, 2, 3), event(GREEDY[:4])]
    assert_failed(judge(events), FailureKind.AFTER_END)


@pytest.mark.parametrize("mode", [cumulative, incremental])
def test_more_tokens_than_asked(mode):
    events = mode(1, 2, 3, 4, 5)
    assert_failed(judge(events, asked=4), FailureKind.TOO_MANY_TOKENS, "got 5 tokens, asked for 4")
    assert_completed(judge(events, asked=5), GREEDY[:5])


@pytest.mark.parametrize("count", [21, 2**32, 2**64, 10**23])
def test_a_count_beyond_what_was_asked_is_held_against_the_ids_at_once(count):
    """Inner events of a cumulative stream are not decoded; their count alone must not be believed."""
    events = [*cumulative(1, 2, finish=None), event(GREEDY[:3], count), event(GREEDY, 20, "length")]
    assert_failed(judge(events), FailureKind.TOKEN_COUNT, "got 3 token ids, the server counted")


@pytest.mark.parametrize("mode", [cumulative, incremental])
def test_length_with_fewer_tokens_than_asked(mode):
    """The server's context ended the answer, not the rules' limit."""
    events = mode(1, 2, 3, 4, finish="length")
    assert_failed(judge(events, asked=5), FailureKind.UNFINISHED, "4 of 5 tokens")
    assert_completed(judge(events, asked=4), GREEDY[:4], "length")


def without(key, inside=None):
    document = json.loads(event(GREEDY[:1], 1, "stop"))
    del (document[inside] if inside else document)[key]
    return json.dumps(document).encode()


MALFORMED = {
    "empty": b"",
    "text": b"oops",
    "list": b"[]",
    "number": b"7",
    "null": b"null",
    "object without anything": b"{}",
    "cut short": event(GREEDY[:2])[:-3],
    "two documents": event(GREEDY[:1]) * 2,
    "no output_ids": without("output_ids"),
    "no meta_info": without("meta_info"),
    "no completion_tokens": without("completion_tokens", "meta_info"),
    "output_ids null": event(GREEDY[:1], 1, "stop", output_ids=None),
    "output_ids an object": event(GREEDY[:1], 1, "stop", output_ids={}),
    "count a float": event(GREEDY[:1], 1.5),
    "count a string": event(GREEDY[:1], "1"),
    "count null": event(GREEDY[:1]).replace(b'"completion_tokens":1', b'"completion_tokens":null'),
    "finish reason a string": event(GREEDY[:1]).replace(b'"finish_reason":null', b'"finish_reason":"stop"'),
    "not UTF-8": event(GREEDY[:1], text="Z").replace(b'"Z"', b'"\xff"').replace(b'"id":"x"', b'"id":"\xff"'),
    "nested without end": b'{"x":' + b"[" * 50_000,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_events(name):
    bad = MALFORMED[name]
    if name != "not UTF-8":  # unread members may hold anything
        assert_failed(judge([bad]), FailureKind.MALFORMED)
    outcome = judge([*incremental(1, 2, finish=None), bad])
    assert isinstance(outcome, Failure)


def test_a_malformed_last_event_of_a_cumulative_stream():
    for name, bad in MALFORMED.items():
        outcome = judge([*CUMULATIVE_3, bad])
        assert isinstance(outcome, Failure), name


def test_a_deeply_nested_last_event_of_a_cumulative_stream():
    """It is put aside undecoded, and must fail, not raise, when the answer is judged."""
    last = event(GREEDY[:4], 4, "stop")[:-1] + b',"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert_failed(judge([*CUMULATIVE_3, last]), FailureKind.MALFORMED)
