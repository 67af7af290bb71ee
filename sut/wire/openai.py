"""OpenAI-compatible ``POST /v1/completions`` with token-id prompts, in vLLM's form.

The OpenAI schema has no output ids; ``return_token_ids`` (vLLM) adds ``token_ids`` to each choice. A server
that does not send them is refused: ids are never made up from text.
"""

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
    incomplete,
    number,
    whole_answer,
)


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int
    prompt_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = NO_ERROR


_decode = msgspec.json.Decoder(_Chunk).decode


class OpenAIWire:
    """Renders requests for and reads answers of ``/v1/completions``."""

    path = "/v1/completions"

    def __init__(self, parameters: SamplingParameters, vocabulary_size: int, model: str) -> None:
        self.streams = parameters.stream
        self._limits = AnswerBounds(parameters.max_new_tokens, vocabulary_size)
        options = {"model": model} | self.options(parameters)
        self._tail = b"," + msgspec.json.encode(options)[1:]

    def render(self, token_ids: Sequence[int]) -> bytes:
        """``{"prompt":[...],"model":...,"max_tokens":...,"stream":true,...}``, the ids first."""
        return b'{"prompt":' + msgspec.json.encode(token_ids) + self._tail

    def answer(self) -> "OpenAIAnswer":
        """A reader for one new answer."""
        return OpenAIAnswer(self._limits)

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

    __slots__ = ("_reason", "_usage")

    def __init__(self, limits: AnswerBounds) -> None:
        super().__init__(limits)
        self._reason: str | None = None
        self._usage: _Usage | None = None

    def feed(self, event: bytes) -> Failure | None:
        """Take one chunk's JSON."""
        try:
            chunk = _decode(event)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(event)}")
        if failure := in_band_error(chunk.error):
            return failure
        if chunk.choices is None:
            return Failure(FailureKind.MALFORMED, f"no choices in {excerpt(event)}")
        self._usage = chunk.usage or self._usage
        if not chunk.choices:
            return None
        if self._reason is not None:  # only the usage may follow
            return after_end(self.tokens)
        choice = chunk.choices[0]
        self._reason = choice.finish_reason
        failure = self._extend(choice.token_ids)
        if failure is None and self._reason is not None:
            return incomplete(self._reason, self.tokens)
        return failure

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
