"""What every replica says of itself, and whether the run fits it."""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.benchmark import Benchmark
from harness.errors import HarnessError, ServerError, explained
from harness.model_name import Match, match_names
from harness.plan import Backend
from sut.control import ControlPlane, WaitNotices
from sut.wire.select import WireName

_MOST = 2**31 - 1
_LONGEST_NAME = 1000
_MAY_DIFFER = (
    "model_path",
    "revision",
    "context_length",
    "dp_size",
    "max_running_requests",
    "stream_interval",
)
_MARGIN_S = 0.5  # for the thread that asks, after its own deadline
_LOOK_S = 0.25
_TIMEOUT_REMEDY = "a busy server may need a larger --preflight-timeout"
# A Hugging Face cache keeps each revision in a folder of its own.
_SNAPSHOT = re.compile(r"/snapshots/([0-9a-f]{40})(?:/|$)")
# vLLM has these counters once for each of its data-parallel engines.
_VLLM_ENGINE = re.compile(rb'^vllm:num_requests_running\{[^}]*\bengine="(\d{1,9})"', re.MULTILINE)

# Names of SGLang's server arguments in /server_info.
_SETTINGS = (
    "tp_size",
    "dp_size",
    "pp_size",
    "ep_size",
    "enable_dp_attention",
    "quantization",
    "dtype",
    "kv_cache_dtype",
    "attention_backend",
    "moe_runner_backend",
    "mem_fraction_static",
    "chunked_prefill_size",
    "max_running_requests",
    "schedule_policy",
    "disable_radix_cache",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica reports about itself; None where it does not report it.

    ``model`` is the name that it serves under, ``model_path`` where its weights came from. ``dp_size`` counts
    the data-parallel ranks behind the URL, ``max_running_requests`` what all of them run at once.
    """

    url: str
    wire: WireName
    engine: str
    model: str | None = None
    served_name: str = ""
    model_path: str | None = None
    revision: str | None = None
    version: str | None = None
    context_length: int | None = None
    vocabulary_size: int | None = None
    max_running_requests: int | None = None
    dp_size: int | None = None
    stream_interval: int | None = None
    settings: dict[str, str | int | float | bool] = {}  # start options of SGLang that bear on a result


def survey(
    urls: Sequence[str],
    backend: Backend,
    api_key: str | None,
    within_s: float,
    ca_file: Path | None = None,
) -> tuple[ServerFacts, ...]:
    """Ask every replica at once. Raises ServerError for the first that cannot be used."""
    answers: dict[str, ServerFacts | HarnessError] = {}
    controls = [ControlPlane(url, api_key, within_s, ca_file, _TIMEOUT_REMEDY) for url in urls]
    threads = [
        threading.Thread(target=_ask_into, args=(answers, control, backend), daemon=True)
        for control in controls
    ]
    for thread in threads:
        thread.start()
    _wait(threads, controls, within_s)
    facts = tuple(_answer(answers, url, within_s) for url in urls)
    _check_alike(facts)
    return facts


def _wait(threads: Sequence[threading.Thread], controls: Sequence[ControlPlane], within_s: float) -> None:
    notices, until = WaitNotices(), time.monotonic() + within_s + _MARGIN_S
    for thread, control in zip(threads, controls, strict=True):
        while thread.is_alive() and (left := until - time.monotonic()) > 0:
            thread.join(min(left, _LOOK_S))
            notices.tick(f"{control.url}{control.asking}, at most {within_s:g} s (--preflight-timeout)")


def _answer(answers: Mapping[str, ServerFacts | HarnessError], url: str, within_s: float) -> ServerFacts:
    late = ServerError(f"{url}: its answers did not end within {within_s:g} s; {_TIMEOUT_REMEDY}")
    answer = answers.get(url, late)
    if isinstance(answer, HarnessError):
        raise answer
    return answer


def _ask_into(
    answers: dict[str, ServerFacts | HarnessError], control: ControlPlane, backend: Backend
) -> None:
    try:
        with control:
            answers[control.url] = _ask(control, backend)
    except Exception as error:
        if (known := explained(error)) is None:
            raise
        answers[control.url] = known


def _ask(control: ControlPlane, backend: Backend) -> ServerFacts:
    status, _ = control.ask("/health")
    if status != 200:
        raise ServerError(f"{control.url}: /health answered {status}, expected 200; the server is not ready")
    return _ask_sglang(control) if backend == "sglang" else _ask_openai(control)


def _ask_sglang(control: ControlPlane) -> ServerFacts:
    model = control.first_json(("/model_info", "/get_model_info"))
    if model is None or "model_path" not in model:
        raise ServerError(
            f"{control.url}: no SGLang server (it has no /model_info); use --backend openai for others"
        )
    info = control.first_json(("/server_info", "/get_server_info")) or {}
    path = _text(model, "model_path")
    return ServerFacts(
        url=control.url,
        wire="sglang",
        engine="SGLang",
        model=_text(info, "served_model_name") or path,
        model_path=path,
        revision=_text(info, "revision") or _snapshot(path),
        version=_text(info, "version"),
        context_length=_integer(info, "context_length") or _integer(model, "context_length"),
        max_running_requests=_sglang_runs_at_once(info),
        dp_size=_sglang_ranks(info),
        stream_interval=_integer(info, "stream_interval"),
        settings=_settings(info),
    )


def _sglang_ranks(info: Mapping[str, Any]) -> int | None:
    """Data-parallel ranks, each a scheduler of its own.

    With --enable-dp-attention SGLang 0.5.23 reports them as ``attn_dp_size`` and ``dp_size`` 1; before, both
    kinds were ``dp_size``. One of the two is always 1 (num_dp_ranks_of in its runtime_context.py).
    """
    sizes = [size for key in ("dp_size", "attn_dp_size") if (size := _integer(info, key)) is not None]
    return max(sizes, default=None)


def _sglang_runs_at_once(info: Mapping[str, Any]) -> int | None:
    """Requests that all ranks together run at once.

    The limit in force is that of a rank: SGLang lowers it where the memory does not suffice. The flag
    --max-running-requests counts for each rank in plain data parallelism, and is divided among the ranks with
    data-parallel attention (resolve_max_num_reqs in SGLang 0.5.23's kv_cache_configurator.py).
    """
    ranks, asked = _sglang_ranks(info) or 1, _integer(info, "max_running_requests")
    states = info.get("internal_states")
    of_ranks = [
        limit
        for state in (states if isinstance(states, list) else ())
        if isinstance(state, dict)
        and (limit := _integer(state, "effective_max_running_requests_per_dp")) is not None
    ]
    if of_ranks:
        return min(sum(of_ranks) * ranks // len(of_ranks), _MOST)
    if asked is None:
        return None
    return asked if info.get("enable_dp_attention") is True else min(asked * ranks, _MOST)


def _ask_openai(control: ControlPlane) -> ServerFacts:
    models = (control.first_json(("/v1/models",)) or {}).get("data")
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        raise ServerError(f"{control.url}: /v1/models lists no model; is this an OpenAI-compatible server?")
    model = models[0]
    name = _text(model, "id") or ""
    if _text(model, "owned_by") == "llamacpp":
        return _ask_llamacpp(control, name, model)
    version = control.first_json(("/version",)) or {}
    root = _text(model, "root")
    return ServerFacts(
        url=control.url,
        wire="openai",
        engine=_text(model, "owned_by") or "OpenAI-compatible",
        model=root or name,
        served_name=name,
        model_path=root,
        revision=_snapshot(root),
        version=_text(version, "version"),
        context_length=_integer(model, "max_model_len"),
        dp_size=_vllm_engines(control),
    )


def _vllm_engines(control: ControlPlane) -> int | None:
    """The engines that vLLM's metrics name; None without such metrics."""
    status, page = control.ask("/metrics")
    return len(set(_VLLM_ENGINE.findall(page))) or None if status == 200 else None


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
    """A positive 31-bit integer field, or None if it is missing or anything else."""
    value = values.get(key)
    return value if type(value) is int and 0 < value <= _MOST else None


def _settings(info: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Those of ``_SETTINGS`` that the server names a plain value for."""
    found = {name: info.get(name) for name in _SETTINGS}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _LONGEST_NAME)
    }


def _text(values: Mapping[str, Any], key: str) -> str | None:
    value = values.get(key)
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME else None


def _snapshot(path: str | None) -> str | None:
    """The revision that a path inside a Hugging Face cache names."""
    found = _SNAPSHOT.search(path or "")
    return found[1] if found else None


def _check_alike(facts: Sequence[ServerFacts]) -> None:
    first = facts[0]
    for other in facts[1:]:
        if (other.wire, other.model, other.version) != (first.wire, first.model, first.version):
            raise ServerError(
                f"replicas differ: {first.url} serves {_name(first)} ({first.engine} {first.version}), "
                f"{other.url} {_name(other)} ({other.engine} {other.version}); one run needs equal replicas"
            )


def _name(fact: ServerFacts) -> str:
    return fact.model or "a model without a name"


def replica_warnings(facts: Sequence[ServerFacts]) -> Iterator[str]:
    """Facts in which replicas of the same model and version differ: the answers or their speed may, too."""
    for name in (
        "model_path",
        "revision",
        "context_length",
        "dp_size",
        "max_running_requests",
        "stream_interval",
    ):
        found = {fact.url: getattr(fact, name) for fact in facts}
        if len(set(found.values())) > 1:
            shown = ", ".join(f"{value} at {url}" for url, value in found.items())
            yield f"replicas differ in {name.replace('_', ' ')}: {shown}"


def model_deviations(facts: Sequence[ServerFacts], benchmark: Benchmark) -> Iterator[str]:
    """Servers of another model, or of another revision, than the rules'."""
    wanted = benchmark.model
    for fact in facts:
        if fact.model is None:
            yield f"{fact.url} does not name its model, the rules say {wanted}"
        elif _match(fact, wanted) is Match.OTHER:
            yield f"{fact.url} serves {_names(fact)}, the rules say {wanted}"
        elif fact.revision is not None and not _same_revision(fact.revision, benchmark.model_revision):
            yield f"{fact.url} serves revision {fact.revision}, the rules say {benchmark.model_revision}"


def model_warnings(facts: Sequence[ServerFacts], benchmark: Benchmark) -> Iterator[str]:
    """Servers of a quantised or converted form of the rules' model, or of one that only its name claims."""
    for fact in facts:
        match = _match(fact, benchmark.model)
        path = fact.model_path
        if match is not Match.OTHER and path and match_names([path], benchmark.model) is Match.OTHER:
            yield (
                f"{fact.url} serves {_names(fact)}: the path does not name {benchmark.model}, "
                "so nothing but the served name vouches for the model"
            )
        if match is Match.VARIANT:
            yield (
                f"{fact.url} serves {_names(fact)}, a quantised or converted form of {benchmark.model}: "
                "measurements.json must say so (weight_transformations, weight_data_types)"
            )


def _match(fact: ServerFacts, wanted: str) -> Match:
    return match_names([name for name in (fact.model_path, fact.model, fact.served_name) if name], wanted)


def _names(fact: ServerFacts) -> str:
    """``PATH as NAME``, or the one name that there is."""
    served = fact.served_name or _name(fact)
    return served if fact.model_path in (None, served) else f"{fact.model_path} as {served}"


def _same_revision(revision: str, wanted: str | None) -> bool:
    """Branches and tags (``main``) name no revision; an abbreviated hash counts."""
    return wanted is None or not re.fullmatch("[0-9a-f]{7,40}", revision) or wanted.startswith(revision)


def server_line(fact: ServerFacts, benchmark: Benchmark) -> str:
    """One server as the plan shows it."""
    told = {
        "context": fact.context_length,
        "dp": fact.dp_size,
        "runs at once": fact.max_running_requests,
        "stream interval": fact.stream_interval,
        "revision": fact.revision or ("not reported" if benchmark.model_revision else None),
    }
    shown = ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)
    return f"{fact.url}: {fact.engine} {fact.version or ''} serves {_names(fact)} ({shown})"


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
