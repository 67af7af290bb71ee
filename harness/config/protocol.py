"""How a server is asked, and what its answers hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from harness.errors import ConfigError

Dialect = Literal["sglang", "openai", "trtllm", "llamacpp", "dynamo"]
Api = Literal["generate", "completions", "chat-ids", "completions-text", "chat"]
Answers = Literal["ids", "text"]

TEXT_APIS: tuple[Api, ...] = ("completions-text", "chat")
"""The APIs whose prompts are text."""
_IN_OPENAIS: tuple[Api, ...] = ("completions", "chat-ids", *TEXT_APIS)
# Those of a backend's servers; a trial request shows which of them one server takes. Others have all.
_FEWER: Mapping[str, tuple[Api, ...]] = {
    "pytorch": ("generate",),
    "trtllm": _IN_OPENAIS,
    "dynamo": _IN_OPENAIS,
    "embedded": ("generate", "completions", *TEXT_APIS),
}
# Where a request has its prompt. SGLang's and Dynamo's servers want messages beside ids, whatever they say.
_ASKED: Mapping[Api, str] = {
    "completions": "POST /v1/completions, prompt: ids",
    "chat-ids": "POST /v1/chat/completions, messages: [] + prompt_token_ids",
    "completions-text": "POST /v1/completions, prompt: text",
    "chat": "POST /v1/chat/completions, messages",
}
_ASKED_OTHERWISE: Mapping[tuple[Dialect, Api], str] = {
    ("sglang", "generate"): "POST /generate, input_ids",
    ("llamacpp", "generate"): "POST /completion, prompt: ids",
    ("openai", "generate"): "POST /inference/v1/generate, token_ids",
    ("sglang", "chat-ids"): "POST /v1/chat/completions, messages + input_ids",
    ("dynamo", "chat-ids"): "POST /v1/chat/completions, messages + nvext: token_data",
}


@dataclass(frozen=True, slots=True)
class Protocol:
    """One server's protocol."""

    dialect: Dialect
    """whose names and values its options have: SGLang's, vLLM's (`openai`) and so on"""
    api: Api
    answers: Answers = "ids"
    """`text`: its tokens are found by encoding it again"""

    @property
    def text_in(self) -> bool:
        """Whether its prompts are text."""
        return self.prompts == "text"

    @property
    def prompts(self) -> Answers:
        """What its requests hold."""
        return prompts_of(self.api)


def prompts_of(api: Api | None) -> Answers:
    """What requests of an API hold; None is a backend's own, of ids."""
    return "text" if api in TEXT_APIS else "ids"


def own_protocol(dialect: Dialect) -> Protocol:
    """The protocol of a dialect without any choice: token ids in both directions."""
    return Protocol(dialect, "generate" if dialect in ("sglang", "llamacpp") else "completions")


def check_api(backend: str, api: Api | None) -> None:
    """Raise ConfigError for an API that no server of a backend has."""
    known = _FEWER.get(backend, get_args(Api))
    if api is not None and api not in known:
        expected = " or ".join(known)
        raise ConfigError(
            f"--api {api}: --backend {backend} has no such API; expected {expected}, or omit it"
        )


def protocol_text(protocol: Protocol, *, tried: bool = True) -> str:
    """``POST /generate, input_ids; ids in, ids out``; ``tried``: whether an answer has come by it."""
    asked = _ASKED_OTHERWISE.get((protocol.dialect, protocol.api)) or _ASKED[protocol.api]
    out = "ids out"
    if protocol.answers == "text":
        out = "text out: encoded again with the benchmark's tokenizer"
    elif not tried and protocol.api != "generate":
        out = "ids out if the trial request shows that they come, else text"
    return f"{asked}; {protocol.prompts} in, {out}"
