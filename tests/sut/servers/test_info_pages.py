"""Routers in front of servers, by the answers of real ones."""

import pytest
from msgspec import structs

from harness.record.settled import Router
from sut.servers.info_client import InfoClient
from sut.servers.info_pages import GATEWAY, router_of
from sut.servers.server_checks import router_warnings
from tests.sut.pages import fact_of, facts, pages

# What SMG 1.13.0 answered in front of two servers, cut to what matters; its other paths are 404.
WORKER = {"id": "01a20268", "model_id": "stub", "worker_type": "regular", "runtime_type": "sglang"}
SMG = {
    "/health": b"OK",
    "/get_model_info": {"model_path": "m"},
    "/get_server_info": {"max_running_requests": 256, "dp_size": 1, "version": "0.5.23"},
    "/workers": {"workers": [WORKER, WORKER], "total": 2, "stats": {"regular_count": 2}},
    "/get_loads": {"timestamp": "2026-11-22T08:39:04+00:00", "version": "smg-1.13.0", "loads": []},
}


def test_a_gateway_and_what_its_servers_run_together():
    fact = fact_of(SMG)
    assert fact.router == Router(GATEWAY, "smg-1.13.0", 2)
    assert fact.max_running_requests == 512
    (warning,) = router_warnings([fact, structs.replace(fact, url="http://other:1")])
    assert "--disable-retries" in warning


@pytest.mark.parametrize("workers", [404, 403, 500, b"no JSON", {"workers": 3}, [1]])
def test_a_server_without_a_gateways_page(workers):
    fact = fact_of({**SMG, "/workers": workers})
    assert fact.router is None
    assert fact.max_running_requests == 256
    assert list(router_warnings([fact])) == []


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"server": "nginx/1.22.1"}, Router("nginx", "1.22.1")),
        ({"server": "istio-envoy"}, Router("Envoy")),
        ({"server": "uvicorn", "x-envoy-upstream-service-time": "4"}, Router("Envoy")),
        ({"server": "uvicorn", "via": "1.1 varnish"}, Router("a proxy (1.1 varnish)")),
        ({"server": "uvicorn"}, None),
        ({"server": "llama.cpp"}, None),
        ({}, None),
    ],
)
def test_a_proxy_by_its_headers(headers, found):
    with pages({}) as url, InfoClient(url, None, 20) as control:
        assert router_of(control, headers) == found
    if found is not None:
        server = structs.replace(facts("http://a:1"), router=found)
        assert len(list(router_warnings([server]))) == 1


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
    assert fact_of({**SMG, "/get_server_info": info}).weights_gb == weights_gb
