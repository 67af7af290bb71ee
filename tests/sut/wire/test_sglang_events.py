"""Every event of SGLang's cumulative streams is checked, although only its new part is decoded."""

import json

import pytest

from harness.record.outcome import FailureKind
from tests.kit import assert_failed
from tests.sut.wire.test_sglang import GREEDY, assert_completed, cumulative, event, incremental, judge

BARE = [e.replace(b'"text":"",', b"") for e in cumulative(1, 2, 3, 4)]  # as with --skip-tokenizer-init
WORDS = ["", " a\\", ' a\\ "b', ' a\\ "b","output_ids":[1']  # what could end a text, were it not escaped


def worded(*words):
    """A cumulative stream with text before the ids."""
    events = cumulative(*range(1, len(words) + 1))
    return [
        json.dumps(json.loads(e) | {"text": word}, separators=(",", ":")).encode()
        for e, word in zip(events, words, strict=True)
    ]


@pytest.mark.parametrize(
    "events",
    [BARE, worded(*WORDS), worded("a", "ab", "a\ufffd", "a\u00e9d")],
    ids=["bare", "text", "other text"],
)
def test_texts_of_a_cumulative_stream(events):
    assert_completed(judge(events), GREEDY[:4])


MIDDLES = {
    "an error": (lambda e: e[:-1] + b',"error":{"message":"boom"}}', FailureKind.IN_BAND_ERROR),
    "an abort": (lambda e: event(GREEDY[:4], 4, "abort"), FailureKind.ABORTED),
    "a finish reason": (lambda e: event(GREEDY[:4], 4, "stop"), FailureKind.AFTER_END),
    "an unknown finish reason": (lambda e: event(GREEDY[:4], 4, "cancelled"), FailureKind.FINISH_REASON),
    "no list end": (lambda e: e.replace(b"],", b",", 1), FailureKind.MALFORMED),
    "cut off": (lambda e: e[:-1], FailureKind.MALFORMED),
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


@pytest.mark.parametrize("mode", [cumulative, incremental])
@pytest.mark.parametrize("reason", ["cancelled", "timeout", "", "content_filter"])
def test_an_unknown_finish_reason(mode, reason):
    last = json.loads(mode(1, 2, 3)[-1])
    last["meta_info"]["finish_reason"] = {"type": reason}
    events = [*mode(1, 2, 3)[:-1], json.dumps(last, separators=(",", ":")).encode()]
    assert_failed(judge(events), FailureKind.FINISH_REASON, reason)
