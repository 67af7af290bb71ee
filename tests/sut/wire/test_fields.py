"""What an event may say beside its ids: what is documented, what the trial has shown, and nothing else."""

import json

import pytest

from harness.record.outcome import Completion, Failure, FailureKind
from sut.wire import fields, make_judge, make_wire
from sut.wire import wire as wire_module
from sut.wire.fields import AnswersSeen
from tests.kit import VOCABULARY, assert_failed, parameters, protocol_of
from tests.sut.wire.judging import (
    FORMS,
    GREEDY,
    THOROUGHLY,
    assert_completed,
    damaged,
    judge,
    recorded,
)

IN_BAND, MALFORMED = FailureKind.IN_BAND_ERROR, FailureKind.MALFORMED
# Beside ids, at the top of an event and inside of meta_info or of the choice.
SAYS_A_FAILURE = {
    "error": {"message": "boom"},
    "error text": ("error", "boom"),
    "errors": ["boom"],
    "status_code": 500,
    "statusCode": 503,
    "code": 13,
    "detail": "boom",
    "note": "the GPU fell off the bus",
    "exception": {"type": "RuntimeError"},
    "num_errors": 3,
    "preempted": True,
    "success": False,
    "inner": {"deeper": [{"message": "boom"}]},
}
SAYS_NOTHING = {
    "error": None,
    "error false": ("error", False),
    "error empty": ("error", ""),
    "errors": [],
    "detail": {},
    "errors empty inside": ("errors", [{}, None, ""]),
    "status": "ok",
    "status_code": 200,
    "success": True,
    "spec_accept_length": 2.7,
    "kv_blocks": 70,
    "histogram": [1, 2, 3],
    "details": {"device": 3, "host": 0.5},
}


def beside(protocol, event, inside, name, value):
    """The event with one field more."""
    document = json.loads(event)
    name, value = value if isinstance(value, tuple) else (name, value)
    place = document
    if inside:
        place = document["meta_info"] if protocol == "sglang" else (document.get("choices") or [document])[0]
    place[name] = value
    return json.dumps(document, separators=(",", ":")).encode()


def places(protocol, made):
    """Every event of an answer, and both places in it."""
    events = made(1, 2, 3, 4)
    return [(events, number, inside) for number in range(len(events)) for inside in (False, True)]


@pytest.mark.parametrize("name", SAYS_A_FAILURE)
@pytest.mark.parametrize("form", FORMS)
def test_a_field_that_may_say_a_failure_is_one(form, name):
    protocol, made = FORMS[form]
    for events, number, inside in places(protocol, made):
        said = beside(protocol, events[number], inside, name, SAYS_A_FAILURE[name])
        answer = make_wire(protocol_of(protocol), parameters(), VOCABULARY, "m", known(protocol)).answer()
        fed = [answer.feed(event) for event in (*events[:number], said)]
        assert_failed(fed[-1], IN_BAND)
        assert not any(fed[:-1])


@pytest.mark.parametrize("name", SAYS_NOTHING)
@pytest.mark.parametrize("form", FORMS)
def test_a_field_that_says_nothing_is_none(form, name):
    protocol, made = FORMS[form]
    for events, number, inside in places(protocol, made):
        changed = list(events)
        changed[number] = beside(protocol, events[number], inside, name, SAYS_NOTHING[name])
        assert_completed(judge(protocol, changed), GREEDY[:4])


def known(protocol, **seen):
    """A judge that does not learn."""
    return make_judge(protocol_of(protocol), "m", AnswersSeen(**seen))


def outcome_of(protocol, events, judge_of_run, asked=20):
    answer = make_wire(
        protocol_of(protocol), parameters(max_new_tokens=asked), VOCABULARY, "m", judge_of_run
    ).answer()
    for event in events:
        if (failure := answer.feed(event)) is not None:
            return failure
    return answer.finish()


@pytest.mark.parametrize("form", FORMS)
def test_a_text_of_the_trial_answer_is_known_in_the_run(form):
    """Of the next SGLang or vLLM, which has fields that this one has not."""
    protocol, made = FORMS[form]
    said = [beside(protocol, event, True, "placement", "node 7") for event in made(1, 2)]
    trial = make_judge(protocol_of(protocol), "m")
    assert isinstance(outcome_of(protocol, said, trial), Completion)
    later = [beside(protocol, event, True, "placement", "node 9") for event in made(1, 2)]
    assert_completed(
        outcome_of(protocol, later, make_judge(protocol_of(protocol), "m", trial.seen)), GREEDY[:2]
    )
    assert_failed(outcome_of(protocol, later, known(protocol)), IN_BAND, "placement")
    broken = [beside(protocol, event, True, "placement", "node failed") for event in made(1, 2)]
    assert_failed(
        outcome_of(protocol, broken, make_judge(protocol_of(protocol), "m", trial.seen)),
        IN_BAND,
        "node failed",
    )


RECORDED = [
    *(("sglang", f"sglang_{name}") for name in ("cumulative_interval8", "incremental_interval8", "whole")),
    *(("sglang", f"sglang_{name}") for name in ("cumulative_skip_tokenizer", "eos", "one_token")),
    *(("sglang", f"pytorch_{name}") for name in ("length", "whole_stop")),
    *(("openai", f"vllm_{name}") for name in ("eos", "interval8", "length", "whole_length", "whole_eos")),
    *(("llamacpp", f"llamacpp_{name}") for name in ("stream", "whole", "eos", "one_token")),
]


@pytest.mark.parametrize(("protocol", "name"), RECORDED)
def test_what_real_servers_send_needs_no_trial(protocol, name):
    """Every field of theirs is documented; only the names of models and weights are the servers' own."""
    names = frozenset({"default", "meta-llama/Llama-3.1-8B-Instruct", "tiny-gpt-oss-v1"})
    outcomes = [
        outcome_of(protocol, recorded(name), known(protocol, names=names), n) for n in (1, 4, 6, 8, 20)
    ]
    assert any(isinstance(outcome, Completion) for outcome in outcomes), outcomes


TWICE = [b'"finish_reason"', b'"output_ids"', b'"tokens"', b'"token_ids"', b'"stop"', b'"id"', b'"usage"']


@pytest.mark.parametrize("form", FORMS)
def test_a_key_that_is_given_twice_is_malformed(form):
    """At any depth, in any event, whichever of the two is good."""
    protocol, made = FORMS[form]
    for events, number, _ in places(protocol, made):
        for key in TWICE:
            at = events[number].find(key + b":")
            if at < 0:
                continue
            for value in (b"null,", b'{"type":"abort"},', b"false,"):
                twice = events[number][:at] + key + b":" + value + events[number][at:]
                outcome = judge(protocol, [*events[:number], twice, *events[number + 1 :]])
                assert_failed(outcome, MALFORMED)


def test_an_escaped_key_is_the_same_key():
    for escaped in (b'"\\u0065rror":{"message":"boom"}', b'"err\\u006fr":"boom"'):
        event = FORMS["openai"][1](4)[0].replace(b'"object"', escaped + b',"object"', 1)
        assert_failed(judge("openai", [event]), IN_BAND, "boom")


@pytest.mark.parametrize("form", ["sglang, complete", "openai, complete"])
def test_a_number_under_a_name_of_failures_is_looked_at_every_time(form):
    """200 and 500 have the same form."""
    protocol, made = FORMS[form]
    judge_of_run = known(protocol)
    good, bad = (beside(protocol, made(4)[0], True, "status_code", value) for value in (200, 500))
    assert_completed(outcome_of(protocol, [good], judge_of_run), GREEDY[:4])
    assert_failed(outcome_of(protocol, [bad], judge_of_run), IN_BAND, "500")


@pytest.mark.parametrize("form", FORMS)
def test_half_a_character_in_a_text_changes_nothing(form):
    protocol, made = FORMS[form]
    events = [
        event.replace(b'":"x"', rb'":"\ud800x"').replace(b'"text":""', rb'"text":"\uDFFF"')
        for event in made(1, 2, 3, 4)
    ]
    assert_completed(judge(protocol, events), GREEDY[:4])


def test_the_forms_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(fields, "_MOST_FORMS", 8)
    judge_of_run = make_judge(protocol_of("openai"), "m")
    for number in range(100):
        assert judge_of_run.failure(b'{"id":"x","%b":1}' % (b"a" * number + b"_count")) is None
    assert len(judge_of_run._forms) <= 8


# -- what is compared in place of being decoded


def seeds():
    for form in ("sglang, cumulative", "sglang, incremental", "openai", "llamacpp"):
        protocol, made = FORMS[form]
        yield form, protocol, made(1, 2, 3, 4, 5, 6)
    for name in ("sglang_incremental_interval1", "sglang_cumulative_skip_tokenizer", "vllm_length"):
        yield name, "openai" if "vllm" in name else "sglang", recorded(name)


def result(protocol, events):
    outcome = judge(protocol, events)
    return outcome.kind if isinstance(outcome, Failure) else outcome.output_ids.tolist()


@THOROUGHLY
@pytest.mark.parametrize(("protocol", "events"), [pytest.param(p, e, id=name) for name, p, e in seeds()])
def test_a_compared_event_is_judged_as_a_decoded_one(protocol, events, thorough, monkeypatch):
    """Bytes of an event in the middle replaced, lost or doubled: patterns change no outcome."""
    place = min(len(events) - 2, 3)
    event = events[place]
    step = (1 if len(event) < 200 else 3) * (1 if thorough else 3)  # recorded ones are long
    sent = [[*events[:place], bad, *events[place + 1 :]] for bad in damaged(event, thorough, step)]
    compared = [result(protocol, stream) for stream in sent]
    monkeypatch.setattr(wire_module, "_MOST_PATTERNS", 0)
    for stream, found in zip(sent, compared, strict=True):
        assert result(protocol, stream) == found, stream[place]


# -- whose an event is


def changed(protocol, event, what):
    """The event as one of another request, model or index would be."""
    document = json.loads(event)
    choice = (document.get("choices") or [{}])[0]
    meta = document.get("meta_info", document)
    if what == "id":
        meta["id"] = "another"
    elif what == "index":
        (document if protocol != "openai" else choice)["index"] = 1
    elif what == "two" and choice:
        document["choices"].append(choice | {"index": 1})
    elif what == "model":
        meta["weight_version" if protocol == "sglang" else "model"] = "another"
    elif what == "weights" and protocol != "llamacpp":
        (choice if choice else meta)["weight_versions"] = [{"version": "another"}]
    elif what in ("weight_version", "weight_versions") and protocol == "openai":  # of SGLang's answers
        document["metadata"] = {what: "another" if what == "weight_version" else [{"version": "another"}]}
    elif what == "prompt count" and protocol != "openai":
        meta["tokens_evaluated" if protocol == "llamacpp" else "prompt_tokens"] = 9
    elif what == "text":
        key = {"openai": b'"text":"', "sglang": b'"text":"', "llamacpp": b'"content":"'}[protocol]
        return event.replace(key, key + b'","error":"boom","x":"', 1)
    return json.dumps(document, separators=(",", ":")).encode()


KINDS = {
    "id": FailureKind.OTHER_REQUEST,
    "index": MALFORMED,
    "two": MALFORMED,
    "model": FailureKind.OTHER_MODEL,
    "weights": FailureKind.OTHER_MODEL,
    "weight_version": FailureKind.OTHER_MODEL,
    "weight_versions": FailureKind.OTHER_MODEL,
    "prompt count": FailureKind.TOKEN_COUNT,
    "text": IN_BAND,
}


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("form", ["sglang, cumulative", "sglang, incremental", "openai", "llamacpp"])
def test_an_event_of_another_answer(form, what):
    protocol, made = FORMS[form]
    if protocol == "llamacpp" and what == "id":
        return  # its events have none
    events = made(1, 2, 3, 4, 5, 6)
    for place in range(1, len(events) - 1):
        other = changed(protocol, events[place], what)
        if json.loads(other) == json.loads(events[place]):
            continue
        sent = [*events[:place], other, *events[place + 1 :]]
        assert_failed(outcome_of(protocol, sent, known(protocol)), KINDS[what])
