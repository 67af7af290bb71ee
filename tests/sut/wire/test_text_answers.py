"""Answers as text: what counts as a fragment, how characters are joined, and what is no complete answer.

The events have the members of the recorded ones (test_recorded_exchanges.py).
"""

import json

import pytest

from harness.config.protocol import Protocol
from harness.record.outcome import FailureKind, TextCompletion
from sut.wire import make_judge, make_wire, text_answer
from sut.wire.fields import AnswersSeen
from sut.wire.text_answer import TextAnswer
from tests.kit import VOCABULARY, assert_failed, parameters
from tests.sut.wire.judging import THOROUGHLY, compact, counts, damaged

COMPLETIONS, CHAT = Protocol("openai", "completions", "text"), Protocol("openai", "chat", "text")
MALFORMED, IN_BAND, COUNT = FailureKind.MALFORMED, FailureKind.IN_BAND_ERROR, FailureKind.TOKEN_COUNT
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def delta(finish=None, **message):
    choice = {"index": 0, "delta": message, "logprobs": None, "finish_reason": finish, "token_ids": None}
    return compact(HEAD | {"choices": [choice]})


def text(content, finish=None):
    choice = {"index": 0, "text": content, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    return compact(HEAD | {"object": "text_completion", "choices": [choice]})


def call(**function):
    return delta(tool_calls=[{"index": 0, "function": function}])


def usage(tokens):
    return compact(HEAD | {"choices": [], "usage": counts(tokens)})


def chat(*parts, finish="stop", counted=4):
    """A stream of contents."""
    return [delta(role="assistant", content=""), *parts, delta(finish), usage(counted)]


def whole(finish="stop", counted=4, **message):
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    return compact(HEAD | {"object": "chat.completion", "choices": [choice], "usage": counts(counted)})


def words(*contents):
    return [delta(content=content) for content in contents]


def judge(events, asked=20, protocol=CHAT):
    judge_of_run = make_judge(protocol, "m", AnswersSeen())
    answer = make_wire(protocol, parameters(max_new_tokens=asked), VOCABULARY, "m", judge_of_run).answer()
    failures = map(answer.feed, events)
    return next(filter(None, failures), None) or answer.finish()


def changed(event, inside=(), **more):
    document = json.loads(event)
    place = document
    for key in inside:
        place = place[key]
    place.update(more)
    return compact(document)


HONEST = {
    "content": (chat(*words("a", " b", " c")), "a b c"),
    "one word": (chat(*words("a")), "a"),
    "reasoning": (chat(delta(reasoning="a"), delta(reasoning=" b"), *words(" c", " d")), "a b c d"),
    "reasoning_content": (chat(delta(reasoning_content="a"), *words(" b")), "a b"),
    "reasoning after content": (chat(*words("b"), delta(reasoning="a"), *words("c")), "abc"),
    "reasoning under both names": (chat(delta(reasoning="a", reasoning_content="a"), *words("b")), "ab"),
    "both in one event": (chat(delta(content="b", reasoning="a"), delta(content="d", reasoning="c")), "acbd"),
    "the other one empty": (
        chat(*(delta(content=c, reasoning_content="", refusal=None) for c in "abc")),
        "abc",
    ),
    "the other one null": (chat(*(delta(content=None, reasoning=c) for c in "abc")), "abc"),
    "calls of tools": (
        chat(*words("a"), call(name="f", arguments=""), call(arguments="{"), call(arguments="}")),
        "af{}",
    ),
    "events without content": (chat(delta(), *words("a"), delta(content=""), delta(content=None)), "a"),
    "text with the end": ([*words("a"), delta("stop", content="b"), usage(2)], "ab"),
    "usage with the end": ([*words("a"), whole(content="b")], "ab"),
    "usage in each event": (
        [*(changed(w, usage=counts(1)) for w in words("a", "b")), delta("stop"), usage(2)], "ab",
    ),
    "whole": ([whole(content="b", reasoning="a", refusal=None, tool_calls=[])], "ab"),
    "escapes": (chat(*words('"', "\\", "\n", "\t\b\f\r/", "\\u0041", "{}[]")), '"\\\n\t\b\f\r/\\u0041{}[]'),
    "other characters": (chat(*words("é", "漢", "🦥", "\u2028", "\x7f", "\ufffd")), "é漢🦥\u2028\x7f\ufffd"),
    "a text that looks like an event": (chat(*words('"content":"x"', '","finish_reason":"stop"')),
        '"content":"x"","finish_reason":"stop"'),
    "the text repeated beside the message": (
        chat(*(w.replace(b'"delta"', b'"text":"a","delta"') for w in words("a", "a"))), "aa",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_answers(name):
    events, expected = HONEST[name]
    outcome = judge(events)
    assert isinstance(outcome, TextCompletion), outcome
    assert (outcome.text, outcome.finish_reason, outcome.prompt_tokens) == (expected, "stop", 4)


@pytest.mark.parametrize("contents", [("a", " b"), ("", "a", ""), ("a",) * 50])
def test_completions(contents):
    events = [*map(text, contents), text("", "stop"), usage(7)]
    assert judge(events, protocol=COMPLETIONS) == TextCompletion("".join(contents), "stop", 4, 7)


def test_fragments_are_counted_and_empty_ones_are_none():
    answer = make_wire(CHAT, parameters(), VOCABULARY, "m").answer()
    counted = []
    for event in chat(delta(reasoning="a"), delta(reasoning=""), *words("b", "", "c"), call(name="f")):
        assert answer.feed(event) is None
        counted.append(answer.tokens)
    assert counted == [0, 1, 1, 2, 2, 3, 4, 4, 4]
    assert not answer.ids


# -- characters


SLOTH = "🦥".encode()
HALVES = (rb"\ud83e", rb"\udda5")


@pytest.mark.parametrize("before", [0, 1, 5])
@pytest.mark.parametrize(
    ("pieces", "joined"),
    [
        (HALVES, "🦥"),
        ([b"".join(HALVES)], "🦥"),
        ([b"a" + HALVES[0], HALVES[1] + b"b"], "a🦥b"),
        ([SLOTH[:2], SLOTH[2:]], "🦥"),
        ([SLOTH[:1], SLOTH[1:3], SLOTH[3:]], "🦥"),
        ([rb"\u00e9"], "é"),
    ],
)
def test_a_character_in_pieces_is_whole(before, pieces, joined):
    """Whether its events are compared or decoded."""
    raw = [delta(content="@").replace(b"@", piece) for piece in pieces]
    outcome = judge(chat(*words(*"x" * before), *raw))
    assert isinstance(outcome, TextCompletion), outcome
    assert outcome.text == "x" * before + joined


@pytest.mark.parametrize("before", [0, 1, 5])
@pytest.mark.parametrize("piece", [*HALVES, rb"\ud83ea", SLOTH[:2], b"\xed\xa0\xbe", b"\xff", b"\xc0\xaf"])
def test_a_character_with_a_piece_missing_is_a_failure(before, piece):
    """It is never replaced: the text would have other tokens than the answer."""
    raw = delta(content="@").replace(b"@", piece)
    assert_failed(judge(chat(*words(*"x" * before), raw, *words("y"))), MALFORMED)


def test_half_a_character_that_is_there_twice():
    """Which of them is the text's is not known."""
    twice = delta(content="@", reasoning_content="@").replace(b"@", HALVES[0])
    assert_failed(judge(chat(twice)), MALFORMED, "half a character")


# -- what is no complete answer


CHOICE = ("choices", 0)
OTHER = changed(words("b")[0], id="chatcmpl-2")
FAILED = {
    "nothing": ([], FailureKind.UNFINISHED),
    "no finish reason": (words("a", "b"), FailureKind.UNFINISHED),
    "no finish reason, but usage": ([*words("a"), usage(1)], FailureKind.UNFINISHED),
    "no usage": (chat(*words("a"))[:-1], COUNT),
    "usage null": ([*chat(*words("a"))[:-1], changed(usage(1), usage=None)], COUNT),
    "usage without a count": ([*words("a"), changed(usage(1), usage={"prompt_tokens": 4})], MALFORMED),
    "a count of null": ([*words("a"), changed(usage(1), usage={"completion_tokens": None})], MALFORMED),
    "no text": (chat(), FailureKind.NO_TOKENS),
    "no text, nothing counted": (chat(counted=0), FailureKind.NO_TOKENS),
    "text, nothing counted": (chat(*words("a"), counted=0), COUNT),
    "text, less than nothing counted": (chat(*words("a"), counted=-1), COUNT),
    "more counted than asked for": (chat(*words("a"), counted=21), FailureKind.TOO_MANY_TOKENS),
    "cut off by the context": (chat(*words("a"), finish="length", counted=19), FailureKind.UNFINISHED),
    "two choices": ([changed(delta(content="a"), choices=[{"index": 0}, {"index": 1}])], MALFORMED),
    "another index": ([changed(delta(content="a"), CHOICE, index=1)], MALFORMED),
    "choices null": ([changed(delta(content="a"), choices=None)], MALFORMED),
    "no choices": ([compact(HEAD)], MALFORMED),
    **{
        f"ended by {reason}": (chat(*words("a"), finish=reason), FailureKind.FINISH_REASON)
        for reason in ("tool_calls", "function_call", "content_filter", "timeout", "cancelled", "")
    },
    "aborted": (chat(*words("a"), finish="abort"), FailureKind.ABORTED),
    "refused": (chat(*words("a"), delta(refusal="I cannot")), IN_BAND),
    "refused, whole": ([whole(content=None, refusal="I cannot")], IN_BAND),
    "another's turn": (chat(delta(role="user", content="a")), IN_BAND),
    "a function called": (chat(delta(function_call={"name": "f"})), IN_BAND),
    "audio": (chat(delta(audio={"id": "a"})), IN_BAND),
    "content of parts": (chat(delta(content=[{"type": "text", "text": "a"}])), MALFORMED),
    "content a number": (chat(delta(content=7)), MALFORMED),
    "content an object": (chat(delta(content={"error": "boom"})), MALFORMED),
    "reasoning a list": (chat(delta(reasoning=["a"])), MALFORMED),
    "text a number": ([text(7)], MALFORMED),
    "a tool's arguments an object": (chat(call(arguments={"a": 1})), MALFORMED),
    "two reasonings": (chat(delta(reasoning="a", reasoning_content="b")), MALFORMED),
    "a delta and a message": ([changed(delta(content="a"), CHOICE, message={"content": "a"})], MALFORMED),
    "a key twice": ([delta(content="a").replace(b'"index"', b'"delta":{},"index"')], MALFORMED),
    "a content twice": ([delta(content="a").replace(b'"content"', b'"content":"b","content"')], MALFORMED),
    "content after the end": ([*words("a"), delta("stop"), *words("b"), usage(2)], FailureKind.AFTER_END),
    "two ends": ([*words("a"), delta("stop"), delta("stop"), usage(2)], FailureKind.AFTER_END),
    "another request's": (chat(*words("a", "b"), OTHER), FailureKind.OTHER_REQUEST),
    "another model's": (chat(changed(words("a")[0], model="n")), FailureKind.OTHER_MODEL),
    "an error": (chat(*words("a"), compact({"error": {"message": "boom", "code": 500}})), IN_BAND),
    "an error of old vLLM": ([compact({"object": "error", "message": "boom", "code": 400})], IN_BAND),
    "a text under an unknown name": (chat(changed(words("a")[0], CHOICE, note="boom")), IN_BAND),
    "HTML": ([b"<html><body>502 Bad Gateway</body></html>"], MALFORMED),
    "the ids of another prompt": (
        [*words("a"), changed(delta("stop"), prompt_token_ids=[1, 2]), usage(2)], COUNT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILED)
def test_failures(name):
    events, kind = FAILED[name]
    assert_failed(judge(events), kind)


def test_a_text_without_bounds(monkeypatch):
    """However few its fragments are, and however many."""
    long = delta(content="x" * (1 << 18))
    assert_failed(judge([long] * 9), FailureKind.TOO_LARGE)


def test_a_prompts_ids_are_counted_where_there_is_no_other_count():
    """They are what the server made of a text or of messages."""
    first = changed(words("a")[0], prompt_token_ids=[5, 6, 7])
    last = changed(usage(2), usage={"completion_tokens": 2})
    assert judge([first, delta("stop"), last]).prompt_tokens == 3


# -- what is compared in place of being decoded


def result(events, protocol=CHAT):
    outcome = judge(events, protocol=protocol)
    return outcome.text if isinstance(outcome, TextCompletion) else outcome.kind


STREAMS = {
    "content": chat(*words("a", " b", ' "c"', " d", "e")),
    "reasoning first": chat(*(delta(reasoning_content=c, content="") for c in "abc"), *words("d", "e")),
    "calls": chat(*words("a"), *(call(arguments=c) for c in "bcd")),
}


@THOROUGHLY
@pytest.mark.parametrize("name", STREAMS)
def test_a_compared_event_is_judged_as_a_decoded_one(name, thorough, monkeypatch):
    """Bytes of an event in the middle replaced, lost or doubled: patterns change no outcome."""
    events = STREAMS[name]
    sent = [
        [*events[:place], bad, *events[place + 1 :]]
        for place in (3, 4)
        for bad in damaged(events[place], thorough)
    ]
    compared = [result(stream) for stream in sent]
    monkeypatch.setattr(text_answer, "_MOST_KEPT", -1000)
    for stream, found in zip(sent, compared, strict=True):
        assert result(stream) == found, stream


def test_a_text_is_that_of_the_message_and_no_other(monkeypatch):
    """A field that the trial has shown may hold text, too."""
    seen = AnswersSeen(fields=frozenset(["choices.note.content"]))
    answer = make_wire(CHAT, parameters(), VOCABULARY, "m", make_judge(CHAT, "m", seen)).answer()
    noted = [changed(w, CHOICE, note={"content": f"n{n}"}) for n, w in enumerate(words("a", "b", "c"))]
    only = [changed(delta(), CHOICE, note={"content": f"n{n}"}) for n in range(3)]
    for event in chat(*noted, *only):
        assert answer.feed(event) is None
    assert answer.finish().text == "abc"


def test_events_with_the_time_in_them_are_compared_from_one_change_to_the_next(monkeypatch):
    decoded, take = [], TextAnswer._take
    monkeypatch.setattr(TextAnswer, "_take", lambda self, event: decoded.append(event) or take(self, event))
    events = [changed(delta(content="a"), created=second) for second in range(20) for _ in range(50)]
    assert isinstance(judge(chat(*events, counted=1000), asked=1000), TextCompletion)
    assert len(decoded) == 20 + 3
