"""A recorded exchange, read by the client as it would have been in a run."""

import re
from dataclasses import dataclass
from typing import Any

from harness.config.protocol import Api, Dialect, Protocol
from harness.dataset.tokenizer import encode_harmony
from harness.record.outcome import Completion, Failure, Outcome, TextCompletion
from tests.kit import reader_of
from tests.recorded_wires import RECORDED, Exchange

_DEFAULT_TOKENS = 16
_NATIVE = ("/generate", "/completion", "/inference/v1/generate")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the client makes of a recorded answer."""

    outcome: Outcome
    ids: list[int]
    """Of a complete answer; those of a text are found by encoding it."""
    id_back: bool | None
    """Whether the answer has the id that its request carried as ours do; None: it carried none."""

    @property
    def kind(self) -> str:
        """The kind of a failure; "" for a complete answer."""
        return self.outcome.kind.label if isinstance(self.outcome, Failure) else ""


def replay(recorded: Exchange, protocol: Protocol) -> Replayed:
    """Read the recorded bytes."""
    asked, streams = asked_tokens(recorded), bool(recorded.request.get("stream"))
    reader = reader_of(protocol, stream=streams, max_new_tokens=asked)
    outcome = reader.feed(recorded.response, 1) or reader.closed()
    return Replayed(outcome, _ids_of(outcome), _id_back(recorded, protocol, reader.answer.id))


def said_ids(recorded: Exchange) -> list[int]:
    """The ids that are written in an answer, by no code of the client."""
    documents = recorded.chunks if recorded.request.get("stream") else [recorded.answer]
    if "output_ids" in documents[-1]:
        return list(documents[-1]["output_ids"])
    return [token for document in documents for token in _new_ids(document)]


def asked_tokens(recorded: Exchange) -> int:
    """The most tokens that the request asked for."""
    body = recorded.request.get("sampling_params") or recorded.request
    names = ("max_tokens", "max_new_tokens", "n_predict")
    return next((body[name] for name in names if isinstance(body.get(name), int)), _DEFAULT_TOKENS)


def sent_tokens(recorded: Exchange) -> int:
    """The tokens of the prompt that was sent; of messages, of their texts."""
    body, extension = recorded.request, recorded.request.get("nvext") or {}
    prompts = (body.get("prompt_token_ids"), body.get("input_ids"), body.get("token_ids"), body.get("prompt"))
    prompt = extension.get("token_data") or next((one for one in prompts if one), None)
    if prompt is None:
        prompt = "".join(str(message["content"]) for message in body["messages"])
    return len(encode_harmony(prompt) if isinstance(prompt, str) else prompt)


def api_of(recorded: Exchange) -> Api:
    """How the request asked."""
    body = recorded.request
    has_ids = isinstance(body.get("prompt"), list) or (body.get("nvext") or {}).get("token_data")
    if recorded.path in _NATIVE:
        return "generate"
    if recorded.path == "/v1/completions":
        return "completions" if has_ids else "completions-text"
    return "chat-ids" if has_ids or body.get("prompt_token_ids") or body.get("input_ids") else "chat"


def reading_of(recorded: Exchange, engine: Dialect) -> Protocol:
    """A protocol that reads the answer to a request, for one that need not be complete."""
    native = {"/generate": "sglang", "/completion": "llamacpp", "/inference/v1/generate": "openai"}
    dialect: Any = native.get(recorded.path, "openai" if engine == "llamacpp" else engine)
    return Protocol(dialect, api_of(recorded), "ids" if recorded.path in native else "text")


def _ids_of(outcome: Outcome) -> list[int]:
    if isinstance(outcome, Completion):
        return [int(token) for token in outcome.output_ids]
    return encode_harmony(outcome.text) if isinstance(outcome, TextCompletion) else []


def _id_back(recorded: Exchange, protocol: Protocol, found: str) -> bool | None:
    sent = recorded.request.get("rid") if protocol.dialect == "sglang" else _request_id(recorded)
    return sent in found if sent else None


def _request_id(recorded: Exchange) -> str:
    """The header that vLLM takes an id from; "" for none."""
    path = RECORDED / f"{recorded.name}.txt"
    head, _, _ = (path.read_bytes() if path.exists() else b"").partition(b"\r\n\r\n")
    named = re.search(r"(?im)^x-request-id: *(\S+)", head.decode())
    return named[1] if named else ""


def _new_ids(document: Any) -> list[int]:
    choice = (document.get("choices") or [{}])[0]
    extension = document.get("nvext") or {}
    places = (
        choice.get("token_ids"),
        choice.get("response_token_ids"),
        extension.get("completion_token_ids"),
        document.get("tokens"),
    )
    return list(next((ids for ids in places if ids is not None), []))
