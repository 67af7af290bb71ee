"""llama.cpp's native ``POST /completion`` with token ids: its OpenAI endpoint withholds output ids.

Its answers carry no id of their request. The fields are those of the recorded answers in tests/data.
"""

from typing import Any

import msgspec

from harness.config.generation import SamplingParameters
from harness.record.outcome import Completion, Failure, FailureKind, Outcome
from harness.text import counted
from sut.wire.answer_checks import (
    UNREADABLE,
    AnswerBounds,
    after_end,
    decoded,
    excerpt,
    given,
    other_index,
    other_model,
    other_prompt,
    too_many,
    whole_answer,
    wrong_count,
)
from sut.wire.fields import DATA, TEXT, EventJudge, EventKeys, FieldRules
from sut.wire.wire import Form, TokenAnswer

_FIELDS: FieldRules = {
    "content": TEXT,
    "stop": DATA,
    "stop_type": TEXT,
    "stopping_word": DATA,
    "model": TEXT,
    "prompt": DATA,
    "generation_settings": DATA,
    "has_new_line": DATA,
    "truncated": DATA,
}
_REASONS = {"eos": "stop", "word": "stop", "limit": "length"}


class _Settings(msgspec.Struct):
    grammar: Any = None


class _Event(msgspec.Struct):
    tokens: list[int] | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    stop: bool = False
    stop_type: str | None = None
    truncated: bool = False
    index: int | None = None
    model: str | None = None
    generation_settings: _Settings | None = None


_decode = msgspec.json.Decoder(_Event).decode


class LlamaCppAnswer(TokenAnswer):
    """One completion; events carry new ids, the last one the count and the reason."""

    __slots__ = ("_last",)
    keys = EventKeys((b'"content":"',), b'"tokens":[', b'"tokens_predicted":')

    def __init__(self, limits: AnswerBounds, judge: EventJudge) -> None:
        super().__init__(limits, judge)
        self._last: _Event | None = None

    def _take(self, event: bytes) -> Failure | None:
        try:
            found, readable = decoded(_decode, event)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(event)}")
        return self._check(found, readable) or self._accept(found, readable)

    def _check(self, event: _Event, data: bytes) -> Failure | None:
        last = self._last
        if failure := too_many(len(event.tokens or ()), self._limits) or self._judge.failure(data):
            return failure
        if event.generation_settings is not None and event.generation_settings.grammar:
            self._judge.note_grammar()
        if event.tokens is None:
            return Failure(FailureKind.MALFORMED, f"no tokens in {excerpt(data)}")
        if event.index:
            return other_index(event.index)
        if event.model is not None and not self._judge.knows_name(event.model):
            return other_model(event.model)
        if last is None:
            return None
        if last.stop:
            return after_end(self.tokens)
        if event.tokens_evaluated != last.tokens_evaluated:
            return other_prompt(event.tokens_evaluated, last.tokens_evaluated)
        return None

    def _accept(self, event: _Event, data: bytes) -> Failure | None:
        self._last = event
        failure = self._extend(event.tokens)
        counted = event.tokens_predicted
        if failure is None and counted is not None and counted != self.tokens:
            return wrong_count(self.tokens, counted)
        self._expect_like(data, is_last=event.stop)
        return failure

    def finish(self) -> Outcome:
        """Judge the answer after its last event."""
        last = self._last
        if last is None or not last.stop:
            return whole_answer(self.ids, None, None, None, self._limits)
        if last.tokens_predicted is None:
            return Failure(FailureKind.MALFORMED, "the last event has no tokens_predicted")
        reason = _REASONS.get(last.stop_type or "", last.stop_type or "")
        outcome = whole_answer(self.ids, last.tokens_predicted, reason, last.tokens_evaluated, self._limits)
        if isinstance(outcome, Completion) and last.truncated:
            return Failure(
                FailureKind.UNFINISHED, f"truncated after {counted(self.tokens, 'token')}: context full?"
            )
        return outcome


NEUTRAL = {
    "min_p": 0.0,  # its own default filters
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "xtc_probability": 0.0,
    "typical_p": 1.0,
    "mirostat": 0,
    "dynatemp_range": 0.0,
    "top_n_sigma": -1.0,
    "adaptive_target": -1.0,
    "ignore_eos": False,
}
"""What the rules do not know, off: llama-server has flags for it, and a GGUF file may have values."""


def _options(parameters: SamplingParameters, model: str) -> dict[str, Any]:
    """``{"n_predict":...,"return_tokens":true,...}``."""
    return {
        "n_predict": parameters.max_new_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "top_k": max(parameters.top_k, 0),
        **NEUTRAL,
        "cache_prompt": False,
        "return_tokens": True,
        "stream": parameters.stream,
        **given(seed=parameters.seed),  # it has no minimum number of tokens
    } | parameters.extra


LLAMACPP = Form(path="/completion", fields=_FIELDS, answers=LlamaCppAnswer, options=_options)
"""``/completion``."""
