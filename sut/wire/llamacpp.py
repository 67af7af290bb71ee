"""llama.cpp's native ``POST /completion`` with token ids: its OpenAI endpoint withholds output ids."""

from collections.abc import Sequence
from typing import Any

import msgspec

from harness.config.generation import SamplingParameters
from harness.record.outcome import Failure, FailureKind, Outcome
from sut.wire.base import (
    NO_ERROR,
    UNREADABLE,
    AnswerBounds,
    DeltaAnswer,
    after_end,
    excerpt,
    given,
    in_band_error,
    whole_answer,
    wrong_count,
)

_REASONS = {"eos": "stop", "word": "stop", "limit": "length"}


class _Event(msgspec.Struct):
    tokens: list[int] | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    stop: bool = False
    stop_type: str | None = None
    error: msgspec.Raw = NO_ERROR


_decode = msgspec.json.Decoder(_Event).decode


class LlamaCppWire:
    """Renders requests for and reads answers of ``/completion``."""

    path = "/completion"

    def __init__(self, parameters: SamplingParameters, vocabulary_size: int) -> None:
        self.streams = parameters.stream
        self._limits = AnswerBounds(parameters.max_new_tokens, vocabulary_size)
        self._tail = b"," + msgspec.json.encode(_options(parameters))[1:]

    def render(self, token_ids: Sequence[int]) -> bytes:
        """``{"prompt":[...],"n_predict":...,"return_tokens":true,...}``."""
        return b'{"prompt":' + msgspec.json.encode(token_ids) + self._tail

    def answer(self) -> "LlamaCppAnswer":
        """A reader for one new answer."""
        return LlamaCppAnswer(self._limits)


def _options(parameters: SamplingParameters) -> dict[str, Any]:
    return {
        "n_predict": parameters.max_new_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "top_k": max(parameters.top_k, 0),
        "min_p": 0.0,  # llama.cpp filters by default; the rules know no min_p
        "cache_prompt": False,
        "return_tokens": True,
        "stream": parameters.stream,
        **given(seed=parameters.seed),  # it has no minimum number of tokens
    } | parameters.extra


class LlamaCppAnswer(DeltaAnswer):
    """One completion; events carry new ids, the last one the count and the reason."""

    __slots__ = ("_last",)

    def __init__(self, limits: AnswerBounds) -> None:
        super().__init__(limits)
        self._last: _Event | None = None

    def feed(self, event: bytes) -> Failure | None:
        """Take one event's JSON."""
        try:
            decoded = _decode(event)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(event)}")
        if failure := in_band_error(decoded.error):
            return failure
        if decoded.tokens is None:
            return Failure(FailureKind.MALFORMED, f"no tokens in {excerpt(event)}")
        if self._last is not None and self._last.stop:
            return after_end(self.tokens)
        self._last = decoded
        failure = self._extend(decoded.tokens)
        counted = decoded.tokens_predicted
        if failure is None and counted is not None and counted != self.tokens:
            return wrong_count(self.tokens, counted)
        return failure

    def finish(self) -> Outcome:
        """Judge the answer after its last event."""
        last = self._last
        if last is None or not last.stop:
            return whole_answer(self._ids, None, None, None, self._limits)
        if last.tokens_predicted is None:
            return Failure(FailureKind.MALFORMED, "the last event has no tokens_predicted")
        reason = _REASONS.get(last.stop_type or "", last.stop_type or "")
        return whole_answer(self._ids, last.tokens_predicted, reason, last.tokens_evaluated, self._limits)
