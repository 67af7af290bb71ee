"""llama.cpp's native ``POST /completion`` with token ids: its OpenAI endpoint withholds output ids.

Its answers carry no id of their request. The fields are those of the recorded answers in tests/data.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from harness.config.generation import SamplingParameters
from harness.record.outcome import Completion, Failure, FailureKind, Outcome
from sut.wire.base import (
    UNREADABLE,
    AnswerBounds,
    DeltaAnswer,
    after_end,
    decoded,
    excerpt,
    given,
    opening,
    other_index,
    other_model,
    other_prompt,
    too_many,
    whole_answer,
    wrong_count,
)
from sut.wire.fields import DATA, TEXT, AnswersSeen, EventJudge, Fields
from sut.wire.pattern import MOST_PATTERNS, Pattern

_KEYS = b'"content":"', b'"tokens":[', b'"tokens_predicted":'
_FIELDS: Fields = {
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


class _Event(msgspec.Struct):
    tokens: list[int] | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    stop: bool = False
    stop_type: str | None = None
    truncated: bool = False
    index: int | None = None
    model: str | None = None


_decode = msgspec.json.Decoder(_Event).decode


class LlamaCppWire:
    """Renders requests for and reads answers of ``/completion``."""

    path = "/completion"

    def __init__(
        self, parameters: SamplingParameters, vocabulary_size: int, model: str, judge: EventJudge
    ) -> None:
        self.streams = parameters.stream
        self._judge = judge
        self._limits = AnswerBounds(parameters.max_new_tokens, vocabulary_size)
        self._tail = b"," + msgspec.json.encode(_options(parameters))[1:]

    def render(self, token_ids: Sequence[int]) -> bytes:
        """``{"prompt":[...],"n_predict":...,"return_tokens":true,...}``."""
        return b'{"prompt":' + msgspec.json.encode(token_ids) + self._tail

    @staticmethod
    def judge(model: str, seen: AnswersSeen | None) -> EventJudge:
        """The judge of this protocol's events."""
        return EventJudge(_FIELDS, *_KEYS[:2], (), seen)

    def opening(self, request_id: str, body_bytes: int) -> bytes:
        """Without the id, which its answers would not repeat."""
        return opening(body_bytes)

    def answer(self) -> "LlamaCppAnswer":
        """A reader for one new answer."""
        return LlamaCppAnswer(self._limits, self._judge)


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

    __slots__ = ("_judge", "_last", "_pattern", "_patterns")

    def __init__(self, limits: AnswerBounds, judge: EventJudge) -> None:
        super().__init__(limits)
        self._judge = judge
        self._last: _Event | None = None
        self._pattern: Pattern | None = None
        self._patterns = 0

    def feed(self, event: bytes) -> Failure | None:
        """Take one event's JSON."""
        if self._pattern is not None:
            ids = self._pattern.new_ids(event, self.tokens)
            if ids is not None:
                return self._extend(ids)
        try:
            found, readable = decoded(_decode, event)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(event)}")
        return self._check(found, readable) or self._take(found, readable)

    def _check(self, event: _Event, data: bytes) -> Failure | None:
        last = self._last
        if failure := too_many(len(event.tokens or ()), self._limits) or self._judge.failure(data):
            return failure
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

    def _take(self, event: _Event, data: bytes) -> Failure | None:
        self._last = event
        failure = self._extend(event.tokens)
        counted = event.tokens_predicted
        if failure is None and counted is not None and counted != self.tokens:
            return wrong_count(self.tokens, counted)
        if event.stop:
            self._pattern = None
        elif self._patterns < MOST_PATTERNS:
            self._patterns += 1
            self._pattern = Pattern.of(data, *_KEYS) or self._pattern
        return failure

    def finish(self) -> Outcome:
        """Judge the answer after its last event."""
        last = self._last
        if last is None or not last.stop:
            return whole_answer(self._ids, None, None, None, self._limits)
        if last.tokens_predicted is None:
            return Failure(FailureKind.MALFORMED, "the last event has no tokens_predicted")
        reason = _REASONS.get(last.stop_type or "", last.stop_type or "")
        outcome = whole_answer(self._ids, last.tokens_predicted, reason, last.tokens_evaluated, self._limits)
        if isinstance(outcome, Completion) and last.truncated:
            return Failure(FailureKind.UNFINISHED, f"truncated after {self.tokens} tokens: context full?")
        return outcome
