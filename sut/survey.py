"""What every replica says of itself, and whether the run fits it."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harness.errors import HarnessError, ServerError, explained
from harness.plan import Backend
from sut.control import ControlPlane
from sut.wire.select import WireName

_ANSWERS_S = 3.0
_MOST = 2**31 - 1
_LONGEST_NAME = 1000
_WITHIN_S = 3.5  # whatever a server does; with the trial request's time less than 10 s


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica says of itself; None where it does not tell."""

    url: str
    wire: WireName
    engine: str
    model: str | None = None
    served_name: str = ""
    version: str | None = None
    context_length: int | None = None
    vocabulary_size: int | None = None
    max_running_requests: int | None = None
    dp_size: int | None = None
    stream_interval: int | None = None


def survey(urls: Sequence[str], backend: Backend, api_key: str | None) -> tuple[ServerFacts, ...]:
    """Ask every replica at once. Raises ServerError for the first that cannot be used."""
    answers: dict[str, ServerFacts | HarnessError] = {}
    threads = [
        threading.Thread(target=_ask_into, args=(answers, url, backend, api_key), daemon=True) for url in urls
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + _WITHIN_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    facts = tuple(_answer(answers, url) for url in urls)
    _check_alike(facts)
    return facts


def _answer(answers: Mapping[str, ServerFacts | HarnessError], url: str) -> ServerFacts:
    answer = answers.get(url, ServerError(f"{url}: its answers did not end within {_WITHIN_S:g} s"))
    if isinstance(answer, HarnessError):
        raise answer
    return answer


def _ask_into(
    answers: dict[str, ServerFacts | HarnessError], url: str, backend: Backend, api_key: str | None
) -> None:
    try:
        answers[url] = _ask(url, backend, api_key)
    except Exception as error:
        if (known := explained(error)) is None:
            raise
        answers[url] = known


def _ask(url: str, backend: Backend, api_key: str | None) -> ServerFacts:
    with ControlPlane(url, api_key, _ANSWERS_S) as control:
        status, _ = control.ask("/health")
        if status != 200:
            raise ServerError(f"{url}: /health answered {status}, expected 200; the server is not ready")
        return _ask_sglang(control) if backend == "sglang" else _ask_openai(control)


def _ask_sglang(control: ControlPlane) -> ServerFacts:
    model = control.first_json(("/model_info", "/get_model_info"))
    if model is None or "model_path" not in model:
        raise ServerError(
            f"{control.url}: no SGLang server (it has no /model_info); use --backend openai for others"
        )
    info = control.first_json(("/server_info", "/get_server_info")) or {}
    dp_size = _integer(info, "dp_size")
    running = _integer(info, "max_running_requests")
    return ServerFacts(
        url=control.url,
        wire="sglang",
        engine="SGLang",
        model=_text(info, "served_model_name") or _text(model, "model_path"),
        version=_text(info, "version"),
        context_length=_integer(info, "context_length") or _integer(model, "context_length"),
        max_running_requests=running,
        dp_size=dp_size,
        stream_interval=_integer(info, "stream_interval"),
    )


def _ask_openai(control: ControlPlane) -> ServerFacts:
    models = (control.first_json(("/v1/models",)) or {}).get("data")
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        raise ServerError(f"{control.url}: /v1/models lists no model; is this an OpenAI-compatible server?")
    model = models[0]
    name = _text(model, "id") or ""
    if _text(model, "owned_by") == "llamacpp":
        return _ask_llamacpp(control, name, model)
    version = control.first_json(("/version",)) or {}
    return ServerFacts(
        url=control.url,
        wire="openai",
        engine=_text(model, "owned_by") or "OpenAI-compatible",
        model=_text(model, "root") or name,
        served_name=name,
        version=_text(version, "version"),
        context_length=_integer(model, "max_model_len"),
    )


def _ask_llamacpp(control: ControlPlane, name: str, model: Mapping[str, Any]) -> ServerFacts:
    props = control.first_json(("/props",)) or {}
    settings, meta = props.get("default_generation_settings"), model.get("meta")
    return ServerFacts(
        url=control.url,
        wire="llamacpp",
        engine="llama.cpp",
        model=name,
        served_name=name,
        version=_text(props, "build_info"),
        context_length=_integer(settings if isinstance(settings, dict) else {}, "n_ctx"),
        vocabulary_size=_integer(meta if isinstance(meta, dict) else {}, "n_vocab"),
        max_running_requests=_integer(props, "total_slots"),
    )


def _integer(values: Mapping[str, Any], key: str) -> int | None:
    """A size that a server tells: what cannot be one counts as not told."""
    value = values.get(key)
    return value if type(value) is int and 0 < value <= _MOST else None


def _text(values: Mapping[str, Any], key: str) -> str | None:
    value = values.get(key)
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME else None


def _check_alike(facts: Sequence[ServerFacts]) -> None:
    first = facts[0]
    for other in facts[1:]:
        if (other.wire, other.model, other.version) != (first.wire, first.model, first.version):
            raise ServerError(
                f"replicas differ: {first.url} serves {first.model} ({first.engine} {first.version}), "
                f"{other.url} {other.model} ({other.engine} {other.version}); one run needs equal replicas"
            )


def check_capacity(
    facts: Sequence[ServerFacts], longest_prompt: int, max_new_tokens: int, vocabulary: int
) -> None:
    """Prompt and answer must fit the context, the dataset's ids the model. Raises ServerError."""
    for fact in facts:
        needed = longest_prompt + max_new_tokens
        if fact.context_length is not None and fact.context_length < needed:
            raise ServerError(
                f"{fact.url}: context of {fact.context_length} tokens, expected {needed} (longest prompt "
                f"{longest_prompt} + max_new_tokens {max_new_tokens}); raise the server's context length"
            )
        if fact.vocabulary_size is not None and fact.vocabulary_size < vocabulary:
            raise ServerError(
                f"{fact.url}: model with {fact.vocabulary_size} token ids, the dataset needs {vocabulary}; "
                "serve the model that the dataset was tokenized for"
            )
