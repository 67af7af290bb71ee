"""Facts of a server: its information pages by protocol, and a router before it."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from harness.api_key import masked_text
from harness.config.run_options import Backend
from harness.config.server_urls import MOST_SERVERS
from harness.errors import ServerError
from harness.record.settled import ACCEPTANCE, WATERMARKS, RankListener, Router, ServerInfo
from harness.text import printable
from sut.servers.info_client import NO_CERTIFICATE, InfoClient, NotReadyError
from sut.servers.model_names import Match, match_names
from sut.wire.answer_checks import UNREADABLE

SettingValues = dict[str, str | int | float | bool]
_NATIVE = ("sglang", "pytorch")  # servers with SGLang's pages; our PyTorch server names itself as the engine
_MODEL_INFO = ("/model_info", "/get_model_info")
_MOST = 2**31 - 1
_LONGEST_NAME = 1000
# A Hugging Face cache keeps each revision in a folder of its own.
_SNAPSHOT = re.compile(r"/snapshots/([0-9a-f]{40})(?:/|$)")
# vLLM has these once for each of its data-parallel engines, the last only where it drafts tokens. With
# several API servers, the default with several engines, its gauges come with the first request.
_VLLM_ENGINE = re.compile(rb'^vllm:\w+\{[^}]*\bengine="(\d{1,9})"', re.MULTILINE)
_VLLM_CACHE = re.compile(rb"^vllm:cache_config_info\{([^}]{1,10000})\}", re.MULTILINE)
_VLLM_DRAFTED = re.compile(
    rb'^vllm:spec_decode_num_accepted_tokens_per_pos_total\{[^}]*\bposition="(\d{1,3})"', re.MULTILINE
)
_LABEL = re.compile(rb'(\w+)="([^"]{0,1000})"')
NOT_NAMED = "by an algorithm that it does not name"

# Names of SGLang's server arguments in /server_info.
_SETTINGS = (
    "tp_size",
    "dp_size",
    "attn_dp_size",
    "pp_size",
    "ep_size",
    "enable_dp_attention",
    "load_format",
    "quantization",
    "dtype",
    "kv_cache_dtype",
    "attention_backend",
    "moe_runner_backend",
    "mem_fraction_static",
    "chunked_prefill_size",
    "max_running_requests",
    "max_queued_requests",
    "schedule_policy",
    "disable_radix_cache",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    *ACCEPTANCE,
    "json_model_override_args",
    "preferred_sampling_params",
    *WATERMARKS,
)

# At these values they say nothing, and are left out.
_UNSAID: SettingValues = {
    "attn_dp_size": 1,
    **dict.fromkeys(ACCEPTANCE, 1.0),
    "json_model_override_args": "{}",
    **dict.fromkeys(WATERMARKS, False),
}

SMG, SGLANG_ROUTER, VLLM_ROUTER = "SMG", "sglang-router", "vllm-router"
DYNAMO = "Dynamo's frontend"
_VLLM_ROUTER_HEALTH = b"All servers healthy"
_VLLM_ROUTER_FAILED = b"Unhealthy servers: "  # with status 503, while one of its servers is out
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}  # by the owners that they name
_VLLM_RUST = "vllm-frontend-rs"  # the owner that vLLM's front end in Rust names
LITELLM = "LiteLLM"
_OPENAI = "OpenAI-compatible"
_DYNAMO_ENDPOINT = b'"dyn://'  # one of the addresses in its /health
# Proxies by the beginning of their Server header, in lower case; engines have others (uvicorn, llama.cpp).
_PROXIES = {
    "nginx": "nginx",
    "openresty": "nginx",
    "envoy": "Envoy",
    "istio-envoy": "Envoy",
    "haproxy": "HAProxy",
    "caddy": "Caddy",
    "apache": "Apache",
    "traefik": "Traefik",
    "awselb": "AWS load balancer",
    "cloudflare": "Cloudflare",
}
# What nginx, Go's servers and Apache answer where TLS was expected, and nginx without a client's certificate.
_TLS_PORT = re.compile(rb"HTTP request was sent to HTTPS port|to an HTTPS server|to an SSL-enabled server")
_CERTIFICATE_WANTED = b"No required SSL certificate was sent"
_LONGEST_HEADER = 100
_V1 = "/v1"  # of OpenAI's base URLs

_MOST_SERVERS = 1 << 20
_LIKENESS = {Match.SAME: 2, Match.VARIANT: 1}


class _Instance(msgspec.Struct):
    endpoint: str = ""
    instance_id: int = 0


class _LitellmHealth(msgspec.Struct):
    """Its /health, for which it sends a request to each of its servers."""

    healthy_count: Annotated[int, msgspec.Meta(ge=0)]
    unhealthy_count: Annotated[int, msgspec.Meta(ge=0)]


class _DynamoHealth(msgspec.Struct):
    instances: list[_Instance] = []


def ask_server(control: InfoClient, backend: Backend, model: str = "") -> tuple[ServerInfo, SettingValues]:
    """The server's facts, and the plain values of SGLang's /server_info.

    ``model``: the one to ask for, where a server lists several. Raises NotReadyError if it may be starting,
    ServerError for a server that cannot be used.
    """
    status, health = ask_health_page(control)
    if status != 200:
        raise _not_healthy(control, status, health)
    headers = control.headers
    if backend in _NATIVE:
        server, reported = _ask_sglang(control)
    else:
        server, reported = _ask_openai(control, backend, health, model)
    return with_router(server, router_of(control, headers, health)), reported


def _not_healthy(control: InfoClient, status: int, body: bytes) -> ServerError:
    """The error of a /health that did not answer 200; a NotReadyError where that may change."""
    said, path = f"{control.url}: /health answered {status}, expected 200", urlsplit(control.url).path
    if (location := control.headers.get("location")) and status // 100 == 3:
        place = printable(masked_text(location.partition("?")[0]), _LONGEST_HEADER)
        return ServerError(f"{said}: a redirect to {place}, which is not followed; correct --server-url")
    if status == 400 and _TLS_PORT.search(body):
        return ServerError(f"{said}; the port speaks TLS: --server-url begins with https://")
    if status == 400 and _CERTIFICATE_WANTED in body:
        return ServerError(f"{said}; {NO_CERTIFICATE}")
    remedy = "the server is not ready"
    if status == 404:
        extra = _V1 if path.endswith(_V1) else path
        remedy = f"name the server without {extra}" if extra else "correct --server-url or start it"
    if status == 500 and not control.has_key:  # LiteLLM without its database
        remedy += ", or wants a key (SGLANG_API_KEY or OPENAI_API_KEY)"
    return NotReadyError(f"{said}; {remedy}")


def ask_health_page(control: InfoClient, router: Router | None = None) -> tuple[int, bytes]:
    """Status and body of /health; 200 for a router that has a server that works.

    vllm-router 0.1.17 answers 503 as long as one of its servers is out. ``router``: what is known to be
    there; LiteLLM's /health waits for an answer of each of its servers. Raises ServerError.
    """
    is_litellm = router is not None and router.name == LITELLM
    status, body = control.ask("/health/liveliness" if is_litellm else "/health")
    if status == 503 and body.startswith(_VLLM_ROUTER_FAILED):
        workers = _workers(control) or ()
        status = 200 if len(workers) > _failed(workers) else status
    return status, body


def _ask_sglang(control: InfoClient) -> tuple[ServerInfo, SettingValues]:
    model = control.first_json(_MODEL_INFO, needed=True)
    if model is None or "model_path" not in model:
        raise ServerError(
            f"{control.url}: no SGLang server (it has no /model_info), nor ours of PyTorch; "
            "name another with --backend vllm, trtllm, dynamo or openai, or correct --server-url"
        )
    return _sglang(control, model)


def _sglang(control: InfoClient, model: Mapping[str, Any]) -> tuple[ServerInfo, SettingValues]:
    info = control.first_json(("/server_info", "/get_server_info")) or {}
    path = _text(model, "model_path")
    found = ServerInfo(
        url=control.url,
        wire="sglang",
        engine=_text(info, "engine") or "SGLang",
        # A weight update changes the first (SGLang's http_server.py); earlier versions have only the second.
        model=_text(model, "served_model_name") or _text(info, "served_model_name") or path,
        model_path=path,
        revision=_text(info, "revision") or _snapshot(path),
        weight_version=_text(model, "weight_version") or _text(info, "weight_version"),
        weights_gb=_weights_gb(info),
        version=_sglang_version(info),
        context_length=_integer(info, "context_length") or _integer(model, "context_length"),
        vocabulary_size=_integer(info, "vocab_size"),
        max_running_requests=_sglang_runs_at_once(info),
        dp_size=_sglang_ranks(info),
        listener=_listener(info),
        stream_interval=_integer(info, "stream_interval"),
        settings=_settings(info),
    )
    return found, _plain_values(info)


def _sglang_version(info: Mapping[str, Any]) -> str | None:
    """With a word for its server in Rust, which says so (SGLang 0.5.23)."""
    version = _text(info, "version")
    return f"{version or '?'} (Rust server)" if info.get("frontend") == "rust" else version


def _weights_gb(info: Mapping[str, Any]) -> float | None:
    """What loading the weights took on a GPU, times the GPUs that share a rank's.

    SGLang measures free memory, which on a CPU other programs change, too.
    """
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    usage = state.get("memory_usage")
    weight = usage.get("weight") if isinstance(usage, dict) else None
    if info.get("device") == "cpu" or info.get("cpu_offload_gb"):
        return None
    if not isinstance(weight, int | float) or not 0 < weight < _MOST:
        return None
    gpus = (_integer(info, "tp_size") or 1) * (_integer(info, "pp_size") or 1)
    return round(float(weight) * gpus, 3)


def _sglang_ranks(info: Mapping[str, Any]) -> int | None:
    """Data-parallel ranks, each a scheduler of its own.

    With --enable-dp-attention SGLang 0.5.23 reports them as ``attn_dp_size`` and ``dp_size`` 1; before, both
    kinds were ``dp_size``. One of the two is always 1 (num_dp_ranks_of in its runtime_context.py).
    """
    if _listener(info) is not None:
        return 1
    sizes = [size for key in ("dp_size", "attn_dp_size") if (size := _integer(info, key)) is not None]
    return max(sizes, default=None)


def _listener(info: Mapping[str, Any]) -> RankListener | None:
    """The rank that listens at this port alone; None where all do.

    With SGLANG_RUST_SERVER=1 and data-parallel attention each rank of a machine listens, rank 0 at --port
    (rust_server/server.py and config.py in SGLang 0.5.23).
    """
    place = info.get("deployment_info")
    if not isinstance(place, dict):
        return None
    ranks, rank = _integer(place, "dp_size") or 1, place.get("dp_rank")
    if not 1 < ranks <= MOST_SERVERS or type(rank) is not int or not 0 <= rank < ranks:
        return None
    return RankListener(rank, ranks, max(ranks // (_integer(place, "nnodes") or 1), 1))


def _sglang_runs_at_once(info: Mapping[str, Any]) -> int | None:
    """Requests that all ranks together run at once.

    The limit in force is that of a rank: SGLang lowers it if the memory does not suffice. The flag
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
    if info.get("enable_dp_attention") is not True:
        return min(asked * ranks, _MOST)
    return asked if (listener := _listener(info)) is None else max(asked // listener.of, 1)


def _listed(control: InfoClient, wanted: str) -> Mapping[str, Any]:
    """The wanted one of the models that a server lists; the first where none has its name.

    A gateway may have several, and vLLM lists adapters beside their base.
    """
    page = (control.first_json(("/v1/models",), needed=True) or {}).get("data")
    models = [one for one in page if isinstance(one, dict)] if isinstance(page, list) else []
    if not models:
        raise ServerError(f"{control.url}: /v1/models lists no model; is this an OpenAI-compatible server?")

    def likeness(model: Mapping[str, Any]) -> int:
        names = [name for name in (_text(model, "id"), _text(model, "root")) if name]
        return 3 if names[:1] == [wanted] else _LIKENESS.get(match_names(names, wanted), 0)

    return max(models, key=likeness)


def _ask_openai(
    control: InfoClient, backend: Backend, health: bytes, wanted: str
) -> tuple[ServerInfo, SettingValues]:
    """SGLang is asked for its own facts, too: what breaks the rules is in its settings alone."""
    model = _listed(control, wanted)
    name = _text(model, "id") or ""
    owner = _text(model, "owned_by")
    if owner == "llamacpp":
        return _ask_llamacpp(control, name, model), {}
    if owner == _VLLM_RUST:
        owner = "vllm"
    if backend in ("trtllm", "dynamo") and owner in _ENGINES:
        raise ServerError(
            f"{control.url}: {_ENGINES[owner]}, not what --backend {backend} names; use --backend {owner}"
        )
    if backend == "dynamo" or _DYNAMO_ENDPOINT in health:
        return _dynamo(control.url, name, model), {}
    if owner == "sglang":
        own = control.first_json(_MODEL_INFO)
        if own is not None and "model_path" in own:
            found, reported = _sglang(control, own)
            return replace(found, wire="openai", served_name=name), reported
    is_trtllm = backend == "trtllm" or owner == "tensorrt_llm"
    root = _text(model, "root")
    # SGLang's root is its served name, and its own pages may be missing for a while, as through a proxy.
    # A gateway names the API as the owner (LiteLLM: "openai"), and not the engine.
    unnamed = owner in (None, "openai")
    path, engine = (None, "SGLang") if owner == "sglang" else (root, _OPENAI if unnamed else str(owner))
    found = ServerInfo(
        url=control.url,
        wire="trtllm" if is_trtllm else "openai",
        engine=engine,
        model=root or name,
        served_name=name,
        model_path=path,
        revision=_snapshot(root),
        version=_openai_version(control.first_json(("/version",)) or {}),
        context_length=_integer(model, "max_model_len"),
        **({} if is_trtllm else _vllm_metrics(control)),
    )
    return found, {}


def _openai_version(page: Mapping[str, Any]) -> str | None:
    """The engine's, and that of vLLM's front end in Rust where it answers (VLLM_USE_RUST_FRONTEND=1)."""
    version, front_end = _text(page, "version"), _text(page, "rust_frontend_version")
    return version if front_end is None else f"{version or '?'} (Rust front end {front_end})"


def _dynamo(url: str, name: str, model: Mapping[str, Any]) -> ServerInfo:
    """Dynamo's frontend says nothing of the engines behind it."""
    return ServerInfo(
        url=url,
        wire="dynamo",
        engine="Dynamo",
        model=name,
        served_name=name,
        context_length=_integer(model, "context_window"),
    )


def _vllm_metrics(control: InfoClient) -> dict[str, Any]:
    """The engines and start options that vLLM's metrics name; nothing without such metrics."""
    status, page = control.ask("/metrics", needed=False)
    engines = len(set(_VLLM_ENGINE.findall(page))) if status == 200 else 0
    return {"dp_size": engines, "settings": _vllm_settings(page)} if engines else {}


def _vllm_settings(page: bytes) -> SettingValues:
    """Options by SGLang's names where both have them."""
    found: SettingValues = {}
    if info := _VLLM_CACHE.search(page):
        labels = {name.decode(): value.decode("utf-8", "replace") for name, value in _LABEL.findall(info[1])}
        if (caches := labels.get("enable_prefix_caching")) is not None:
            found["enable_prefix_caching"] = caches == "True"
        if (dtype := labels.get("cache_dtype")) is not None:
            found["kv_cache_dtype"] = dtype
    if drafted := _VLLM_DRAFTED.findall(page):
        found |= {"speculative_algorithm": NOT_NAMED, "speculative_num_steps": 1 + max(map(int, drafted))}
    return found


def _ask_llamacpp(control: InfoClient, name: str, model: Mapping[str, Any]) -> ServerInfo:
    # Its list of models asks for no key.
    props = control.first_json(("/props",), needed=True) or {}
    settings, meta = props.get("default_generation_settings"), model.get("meta")
    return ServerInfo(
        url=control.url,
        wire="llamacpp",
        engine="llama.cpp",
        model=name,
        served_name=name,
        model_path=_text(props, "model_path"),
        version=_text(props, "build_info"),
        context_length=_integer(settings if isinstance(settings, dict) else {}, "n_ctx"),
        vocabulary_size=_integer(meta if isinstance(meta, dict) else {}, "n_vocab"),
        max_running_requests=_integer(props, "total_slots"),
    )


def _integer(values: Mapping[str, Any], key: str) -> int | None:
    """A positive 31-bit integer field, or None if it is missing or anything else."""
    value = values.get(key)
    return value if type(value) is int and 0 < value <= _MOST else None


def _settings(info: Mapping[str, Any]) -> SettingValues:
    """The ``_SETTINGS`` for which the server reports a plain value, or an object: its JSON."""
    given = {name: info[name] for name in _SETTINGS if isinstance(info.get(name), dict | str)}
    texts = {
        name: one if isinstance(one, str) else msgspec.json.encode(one).decode()
        for name, one in given.items()
    }
    known = _plain_values(info) | {name: text[:_LONGEST_NAME] for name, text in texts.items()}
    return {name: known[name] for name in _SETTINGS if name in known and known[name] != _UNSAID.get(name)}


def _plain_values(info: Mapping[str, Any]) -> SettingValues:
    return {
        name: value
        for name, value in info.items()
        if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _LONGEST_NAME)
    }


def _text(values: Mapping[str, Any], key: str) -> str | None:
    value = values.get(key)
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME else None


def _snapshot(path: str | None) -> str | None:
    """The revision named by a path inside a Hugging Face cache."""
    found = _SNAPSHOT.search(path or "")
    return found[1] if found else None


def router_of(control: InfoClient, headers: Mapping[str, str], health: bytes = b"") -> Router | None:
    """The router in front of a server; None for none that shows itself.

    By the ``headers`` and the page of its ``health``, and by a page of its own. Tried with SMG 1.13.0,
    sglang-router 0.3.2, vllm-router 0.1.17, Dynamo 1.6.1 and the proxies of docs/guide/servers/router.md;
    others are known by the headers that they are documented to send.
    """
    if _DYNAMO_ENDPOINT in health:
        return Router(DYNAMO, servers=_dynamo_workers(health))
    if (router := _litellm(health)) is not None:
        return router
    try:
        workers = _workers(control)
        if workers is not None:
            name, version = _gateway(control, health)
            servers = min(len(workers), _MOST_SERVERS)
            return Router(name, version=version, servers=servers, failed=min(_failed(workers), servers))
    except ServerError:
        pass  # the headers may still show a router
    server, via = headers.get("server", "")[:_LONGEST_HEADER], headers.get("via", "")[:_LONGEST_HEADER]
    for beginning, name in _PROXIES.items():
        if server.lower().startswith(beginning):
            return Router(name, version=server.partition("/")[2] or None)
    if "x-envoy-upstream-service-time" in headers:
        return Router("Envoy")
    return Router(f"a proxy ({via})") if via else None


def _workers(control: InfoClient) -> list[Any] | None:
    """A router's list of its servers; None without one."""
    workers = (control.first_json(("/workers",)) or {}).get("workers")
    return workers if isinstance(workers, list) else None


def _failed(workers: Sequence[Any]) -> int:
    return sum(isinstance(worker, dict) and worker.get("is_healthy") is False for worker in workers)


def with_router(server: ServerInfo, router: Router | None) -> ServerInfo:
    """A gateway passes on the facts of one of its servers, whose limit counts for each of them.

    Which of the ranks of several servers answers is its choice: its URL is not that of one rank.
    """
    behind = (router and router.servers) or 1
    runs = server.max_running_requests
    return replace(
        server,
        router=router,
        max_running_requests=None if runs is None else runs * behind,
        listener=server.listener if behind == 1 else None,
    )


def _gateway(control: InfoClient, health: bytes) -> tuple[str, str | None]:
    """The name and version of a router with a list of workers; those of one family differ in little."""
    version = (control.first_json(("/get_loads",)) or {}).get("version")
    if isinstance(version, str):
        return SMG, version[:_LONGEST_HEADER]
    is_vllms = health.strip() == _VLLM_ROUTER_HEALTH or health.startswith(_VLLM_ROUTER_FAILED)
    return (VLLM_ROUTER if is_vllms else SGLANG_ROUTER), None


def _litellm(health: bytes) -> Router | None:
    """Its servers are those of all of its models."""
    try:
        page = msgspec.json.decode(health, type=_LitellmHealth)
    except UNREADABLE:
        return None
    servers = min(page.healthy_count + page.unhealthy_count, _MOST_SERVERS)
    return Router(LITELLM, servers=servers or None, failed=min(page.unhealthy_count, servers))


def _dynamo_workers(health: bytes) -> int | None:
    """The instances that generate, where its page lists them."""
    try:
        page = msgspec.json.decode(health, type=_DynamoHealth)
    except UNREADABLE:
        return None
    found = {one.instance_id for one in page.instances if one.endpoint == "generate"}
    return min(len(found), _MOST_SERVERS) or None
