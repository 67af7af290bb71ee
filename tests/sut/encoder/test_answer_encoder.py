"""Ids of texts beside servers' counts: of recorded answers of real servers, and of texts that lack a part."""

import numpy as np
import pytest

from harness.dataset import tokenizer as o200k
from harness.dataset.model_tokenizer import harmony_tokenizer
from harness.record.outcome import FailureKind
from sut.encoder.answer_encoder import AnswerEncoder
from tests.kit import VOCABULARY, assert_failed
from tests.recorded_wires import exchange

PROSE = " ".join(f"The {number}th of these sentences says what comes before it." for number in range(100))


@pytest.fixture(scope="module")
def tokenizer():
    return harmony_tokenizer()


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return AnswerEncoder(tokenizer, VOCABULARY)


def answered(name):
    """Text, ids and count of a recorded stream."""
    text, ids, counted = "", [], None
    for chunk in exchange(name).chunks:
        counted = (chunk.get("usage") or {}).get("completion_tokens", counted)
        for choice in chunk["choices"]:
            message = choice.get("delta") or choice
            parts = (
                message.get(part) or "" for part in ("reasoning_content", "reasoning", "content", "text")
            )
            text += "".join(parts)
            ids += choice.get("token_ids") or []
    return text, ids, counted


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vllm-0.32.0/chat-ids-stream", 8),  # ids too: the same ones
        ("vllm-0.32.0/generate-text-stream", 3),
        ("vllm-0.32.0/completions-text-ids-back-stream", 9),  # 8 random ids, which no model splits so
        ("vllm-0.32.0/harmony-completions-text-stream", 21),  # without its end token
        ("vllm-0.32.0/harmony-completions-text-include-stop-stream", 22),
        ("vllm-0.32.0/harmony-completions-text-stripped-stream", 15),  # without markers
        ("vllm-0.32.0/harmony-chat-stream", 12),  # without markers and the channels' names
        ("sglang-0.5.23/completions-text-stream", 21),
        ("sglang-0.5.23/completions-text-no-stop-trim-stream", 22),
        ("llamacpp-2026.10.11549/completions-text-stream", 10),
    ],
)
def test_answers_of_real_servers(encoder, name, found):
    text, ids, counted = answered(name)
    again = encoder.encode(text, counted)
    assert len(again) == found
    if len(ids) == found:
        assert again.tolist() == ids


def test_names_of_special_tokens_are_their_ids_and_none_is_added(encoder):
    text = "<|channel|>analysis<|message|>We<|end|>"
    assert encoder.encode(text, 5).tolist() == o200k.encode_harmony(text)
    assert o200k.SPECIAL["<|channel|>"] == encoder.encode(text, 5)[0]


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("\n" * 5000, 5000),  # a loop: one token for each
        ("." * 3000, 3000),
        ("no" * 400, 800),
        ("1234567890" * 50, 500),
        ("你好" * 100, 200),
        (PROSE, 1310),  # a word or two in pieces
        ("x", 17),  # thought and markers stripped
        ("\ufffd" * 30, 60),  # halves of characters
    ],
)
def test_fewer_ids_than_counted(encoder, text, counted):
    assert isinstance(encoder.encode(text, counted), np.ndarray)


@pytest.mark.parametrize(
    ("text", "counted"), [("Yes.", 500), (PROSE, 3200), (PROSE[: len(PROSE) // 3], 1300), ("\n" * 5000, 5100)]
)
def test_text_that_is_missing(encoder, text, counted):
    assert_failed(encoder.encode(text, counted), FailureKind.TOKEN_COUNT, "text is missing")


@pytest.mark.parametrize(("text", "counted"), [(PROSE, 900), (PROSE * 2, 1300), (PROSE, 1)])
def test_more_text_than_counted(encoder, text, counted):
    assert_failed(encoder.encode(text, counted), FailureKind.TOKEN_COUNT, "more text")


def test_random_ids_are_no_fault(encoder):
    """Servers with made-up weights answer so."""
    random = np.random.default_rng(1)
    for count in (4, 20, 100, 1000) * 10:
        text = o200k.decode(random.integers(0, min(o200k.SPECIAL.values()), count))
        assert isinstance(encoder.encode(text, count), np.ndarray)


def test_without_a_text_or_a_count(encoder):
    assert_failed(encoder.encode("", 7), FailureKind.NO_TOKENS, "7")
    assert_failed(encoder.encode("Yes.", None), FailureKind.TOKEN_COUNT, "no usage")


@pytest.mark.engine
def test_ids_beyond_the_vocabulary(tokenizer):
    encoder = AnswerEncoder(tokenizer, 1000)
    assert_failed(encoder.encode("Yes, indeed.", 4), FailureKind.TOKEN_VALUE, "1000")
