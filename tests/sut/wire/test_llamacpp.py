"""llama.cpp's /completion: recorded answers (xllamacpp), and what is wrong in its own way."""

from functools import partial

import pytest

from harness.record.outcome import Completion, FailureKind
from sut.servers.preflight import grammar_warning
from sut.wire import make_judge, make_wire
from tests.kit import VOCABULARY, assert_failed, parameters, protocol_of
from tests.sut.wire import judging
from tests.sut.wire.judging import GREEDY, LLAMACPP, assert_completed, recorded
from tests.sut.wire.judging import llamacpp_event as event
from tests.sut.wire.judging import llamacpp_last as last

judge = partial(judging.judge, "llamacpp")
STREAM = judging.llamacpp(1, 2, 3)


@pytest.mark.parametrize(
    ("name", "ids", "reason"),
    [
        ("stream", LLAMACPP, "length"),
        ("whole", LLAMACPP, "length"),
        ("response_fields", LLAMACPP, "length"),
        ("one_token", LLAMACPP[:1], "length"),
        ("eos", [200002], "stop"),
    ],
)
def test_recorded_answers(name, ids, reason):
    assert_completed(judge(recorded(f"llamacpp_{name}"), asked=len(ids)), ids, reason)


@pytest.mark.parametrize(("name", "is_bound"), [("grammar", True), ("stream", False), ("whole", False)])
def test_a_grammar_of_the_server_shows_in_a_trial_answer(name, is_bound):
    """llama-server started with one: a request without it, or with an empty one, gets it all the same."""
    trial_judge = make_judge(protocol_of("llamacpp"), "m")
    answer = make_wire(
        protocol_of("llamacpp"), parameters(max_new_tokens=8), VOCABULARY, "m", trial_judge
    ).answer()
    assert answer.feed_all(recorded(f"llamacpp_{name}")) is None
    assert isinstance(answer.finish(), Completion)
    assert len(grammar_warning(trial_judge.seen, parameters())) == is_bound
    assert grammar_warning(trial_judge.seen, parameters(extra={"json_schema": {}})) == ()


@pytest.mark.parametrize(
    ("name", "asked", "kind", "wording"),
    [
        # Ids whose text ends inside a UTF-8 character are never sent; only the count jumps.
        ("withheld_ids", 20, FailureKind.TOKEN_COUNT, "token ids"),
        # A prompt of 510 tokens in a context of 512: llama.cpp calls that its limit.
        ("context_full", 50, FailureKind.UNFINISHED, "2 of 50 tokens"),
        ("error_prompt_too_long", 20, FailureKind.IN_BAND_ERROR, "exceeds the available context size"),
    ],
)
def test_recorded_failures(name, asked, kind, wording):
    assert_failed(judge(recorded(f"llamacpp_{name}"), asked), kind, wording)


def test_a_recorded_stream_without_one_of_its_events():
    events = recorded("llamacpp_stream")
    for gone in range(len(events)):
        kind = FailureKind.UNFINISHED if gone == len(events) - 1 else FailureKind.TOKEN_COUNT
        assert_failed(judge(events[:gone] + events[gone + 1 :], asked=8), kind)


@pytest.mark.parametrize(
    "events",
    [[*STREAM[:-1], last(3, "word")], [event(GREEDY[:3], 3, error=None), last(3)]],
    ids=["a stop word", "error null"],
)
def test_honest_answers(events):
    assert_completed(judge(events), GREEDY[:3], "stop")


FAILED = {
    "goes on after its last event": ([*STREAM, event(GREEDY[3:4], 4)], FailureKind.AFTER_END),
    "truncated": ([*STREAM[:-1], last(3, truncated=True)], FailureKind.UNFINISHED),
    "no stop type": ([*STREAM[:-1], event([], 3, stop=True)], FailureKind.FINISH_REASON),
    "events swapped": ([STREAM[i] for i in (0, 2, 1, 3)], FailureKind.TOKEN_COUNT),
    "one lost, another twice": ([STREAM[i] for i in (0, 1, 1, 3)], FailureKind.TOKEN_COUNT),
    "no count": ([*STREAM[:-1], last(None)], FailureKind.MALFORMED),
    "no tokens member": ([b'{"content":"x","stop":false}'], FailureKind.MALFORMED),
    "tokens null": ([event(None, 1)], FailureKind.MALFORMED),
    "stop a string": ([event(GREEDY[:1], 1, stop="yes")], FailureKind.MALFORMED),
}


@pytest.mark.parametrize("name", FAILED)
def test_failures(name):
    events, kind = FAILED[name]
    assert_failed(judge(events), kind)
