"""Events of OpenAI's endpoints: one choice in each, the usage at the end.

They are what ``/v1/completions``, ``/v1/chat/completions`` and vLLM's ``/inference/v1/generate`` have in
common, with vLLM 0.32.0, SGLang 0.5.23, llama.cpp 2026.10, Dynamo 1.6.1 and trtllm-serve 1.2.1.
"""

import msgspec

from sut.wire.answer_checks import NO_BYTES, Span, repeated
from sut.wire.fields import DATA, STOP, TEXT, FieldRules

_NONE = (None, "")
_CALLS: FieldRules = {
    "id": TEXT,
    "type": ("function", None),
    "index": DATA,
    "function": {"name": TEXT, "arguments": TEXT},
}
_MESSAGE: FieldRules = {
    "role": ("assistant", *_NONE),
    "refusal": _NONE,
    "annotations": {},
    "audio": (None,),
    "function_call": (None,),
    "tool_calls": _CALLS,
    **dict.fromkeys(("content", "reasoning", "reasoning_content"), DATA),
}
_CHOICE: FieldRules = {
    "index": DATA,
    "text": TEXT,
    "finish_reason": TEXT,
    "delta": _MESSAGE,
    "message": _MESSAGE,
    "weight_versions": {"version": TEXT},
    **dict.fromkeys(("stop_reason", "matched_stop"), STOP),
    **dict.fromkeys(("logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids", "routed_experts"), DATA),
    **dict.fromkeys(
        ("disaggregated_params", "context_logits", "sampling_mask", "response_token_ids"),
        DATA,
    ),
}
FIELDS: FieldRules = {
    "id": TEXT,
    "request_id": TEXT,
    "object": ("text_completion", "chat.completion", "chat.completion.chunk", None),
    "output_mode": ("tokens", "text", None),
    "created": DATA,
    "model": TEXT,
    "choices": _CHOICE,
    "usage": {"prompt_tokens_details": {}, "completion_tokens_details": {}},
    "service_tier": TEXT,
    "system_fingerprint": TEXT,
    **dict.fromkeys(("prompt_token_ids", "prompt_text", "prompt_logprobs", "prompt_token_id_logprobs"), DATA),
    **dict.fromkeys(("kv_transfer_params", "ec_transfer_params", "mm_placeholders", "metrics"), DATA),
    "metadata": {"weight_version": TEXT, "weight_versions": {"version": TEXT}},
    "timings": {},
    "nvext": {"completion_token_ids": DATA, "prompt_token_ids": DATA},
}
"""The documented fields of all these events."""


class Function(msgspec.Struct):
    """A called function, or a part of its call."""

    name: msgspec.Raw = NO_BYTES
    arguments: msgspec.Raw = NO_BYTES


class ToolCall(msgspec.Struct):
    """A call of a tool, or a part of it."""

    function: Function | None = None


class Message(msgspec.Struct):
    """An assistant's message, or a part of it. Texts are the JSON that the server sent."""

    content: msgspec.Raw = NO_BYTES
    reasoning_content: msgspec.Raw = NO_BYTES
    reasoning: msgspec.Raw = NO_BYTES
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct):
    """The answer, or a part of it."""

    index: int = 0
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    response_token_ids: list[int] | None = None
    prompt_token_ids: msgspec.Raw = NO_BYTES
    text: msgspec.Raw = NO_BYTES
    delta: Message | None = None
    message: Message | None = None
    weight_versions: list[Span] | None = None


class Usage(msgspec.Struct):
    """The server's counts."""

    completion_tokens: int
    prompt_tokens: int | None = None


class Metadata(msgspec.Struct):
    """What SGLang says beside a complete answer."""

    weight_version: str | None = None
    weight_versions: list[Span] | None = None


class Extension(msgspec.Struct):
    """What Dynamo adds to an event."""

    completion_token_ids: list[int] | None = None
    prompt_token_ids: msgspec.Raw = NO_BYTES


class Chunk(msgspec.Struct):
    """One event, or a complete answer."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    id: str | None = None
    request_id: str | None = None
    model: str | None = None
    prompt_token_ids: msgspec.Raw = NO_BYTES
    metadata: Metadata | None = None
    nvext: Extension | None = None

    @property
    def choice(self) -> Choice | None:
        """The only choice, where there is one."""
        return self.choices[0] if self.choices else None

    @property
    def ids(self) -> list[int]:
        """The new ids: of the choice, or beside it as Dynamo has them; SGLang's chat has another name."""
        choice, beside = self.choice, self.nvext
        ids = None if choice is None else choice.token_ids or choice.response_token_ids
        return ids or (None if beside is None else beside.completion_token_ids) or []

    @property
    def repeated_prompt(self) -> bytes:
        """The prompt's ids, a JSON list; b"" for none."""
        choice, beside = self.choice, self.nvext
        places = [self.prompt_token_ids]
        places += [] if choice is None else [choice.prompt_token_ids]
        places += [] if beside is None else [beside.prompt_token_ids]
        return next(filter(None, map(repeated, places)), b"")

    @property
    def weights(self) -> list[str]:
        """The versions of weights that it names."""
        spans = list((self.choice and self.choice.weight_versions) or ())
        names = []
        if self.metadata is not None:
            spans += self.metadata.weight_versions or ()
            names = [self.metadata.weight_version]
        return [name for name in (*names, *(span.version for span in spans)) if name is not None]


decode_chunk = msgspec.json.Decoder(Chunk).decode
