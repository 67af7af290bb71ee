"""OpenAI-compatible ``POST /v1/completions`` with token-id prompts, in vLLM's form.

The OpenAI schema has no output ids; ``return_token_ids`` (vLLM) adds ``token_ids`` to each choice. A server
that does not send them is refused: ids are never made up from text.

A request carries an id in the header ``X-Request-Id``, which vLLM prefers to one in the body, and every chunk
of vLLM's answer has ``cmpl-`` and that id. The fields are those of vLLM 0.32.0 and of trtllm-serve.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from harness.config.generation import SamplingParameters
from harness.record.outcome import Failure, FailureKind, Outcome
from sut.wire.base import (
    NO_BYTES,
    UNREADABLE,
    AnswerBounds,
    DeltaAnswer,
    after_end,
    decoded,
    excerpt,
    given,
    incomplete,
    number,
    other_index,
    other_model,
    other_prompt,
    other_request,
    repeated,
    too_many,
    whole_answer,
)
from sut.wire.fields import DATA, TEXT, AnswersSeen, EventJudge, Fields
from sut.wire.pattern import MOST_PATTERNS, Pattern

_KEYS = b'"text":"', b'"token_ids":['
_OBJECTS = ("text_completion", None)
_FIELDS: Fields = {
    "id": TEXT,
    "object": _OBJECTS,
    "created": DATA,
    "model": TEXT,
    "choices": {
        "index": DATA,
        "text": TEXT,
        "finish_reason": TEXT,
        **dict.fromkeys(
            ("logprobs", "prompt_logprobs", "stop_reason", "token_ids", "prompt_token_ids", "routed_experts"),
            DATA,
        ),
        "disaggregated_params": DATA,
        "context_logits": DATA,
    },
    "usage": {"prompt_tokens_details": {}, "completion_tokens_details": {}},
    "prompt_token_ids": DATA,
    "service_tier": TEXT,
    "system_fingerprint": TEXT,
    "kv_transfer_params": DATA,
    "ec_transfer_params": DATA,
}


class _Choice(msgspec.Struct):
    index: int = 0
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: msgspec.Raw = NO_BYTES


class _Usage(msgspec.Struct):
    completion_tokens: int
    prompt_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    id: str | None = None
    model: str | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


class OpenAIWire:
    """Renders requests for and reads answers of ``/v1/completions``."""

    path = "/v1/completions"

    def __init__(
        self, parameters: SamplingParameters, vocabulary_size: int, model: str, judge: EventJudge
    ) -> None:
        self.streams = parameters.stream
        self._judge = judge
        self._limits = AnswerBounds(parameters.max_new_tokens, vocabulary_size)
        options = {"model": model} | self.options(parameters)
        self._tail = b"," + msgspec.json.encode(options)[1:]

    def render(self, token_ids: Sequence[int]) -> bytes:
        """``{"prompt":[...],"model":...,"max_tokens":...,"stream":true,...}``, the ids first."""
        return b'{"prompt":' + msgspec.json.encode(token_ids) + self._tail

    @staticmethod
    def judge(model: str, seen: AnswersSeen | None) -> EventJudge:
        """The judge of this protocol's events, for answers of ``model``."""
        return EventJudge(_FIELDS, *_KEYS, (model,), seen)

    def opening(self, request_id: str, body_bytes: int) -> bytes:
        """The id as a header."""
        return b"X-Request-Id: %b\r\nContent-Length: %d\r\n\r\n{" % (request_id.encode(), body_bytes)

    def answer(self) -> "OpenAIAnswer":
        """A reader for one new answer."""
        return OpenAIAnswer(self._limits, self._judge)

    @staticmethod
    def options(parameters: SamplingParameters) -> dict[str, Any]:
        """All of a request but prompt and model, under vLLM's names."""
        return completion_options(parameters) | {
            "top_k": parameters.top_k or -1,
            "return_token_ids": True,
            **parameters.extra,
        }


def completion_options(parameters: SamplingParameters) -> dict[str, Any]:
    """The common parameters of servers of completions."""
    options: dict[str, Any] = {
        "max_tokens": parameters.max_new_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "skip_special_tokens": parameters.skip_special_tokens,
        "stream": parameters.stream,
        **given(min_tokens=parameters.min_new_tokens, seed=parameters.seed),
    }
    if parameters.stream:
        options["stream_options"] = {"include_usage": True}
    return options


class OpenAIAnswer(DeltaAnswer):
    """One completions answer; chunks carry new ids, the usage at the end the server's count."""

    __slots__ = ("_begun", "_judge", "_pattern", "_patterns", "_reason", "_usage")
    _one_id = True  # in all chunks

    def __init__(self, limits: AnswerBounds, judge: EventJudge) -> None:
        super().__init__(limits)
        self._judge = judge
        self._begun = False
        self._reason: str | None = None
        self._usage: _Usage | None = None
        self._pattern: Pattern | None = None
        self._patterns = 0

    def feed(self, event: bytes) -> Failure | None:
        """Take one chunk's JSON."""
        if self._pattern is not None:
            ids = self._pattern.new_ids(event, self.tokens)
            if ids is not None:
                return self._extend(ids)
        try:
            chunk, readable = decoded(_decode, event)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(event)}")
        return self._check(chunk, readable) or self._take(chunk, readable)

    def _check(self, chunk: _Chunk, data: bytes) -> Failure | None:
        """Whether the chunk is honest, of this answer and of this model."""
        choice = chunk.choices[0] if chunk.choices else None
        reason = None if choice is None else choice.finish_reason
        if choice is not None and reason is not None:
            failure = incomplete(reason, self.tokens + len(choice.token_ids or ()))
            if failure is not None:
                return failure
        if choice is not None and (failure := too_many(len(choice.token_ids or ()), self._limits)):
            return failure
        if failure := self._judge.failure(data):
            return failure
        if chunk.choices is None:
            return Failure(FailureKind.MALFORMED, f"no choices in {excerpt(data)}")
        if len(chunk.choices) > 1:
            return Failure(FailureKind.MALFORMED, f"{len(chunk.choices)} choices, where one was asked for")
        if choice is not None and choice.index:
            return other_index(choice.index)
        if chunk.model is not None and not self._judge.knows_name(chunk.model):
            return other_model(chunk.model)
        return self._check_request(chunk, choice)

    def _check_request(self, chunk: _Chunk, choice: _Choice | None) -> Failure | None:
        """Whether the chunk belongs to the same request as those before it."""
        found = chunk.id or ""
        if not self._begun:
            self._begun, self.id = True, found
        elif found != self.id and (self._one_id or not self._judge.lets_ids_change()):
            return other_request(found, self.id)
        if choice is not None and (prompt := repeated(choice.prompt_token_ids)):
            if self.prompt_ids and prompt != self.prompt_ids:
                return other_request(excerpt(prompt), excerpt(self.prompt_ids))
            self.prompt_ids = prompt
        usage, before = chunk.usage, self._usage
        if usage is not None:
            if before is not None and usage.prompt_tokens != before.prompt_tokens:
                return other_prompt(usage.prompt_tokens, before.prompt_tokens)
            self._usage = usage
        return None

    def _take(self, chunk: _Chunk, data: bytes) -> Failure | None:
        if not chunk.choices:
            return None
        if self._reason is not None:  # only the usage may follow
            return after_end(self.tokens)
        choice = chunk.choices[0]
        self._reason = choice.finish_reason
        if self._reason is not None:
            self._pattern = None
        elif self._patterns < MOST_PATTERNS:
            self._patterns += 1
            self._pattern = Pattern.of(data, *_KEYS, b"") or self._pattern
        return self._extend(choice.token_ids)

    def finish(self) -> Outcome:
        """Judge the answer after its last chunk."""
        if self._reason is not None and self._usage is None:
            return Failure(FailureKind.TOKEN_COUNT, "the server sent no usage to compare the token ids with")
        usage = self._usage or _Usage(0)
        if usage.completion_tokens and not self._ids:
            return Failure(
                FailureKind.TOKEN_COUNT,
                f"{number(usage.completion_tokens)} tokens without ids: the server does not know "
                "return_token_ids, or needs another --backend",
            )
        return whole_answer(
            self._ids, usage.completion_tokens, self._reason, usage.prompt_tokens, self._limits
        )
