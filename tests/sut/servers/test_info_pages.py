"""Routers in front of servers, by the answers of real ones."""

import pytest
from msgspec import structs

from harness.record.settled import Router
from sut.client.endpoint import Access
from sut.servers.discovery import discover
from sut.servers.health import ask_health
from sut.servers.info_client import InfoClient
from sut.servers.info_pages import DYNAMO, LITELLM, SGLANG_ROUTER, SMG, VLLM_ROUTER, router_of
from sut.servers.server_checks import replica_warnings, router_warnings
from tests.kit import listening
from tests.stub import refused_url
from tests.sut.pages import fact_of, facts, pages, refusal

# What SMG 1.13.0 answers in front of two servers, cut to what matters; its other paths are 404.
WORKER = {"id": "01a20268", "model_id": "stub", "worker_type": "regular", "runtime_type": "sglang"}
GATEWAY = {
    "/health": b"OK",
    "/get_model_info": {"model_path": "m"},
    "/get_server_info": {"max_running_requests": 256, "dp_size": 1, "version": "0.5.23"},
    "/workers": {"workers": [WORKER, WORKER], "total": 2, "stats": {"regular_count": 2}},
    "/get_loads": {"timestamp": "2026-11-22T08:39:04+00:00", "version": "smg-1.13.0", "loads": []},
}


def test_a_gateway_and_what_its_servers_run_together():
    fact = fact_of(GATEWAY)
    assert fact.router == Router(SMG, "smg-1.13.0", 2)
    assert fact.max_running_requests == 512
    (warning,) = router_warnings([fact, structs.replace(fact, url="http://other:1")])
    assert "--disable-retries" in warning


LOADS = {"workers": [{"worker": "http://127.0.0.1:31000", "load": -1}]}
INSTANCE = {"component": "backend", "endpoint": "generate", "namespace": "dynamo", "instance_id": 2908795924}
EVENTS = INSTANCE | {"endpoint": "worker_kv_query_source_1b88"}
DYNAMOS = {
    "/health": {
        "status": "healthy",
        "endpoints": ["dyn://dynamo.backend.generate"],
        "instances": [INSTANCE, EVENTS, INSTANCE | {"instance_id": 1}, INSTANCE | {"instance_id": 2}],
    },
    "/v1/models": {"data": [{"id": "openai/gpt-oss-120b", "owned_by": "nvidia", "context_window": 4096}]},
}


@pytest.mark.parametrize(("health", "name"), [(b"OK", SGLANG_ROUTER), (b"All servers healthy", VLLM_ROUTER)])
def test_relatives_of_the_gateway(health, name):
    """sglang-router 0.3.2 and vllm-router 0.1.17 have its list of workers and no version."""
    fact = fact_of({**GATEWAY, "/health": health, "/get_loads": LOADS})
    assert fact.router == Router(name, None, 2)


def test_what_llama_cpp_does_not_say_is_not_known():
    """A model that is not loaded has no metadata yet."""
    model = {"id": "tiny.gguf", "owned_by": "llamacpp", "meta": None}
    props = {"default_generation_settings": None, "model_path": "/m/tiny.gguf"}
    fact = fact_of({"/v1/models": {"data": [model]}, "/props": props}, "openai")
    assert (fact.model, fact.model_path) == ("tiny.gguf", "/m/tiny.gguf")
    assert (fact.context_length, fact.vocabulary_size) == (None, None)


@pytest.mark.parametrize(("owner", "is_asked"), [("tensorrt_llm", False), ("vllm", True)])
def test_statistics_that_are_removed_by_reading_are_left_to_the_run(owner, is_asked):
    """TensorRT-LLM's /metrics is a list of the steps since the last request."""
    asked = []

    class Pages(dict):
        def get(self, path, default=None):
            asked.append(path)
            return super().get(path, default)

    table = Pages({"/health": b"", "/v1/models": {"data": [{"id": "m", "owned_by": owner}]}})
    with pages(table) as url:
        discover([url], "openai", Access(), 20)
    assert ("/metrics" in asked) is is_asked


# LiteLLM 1.108.7 in front of two servers, cut to what matters; it has no Server header.
LITELLMS = {
    "/health": {
        "healthy_endpoints": [{"api_base": "http://127.0.0.1:38383/v1", "model": "hosted_vllm/gpt-oss-120b"}],
        "unhealthy_endpoints": [
            {"api_base": "http://127.0.0.1:45969/v1", "model": "hosted_vllm/gpt-oss-120b", "error": "refused"}
        ],
        "healthy_count": 1,
        "unhealthy_count": 1,
    },
    "/health/liveliness": b'"I\'m alive!"',
    "/v1/models": {"data": [{"id": "gpt-oss-120b", "owned_by": "openai", "max_input_tokens": 131072}]},
}


def test_litellm_is_known_by_its_health():
    """Its /health asks each server for an answer, and is left alone during a run."""
    fact = fact_of(LITELLMS, "openai")
    assert (fact.engine, fact.router) == ("OpenAI-compatible", Router(LITELLM, None, 2, failed=1))
    placed, dead = router_warnings([fact])
    assert "LiteLLM in front" in placed and "which it ends as complete ones" in placed
    assert "1 of its 2 servers as not healthy" in dead
    with pages({**LITELLMS, "/health": (503, b"")}) as url:
        assert "503" in ask_health(url, Access())
        assert ask_health(url, Access(), router=fact.router) == ""


def test_a_gateway_that_fails_for_lack_of_a_key(monkeypatch):
    """LiteLLM 1.108.7 without a database answers 500 where it means 401."""
    with pages({"/health": (500, b"Internal Server Error")}) as url:
        assert "or wants a key (SGLANG_API_KEY or OPENAI_API_KEY)" in refusal(url)
        assert refusal(url, key="mine").endswith("expected 200; the server is not ready")


# Of sglang-router 0.3.2, SMG 1.13.0 and vllm-router 0.1.17, and the last one's /health, when one of two
# servers has been killed.
WELL, DEAD = WORKER | {"is_healthy": True}, WORKER | {"is_healthy": False}
OUT = (503, b'Unhealthy servers: ["http://127.0.0.1:41012"]')


@pytest.mark.parametrize(
    ("health", "name"), [((200, b"OK"), SGLANG_ROUTER), (OUT, VLLM_ROUTER)], ids=["sglang", "vllm"]
)
def test_a_router_with_a_dead_server(health, name):
    """The other server works; the plan says that one is missing."""
    fact = fact_of({**GATEWAY, "/health": health, "/workers": {"workers": [DEAD, WELL]}, "/get_loads": LOADS})
    assert fact.router == Router(name, None, 2, failed=1)
    _, warning = router_warnings([fact])
    assert f"{name} reports 1 of its 2 servers as not healthy" in warning


def test_a_router_whose_servers_are_all_dead():
    for workers in ({"workers": [DEAD, DEAD]}, 404):  # 404: a proxy hides the page
        with pages({**GATEWAY, "/health": OUT, "/workers": workers}) as url:
            assert "/health answered 503" in refusal(url)
            assert "/health answered 503" in ask_health(url, Access())


def test_a_server_that_died_is_to_be_started_not_named_anew():
    """Its address was right when the run began; before that it may be wrong."""
    with refused_url() as url:
        assert ask_health(url, Access()).endswith("Connection refused); start the server")
        assert refusal(url).endswith("Connection refused); start the server or correct --server-url")


def cut_off(connection):
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")


def test_a_server_that_closes_may_speak_tls():
    """uvicorn closes a connection whose first bytes are no handshake; so does a proxy without its server."""
    with listening(lambda connection: connection.recv(1 << 16)) as url:
        assert refusal(url).endswith("; if the port speaks TLS, --server-url begins with https://")
        assert ask_health(url, Access()).endswith("; start the server")
    with listening(cut_off) as url:
        assert refusal(url).endswith("; start the server or correct --server-url")


@pytest.mark.parametrize("backend", ["dynamo", "openai", "vllm"])
def test_the_frontend_of_dynamo(backend):
    """Known by the addresses in its /health; --backend dynamo is for one whose page is hidden."""
    fact = fact_of(DYNAMOS, backend)
    assert fact.router == Router(DYNAMO, None, 3)
    assert (fact.wire, fact.engine, fact.served_name) == ("dynamo", "Dynamo", "openai/gpt-oss-120b")
    assert fact.context_length == 4096
    hidden = fact_of(DYNAMOS | {"/health": b"OK"}, "dynamo")
    assert (hidden.wire, hidden.router) == ("dynamo", None)


@pytest.mark.parametrize(("urls", "words"), [(1, "is off"), (3, "between these 3 URLs only")])
def test_whose_choice_of_a_server_counts(urls, words):
    server = structs.replace(facts("http://a:1"), router=Router(SMG))
    (warning,) = router_warnings([structs.replace(server, url=f"http://a:{n}") for n in range(urls)])
    assert words in warning


@pytest.mark.parametrize("workers", [404, 403, 500, b"no JSON", {"workers": 3}, [1]])
def test_a_server_without_a_gateways_page(workers):
    fact = fact_of({**GATEWAY, "/workers": workers})
    assert fact.router is None
    assert fact.max_running_requests == 256
    assert list(router_warnings([fact])) == []


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"server": "nginx/1.22.1"}, Router("nginx", "1.22.1")),
        ({"server": "istio-envoy"}, Router("Envoy")),
        ({"server": "envoy", "x-envoy-upstream-service-time": "103"}, Router("Envoy")),  # 1.40.0
        ({"server": "Traefik"}, Router("Traefik")),  # 3.7.15 with a middleware that sets it
        ({"server": "HAProxy"}, Router("HAProxy")),
        ({"server": "Caddy, llama.cpp"}, Router("Caddy")),  # 2.6: two lines
        ({"server": "llama.cpp", "via": "1.1 Caddy"}, Router("a proxy (1.1 Caddy)")),  # 2.11
        ({"server": "uvicorn", "x-envoy-upstream-service-time": "4"}, Router("Envoy")),
        ({"server": "uvicorn", "via": "1.1 varnish"}, Router("a proxy (1.1 varnish)")),
        ({"server": "uvicorn"}, None),
        ({"server": "llama.cpp"}, None),
        ({}, None),
    ],
)
def test_a_proxy_by_its_headers(headers, found):
    with pages({}) as url, InfoClient(url, Access(), 20) as control:
        assert router_of(control, headers) == found
    if found is not None:
        server = structs.replace(facts("http://a:1"), router=found)
        assert len(list(router_warnings([server]))) == 1


def test_a_router_beside_its_own_servers():
    """As named by mistake: the difference in words."""
    behind = [facts("http://a:1"), structs.replace(facts("http://r:1"), router=Router("nginx", "1.22.1"))]
    assert list(replica_warnings(behind)) == [
        "replicas differ in router: None at http://a:1, nginx 1.22.1 at http://r:1"
    ]
    alike = [structs.replace(facts(f"http://r:{n}"), router=Router(SMG, "1", 8, failed=n)) for n in (0, 1)]
    (warning,) = replica_warnings(alike)
    assert warning.endswith("SMG 1 before 8 servers, 1 of them not healthy at http://r:1")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        # HAProxy 2.6 before a stub: TTFT 23 ms is 229 ms, TPOT 50 ms is 39 ms, until it has the option.
        ("HAProxy", ("option http-no-delay", "timeout server")),
        # 1.31.3 ended answers of 63 s with 504 after 60 s.
        ("nginx", ("proxy_buffering off", "proxy_read_timeout (60 s unless set)")),
        # 1.40.0 with timeout: 0s ended answers that were silent for its idle timeout with 504.
        ("Envoy", ("timeout (15 s unless set)", "idle_timeout (5 min unless set)")),
    ],
)
def test_what_a_proxy_does_to_answers(name, settings):
    (warning,) = router_warnings([structs.replace(facts("http://a:1"), router=Router(name))])
    assert all(text in warning for text in settings)


@pytest.mark.parametrize(
    ("info", "weights_gb"),
    [
        ({"internal_states": [{"memory_usage": {"weight": 7.65}}], "tp_size": 8}, 61.2),
        ({"internal_states": [{"memory_usage": {"weight": 0.015}}], "tp_size": 2, "pp_size": 2}, 0.06),
        ({"internal_states": [{"memory_usage": {"weight": 0.2}}], "device": "cpu"}, None),
        ({"internal_states": [{"memory_usage": {"weight": 0.2}}], "cpu_offload_gb": 60}, None),
        ({"internal_states": [{"memory_usage": {"weight": -0.03}}]}, None),
        ({"internal_states": [{"memory_usage": 3}]}, None),
        ({"internal_states": []}, None),
        ({}, None),
    ],
)
def test_the_memory_of_the_weights(info, weights_gb):
    assert fact_of({**GATEWAY, "/get_server_info": info}).weights_gb == weights_gb
