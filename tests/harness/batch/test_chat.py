"""Conversations in the harmony format, and answers as they are shown."""

from datetime import date

from harness.batch.chat import AnswerText, Conversation
from harness.dataset.tokenizer import decode, encode_harmony

SYSTEM = (
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
    "Knowledge cutoff: 2024-06\nCurrent date: 2026-01-01\n\nReasoning: low\n\n"
    "# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
)
ANSWER = (
    "<|channel|>analysis<|message|>Think\x1b[31m.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Hi 🙂!<|return|>"
)


def test_a_conversation_keeps_final_messages_only():
    talk = Conversation("low", "Be brief.", date(2026, 1, 1))
    first = talk.prompt("Say <|end|>")
    developer = "<|start|>developer<|message|># Instructions\n\nBe brief.<|end|>"
    begin = SYSTEM + developer + "<|start|>user<|message|>Say <|end|><|end|><|start|>assistant"
    assert decode(first) == begin
    assert first.count(200007) == 3  # what the user typed is text
    talk.answered(encode_harmony(ANSWER))
    kept = "<|channel|>final<|message|>Hi 🙂!<|end|>"
    assert decode(talk.prompt("x")) == begin + kept + "<|start|>user<|message|>x<|end|><|start|>assistant"


def test_the_system_message_is_that_of_the_sample_data():
    from harness.dataset.samples import load_samples
    from tests.runs import PERFORMANCE

    sample = load_samples(PERFORMANCE, vocabulary_size=201088).tokens(0).tolist()
    talk = Conversation("low", None, date(2026, 1, 1))
    begin = talk.prompt("")
    assert sample[: begin.index(200007)] == begin[: begin.index(200007)]


def test_text_appears_piece_by_piece_and_safely():
    ids = encode_harmony(ANSWER)
    shown = AnswerText()
    pieces = [shown.text([token]) for token in ids]
    assert "".join(pieces) == "[analysis] Think\\x1b[31m.\nHi 🙂!"
    assert "\ufffd" not in "".join(pieces)
    assert AnswerText(harmony=False).text(encode_harmony("a<|channel|>b<|endoftext|>")) == "ab"
    assert AnswerText().text(encode_harmony("no header")) == "no header"
