"""Every fault of an answer, through every API: what completes is right, all else is a failure of its kind.

In the client alone, which reads and judges answers; test_answers.py has complete runs.
"""

from dataclasses import replace

import pytest

from harness.record.outcome import Failure
from sut.encoder.answer_encoder import AnswerEncoder
from tests.faults.asking import DEADLINE_S, Asking
from tests.faults.matrix import WAYS
from tests.kit import VOCABULARY
from tests.stub import Fault, StubServer, expected_ids, expected_words
from tests.stub.words import word_ids, word_tokenizer
from tests.sut.conftest import pass_time  # noqa: F401

ASKED = 64
TOKENS, MANY = (
    5,
    60,
)  # of an answer; of one that is long enough to show that nearly all of its text is missing
QUICK = ("openai-completions-ids-streamed", "openai-chat-text-streamed", "openai-chat-text-complete")
CASES = [
    pytest.param(way, id=str(way), marks=() if str(way) in QUICK else pytest.mark.engine) for way in WAYS
]


@pytest.fixture(scope="module")
def encoder():
    return AnswerEncoder(word_tokenizer(), VOCABULARY)


@pytest.fixture(scope="module")
def prompt():
    return list(word_ids()[500:520])


@pytest.mark.engine
@pytest.mark.parametrize("way", CASES)
def test_every_fault_of_a_way(way, encoder, prompt, pass_time):  # noqa: F811
    rule = expected_ids if way.protocol.answers == "ids" else expected_words
    faults = way.faults
    # The prompt that is one token longer has the long answer.
    prompts = {fault: [*prompt, prompt[0]] if fault is Fault.LOST_TEXT else prompt for fault in faults}
    counts = {len(prompt): TOKENS, len(prompt) + 1: MANY}
    with (
        StubServer(faults=[None, *faults], tokens=lambda sent: counts.get(len(sent), TOKENS)) as stub,
        Asking(stub.url, way.protocol, encoder, streams=way.streams, asked=ASKED) as server,
    ):
        trial = server.try_once(prompt)
        assert trial.output_ids.tolist() == rule(prompt, TOKENS)
        found = {}
        for fault in faults:
            late = (lambda: pass_time(DEADLINE_S + 1)) if fault.late else lambda: None
            found[fault] = server.ask(prompts[fault], late)
    kinds = {fault: one.kind.label if isinstance(one, Failure) else "" for fault, one in found.items()}
    assert kinds == {fault: way.failure(fault) for fault in faults}
    for fault, answer in found.items():
        if not isinstance(answer, Failure) and not way.changes_ids(fault):
            assert answer.output_ids.tolist() == rule(prompt, TOKENS), fault


@pytest.mark.parametrize(
    "parts", [("reasoning", "content"), ("reasoning_content", "content"), ("reasoning",)]
)
@pytest.mark.parametrize("streams", [True, False])
def test_reasoning_is_a_part_of_the_answer(parts, streams, encoder, prompt):
    """Under each of its names, and where there is nothing else."""
    way = replace(next(way for way in WAYS if str(way) == "openai-chat-text-streamed"), streams=streams)
    with (
        StubServer(parts=parts) as stub,
        Asking(stub.url, way.protocol, encoder, streams=streams, asked=9) as server,
    ):
        answer = server.ask(prompt)
    assert answer.output_ids.tolist() == expected_words(prompt, 9)
    assert answer.counted == 9
