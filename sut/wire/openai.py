"""OpenAI-compatible ``POST /v1/completions`` with token-id prompts, in vLLM's form.

The OpenAI schema has no output ids; ``return_token_ids`` (vLLM) adds ``token_ids`` to each choice. A server
that does not send them is refused: ids are never made up from text.

A request carries an id in the header ``X-Request-Id``, which vLLM prefers to one in the body, and every chunk
of vLLM's answer has ``cmpl-`` and that id. The fields are those of vLLM 0.32.0 and of trtllm-serve.
"""

from typing import Any

import msgspec

from harness.config.generation import SamplingParameters
from harness.record.outcome import Failure, FailureKind, Outcome
from sut.wire.answer_checks import (
    NO_BYTES,
    UNREADABLE,
    AnswerBounds,
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
from sut.wire.fields import DATA, TEXT, AnswersSeen, EventJudge, EventKeys, FieldRules
from sut.wire.wire import TokenAnswer, Wire

_OBJECTS = ("text_completion", None)
_FIELDS: FieldRules = {
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


class OpenAIAnswer(TokenAnswer):
    """One completions answer; chunks carry new ids, the usage at the end the server's count."""

    __slots__ = ("_begun", "_reason", "_usage")
    keys = EventKeys(b'"text":"', b'"token_ids":[')
    _one_id = True  # all chunks of an answer have the same

    def __init__(self, limits: AnswerBounds, judge: EventJudge) -> None:
        super().__init__(limits, judge)
        self._begun = False
        self._reason: str | None = None
        self._usage: _Usage | None = None

    def _take(self, event: bytes) -> Failure | None:
        try:
            chunk, readable = decoded(_decode, event)
        except UNREADABLE as error:
            return Failure(FailureKind.MALFORMED, f"{error}: {excerpt(event)}")
        return self._check(chunk, readable) or self._accept(chunk, readable)

    def _check(self, chunk: _Chunk, data: bytes) -> Failure | None:
        """Check that the chunk is honest, of this answer and of this model."""
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
        """Check that the chunk belongs to the same request as those before it."""
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

    def _accept(self, chunk: _Chunk, data: bytes) -> Failure | None:
        if not chunk.choices:
            return None
        if self._reason is not None:  # only the usage may follow
            return after_end(self.tokens)
        choice = chunk.choices[0]
        self._reason = choice.finish_reason
        self._expect_like(data, is_last=self._reason is not None)
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


class TrtllmAnswer(OpenAIAnswer):
    """vLLM's, but its chunks may have different ids if those of the trial answers have."""

    __slots__ = ()
    _one_id = False


class OpenAIWire(Wire):
    """Renders requests for and reads answers of ``/v1/completions``."""

    path = "/v1/completions"
    fields = _FIELDS
    answers = OpenAIAnswer

    @classmethod
    def judge(cls, model: str, seen: AnswersSeen | None) -> EventJudge:
        """The judge of this protocol's events, for answers of ``model``."""
        return EventJudge(cls.fields, cls.answers.keys, (model,), seen)

    def opening(self, request_id: str, body_bytes: int) -> bytes:
        """The id as a header."""
        return b"X-Request-Id: %b\r\nContent-Length: %d\r\n\r\n{" % (request_id.encode(), body_bytes)

    @staticmethod
    def options(parameters: SamplingParameters, model: str) -> dict[str, Any]:
        """``{"model":...,"max_tokens":...,"stream":true,...}`` under vLLM's names."""
        return _completion_options(parameters, model) | {
            "top_k": parameters.top_k or -1,
            "return_token_ids": True,
            **parameters.extra,
        }


class TrtllmWire(OpenAIWire):
    """Renders requests for and reads answers of ``trtllm-serve``: vLLM's but for some options.

    From its public sources (``serve/openai_protocol.py``, ``serve/postprocess_handlers.py``); not tried on
    the real server. It refuses fields that it does not know, ``return_token_ids`` among them. Without
    detokenization each choice has its new ids in ``token_ids``; everything else is as in vLLM's answers.

    Its answers have an id of their own, not the request's; versions without ``_ensure_stream_metadata`` give
    each chunk another one.

    The end token is among the ids with the default TorchSampler, which appends a token before it looks for
    an end (``_torch/pyexecutor/sampler``). With ``sampler_type: TRTLLMSampler`` and with TensorRT engines the
    tokenizer's end token is missing: their kernels do not count it. The other end tokens of
    ``generation_config.json`` are stop words for this server (``sampling_params.py``), kept only with
    ``include_stop_str_in_output``.
    """

    answers = TrtllmAnswer

    @staticmethod
    def options(parameters: SamplingParameters, model: str) -> dict[str, Any]:
        """As OpenAIWire, under the names of trtllm-serve."""
        return _completion_options(parameters, model) | {
            "top_k": max(parameters.top_k, 0),  # it refuses -1 and writes "off" as 0
            "include_stop_str_in_output": True,
            "detokenize": False,
            **parameters.extra,
        }


def _completion_options(parameters: SamplingParameters, model: str) -> dict[str, Any]:
    """The common parameters of servers of completions."""
    options: dict[str, Any] = {
        "model": model,
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
