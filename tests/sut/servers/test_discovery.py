"""Questions before the first query: each unusable server is refused in words, and soon."""

import re
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from harness.config.deadlines import PreflightLimits
from harness.errors import ConfigError, ServerError
from harness.record.settled import ServerInfo
from sut.client.endpoint import Access
from sut.client.network_figures import TcpInfo
from sut.servers import discovery, info_client
from sut.servers.discovery import certificate_warnings, discover, find_servers
from sut.servers.health import Recheck
from sut.servers.info_client import InfoClient, NotReadyError
from tests.kit import listening, read_request
from tests.stub import Facts, StubServer, refused_url
from tests.sut.pages import LLAMA_MODELS, LLAMA_PROPS, fact_of, pages, refusal

SGLANG = {"wire": "sglang", "engine": "SGLang"}
LIMITS = {"tp_size": 1, "dp_size": 8, "max_running_requests": 512}
INFO = {"version": "0.5.23", "context_length": 9000, "stream_interval": 4}
SNAPSHOT = "/root/.cache/huggingface/hub/models--openai--gpt-oss-120b/snapshots/" + "b5c939de" * 5
PYTORCH = {
    "model_path": "deepseek-ai/DeepSeek-R1",
    "revision": "56d4cbbb4d29f4355bab4b9a39ccb717a14ad5ad",
    "version": "transformers 5.19.0, torch 2.13.0+cpu",
    "context_length": 163840,
    "max_running_requests": 16,
    "engine": "PyTorch",
    "dp_size": 1,
}
PYTORCH_MORE = {"served_model_name": "deepseek-r1", "vocab_size": 129280, "tp_size": 8, "dtype": "bfloat16"}
# vLLM reports neither its data-parallel size nor max_num_seqs; its metrics come once for each engine.
RUNNING = "# TYPE vllm:num_requests_running gauge\n" + "".join(
    f'vllm:num_requests_running{{engine="{engine}",model_name="openai/gpt-oss-120b"}} 0.0\n'
    for engine in range(8)
)
VLLM = {"id": "gpt-oss", "owned_by": "vllm", "root": "openai/gpt-oss-120b", "max_model_len": 4096}
# TensorRT-LLM's card has no more than these members; /metrics takes its statistics away and is not asked.
TRTLLM = {"id": "gpt-oss-120b", "object": "model", "created": 1795316214}
PATH, NAME = "openai/gpt-oss-120b", "gpt-oss-120b"
# SGLang 0.5.23: its list of models has the served name alone, whatever weights it has loaded.
SGLANG_MODELS = {"id": PATH, "object": "model", "owned_by": "sglang", "root": PATH, "max_model_len": 8192}
SGLANG_LLAMA = {"model_path": "/m/Llama-3.1-8B-Instruct", "served_model_name": PATH}
# Backends, pages, facts.
SERVERS = [
    (
        ["sglang"],
        {"/model_info": {"model_path": PATH}, "/server_info": {**INFO, **LIMITS, "served_model_name": NAME}},
        {**SGLANG, **INFO, "model": NAME, "model_path": PATH, "dp_size": 8}
        | {"max_running_requests": 8 * 512, "settings": LIMITS},
    ),
    (
        ["sglang"],  # by its old paths
        {"/get_model_info": {"model_path": SNAPSHOT}, "/get_server_info": {"version": "0.4"}},
        {**SGLANG, "model": SNAPSHOT, "model_path": SNAPSHOT, "revision": "b5c939de" * 5, "version": "0.4"},
    ),
    (
        ["pytorch", "sglang"],
        dict.fromkeys(("/model_info", "/server_info"), PYTORCH | PYTORCH_MORE),
        {**PYTORCH, "wire": "sglang", "model": "deepseek-r1", "vocabulary_size": 129280}
        | {"settings": {"tp_size": 8, "dp_size": 1, "dtype": "bfloat16", "max_running_requests": 16}},
    ),
    (
        ["vllm", "openai"],
        {"/v1/models": {"data": [VLLM]}, "/version": {"version": "0.11.0"}, "/metrics": RUNNING.encode()},
        {"wire": "openai", "engine": "vllm", "model": PATH, "served_name": "gpt-oss", "model_path": PATH}
        | {"version": "0.11.0", "context_length": 4096, "dp_size": 8},
    ),
    (
        ["vllm", "openai"],  # behind an ingress that denies its further pages to all
        {"/v1/models": {"data": [VLLM]}, "/metrics": 403, "/version": 403},
        {"wire": "openai", "engine": "vllm", "model": PATH, "served_name": "gpt-oss", "model_path": PATH}
        | {"context_length": 4096},
    ),
    (
        ["vllm", "openai"],  # recorded with VLLM_USE_RUST_FRONTEND=1
        {"/v1/models": {"data": [VLLM | {"owned_by": "vllm-frontend-rs"}]}}
        | {
            "/version": {"version": "0.32.0", "rust_frontend_version": "0.33.0"},
            "/metrics": RUNNING.encode(),
        },
        {"wire": "openai", "engine": "vllm", "model": PATH, "served_name": "gpt-oss", "model_path": PATH}
        | {"version": "0.32.0 (Rust front end 0.33.0)", "context_length": 4096, "dp_size": 8},
    ),
    (
        ["vllm", "openai"],  # SGLang by the API of another backend: its own pages count all the same
        {"/v1/models": {"data": [SGLANG_MODELS]}, "/model_info": SGLANG_LLAMA}
        | {"/server_info": INFO | {"disable_radix_cache": False, "max_running_requests": 128}},
        {**SGLANG, **INFO, "wire": "openai", "model": PATH, "served_name": PATH}
        | {"model_path": "/m/Llama-3.1-8B-Instruct", "max_running_requests": 128}
        | {"settings": {"disable_radix_cache": False, "max_running_requests": 128}},
    ),
    (
        ["vllm", "openai"],  # the same behind a router without SGLang's pages
        {"/v1/models": {"data": [SGLANG_MODELS]}, "/model_info": 403},
        {**SGLANG, "wire": "openai", "model": PATH, "served_name": PATH, "context_length": 8192},
    ),
    *[
        (
            backends,
            {"/v1/models": {"data": [TRTLLM | {"owned_by": owner}]}, "/version": {"version": "1.2.0"}}
            | {"/metrics": 401},
            {"wire": "trtllm", "engine": owner, "model": NAME, "served_name": NAME, "version": "1.2.0"},
        )
        for backends, owner in ((["trtllm", "openai"], "tensorrt_llm"), (["trtllm"], "a-gateway"))
    ],
    (
        ["openai"],
        {"/v1/models": {"data": [LLAMA_MODELS]}, "/props": LLAMA_PROPS},
        {"wire": "llamacpp", "engine": "llama.cpp", "model": "tiny.gguf", "served_name": "tiny.gguf"}
        | {"model_path": "/m/tiny.gguf"}
        | {"version": "b1-abc", "context_length": 512, "vocabulary_size": 201088, "max_running_requests": 16},
    ),
]


@pytest.mark.parametrize(
    ("backend", "table", "expected"),
    [(backend, table, expected) for backends, table, expected in SERVERS for backend in backends],
)
def test_facts(backend, table, expected):
    fact = fact_of(table, backend)
    assert fact == ServerInfo(url=fact.url, **expected)


# What SGLang 0.5.23 reports: recorded with --dp 2; by its sources where memory allows less than asked, and
# with --dp 8 --tp 8 --enable-dp-attention. Then versions before, with and without the limit in force.
ATTENTION = {"enable_dp_attention": True, "max_running_requests": 512}
CAPACITIES = [
    ({"dp_size": 2, "attn_dp_size": 1, "max_running_requests": 128}, [128, 128], 2, 256),
    ({"dp_size": 2, "attn_dp_size": 1, "max_running_requests": 300}, [128, 100], 2, 228),
    ({"dp_size": 1, "attn_dp_size": 1, "max_running_requests": None}, [2048], 1, 2048),
    ({"dp_size": 1, "attn_dp_size": 8, **ATTENTION}, [64], 8, 512),
    ({"dp_size": 8, **ATTENTION}, [64], 8, 512),
    ({"dp_size": 8, **ATTENTION}, [], 8, 512),
    ({"dp_size": 8, "max_running_requests": 512}, [], 8, 4096),
    ({"max_running_requests": 512}, [], None, 512),
    ({"dp_size": 8, "max_running_requests": None}, [], 8, None),
    ({"dp_size": 8}, ["64", None, -1], 8, None),
    ({"dp_size": 2**31 - 1}, [2**31 - 1], 2**31 - 1, 2**31 - 1),
]


@pytest.mark.parametrize(("info", "of_ranks", "ranks", "together"), CAPACITIES)
def test_what_sglang_runs_at_once_over_all_its_ranks(info, of_ranks, ranks, together):
    states = [{"effective_max_running_requests_per_dp": limit} for limit in of_ranks]
    fact = fact_of({"/model_info": {"model_path": "m"}, "/server_info": info | {"internal_states": states}})
    assert (fact.dp_size, fact.max_running_requests) == (ranks, together)


@pytest.mark.parametrize("states", [None, {}, "x", [1, None], [[]]])
def test_states_of_a_wrong_type_are_not_believed(states):
    info = {"internal_states": states, "max_running_requests": 7}
    fact = fact_of({"/model_info": {"model_path": "m"}, "/server_info": info})
    assert fact.max_running_requests == 7


# -- who is refused, and how

# HAProxy 2.6.
BALANCER = (
    503,
    b"<html><body><h1>503 Service Unavailable</h1>\n"
    b"No server is available to handle this request.\n</body></html>\n",
)


def test_nothing_listens():
    with refused_url() as url:
        text = refusal(url, kind=NotReadyError)
    assert text.startswith(f"{url}: ") and "--server-url" in text


@pytest.mark.parametrize(
    ("backend", "table", "kind", "values"),
    [
        ("sglang", {}, NotReadyError, ["/health", "404", "200; correct --server-url"]),
        ("sglang", {"/health": 503}, NotReadyError, ["/health", "503", "200"]),
        ("sglang", {"/health": b""}, ServerError, ["/model_info", "--backend vllm"]),
        ("sglang", {"/health": b"", "/model_info": {"name": "x"}}, ServerError, ["/model_info"]),
        # A balancer without health checks sends some of the pages to a server that is not there yet.
        ("sglang", {"/health": b"", "/model_info": BALANCER}, NotReadyError, ["/model_info", "503", "200"]),
        ("openai", {"/health": b"", "/v1/models": BALANCER}, NotReadyError, ["/v1/models", "503", "200"]),
        # sglang-router 0.3.2, which asks a server that it does not know to be dead; it has no /model_info.
        ("sglang", {"/health": b"", "/get_model_info": 500}, NotReadyError, ["/get_model_info", "500"]),
        ("pytorch", {"/health": b""}, ServerError, ["/model_info", "PyTorch"]),
        ("vllm", {"/health": b""}, ServerError, ["/v1/models"]),
        ("openai", {"/health": b"", "/v1/models": {"data": []}}, ServerError, ["/v1/models"]),
        ("openai", {"/health": b"", "/v1/models": {"data": ["m"]}}, ServerError, ["/v1/models"]),
        ("openai", {"/health": b"", "/v1/models": b"<html>"}, ServerError, ["/v1/models"]),
        *[
            (
                backend,
                {"/health": b"", "/v1/models": {"data": [models]}},
                ServerError,
                [f"; use --backend {meant}"],
            )
            for backend in ("trtllm", "dynamo")
            for models, meant in ((VLLM, "vllm"), (SGLANG_MODELS, "sglang"))
        ],
        ("sglang", {"/health": 401}, ServerError, ["401", "SGLANG_API_KEY"]),
        (
            "openai",
            {"/health": b"", "/v1/models": {"data": [LLAMA_MODELS]}, "/props": 401},
            ServerError,
            ["401", "SGLANG_API_KEY"],
        ),
    ],
)
def test_wrong_servers(backend, table, kind, values):
    with pages(table) as url:
        text = refusal(url, backend, kind=kind)
    assert text.startswith(f"{url}: ")
    assert all(value in text for value in values), text


GATEWAY = [{"id": name, "object": "model", "owned_by": "openai"} for name in ("qwen3", NAME, "llama")]
ADAPTER = {"id": "sql", "owned_by": "vllm", "root": "/adapters/gpt-oss-120b-sql", "parent": "gpt-oss"}
LISTS = {
    "a gateway's": (GATEWAY, NAME),
    "vLLM's with an adapter": ([ADAPTER, VLLM], "gpt-oss"),
    "forms and relatives": ([{"id": f"{NAME}-{word}"} for word in ("eagle3", "sql", "fp8")], f"{NAME}-fp8"),
    "the model before its forms": ([{"id": f"{NAME}-fp8"}, {"id": NAME}], NAME),
    "the model by two names": ([{"id": NAME.rpartition("/")[2]}, {"id": PATH}], PATH),
    "none of that name": ([GATEWAY[2], GATEWAY[0]], "llama"),
}


@pytest.mark.parametrize("case", LISTS)
def test_of_several_models_the_benchmarks_is_asked(case, tmp_path):
    """And the same one at the end of the run, wherever it then is in the list."""
    models, named = LISTS[case]
    table = {"/health": b"", "/v1/models": {"data": models}}
    limits = PreflightLimits(questions_s=20, trial_s=1)
    with pages(table) as url:
        found = find_servers([url], "openai", Access(), limits, PATH).found
        table["/v1/models"] = {"data": [*reversed(models)]}
        recheck = Recheck(found, "openai", Access(), 20, tmp_path)
        assert recheck.ask_all(20) == ()
    assert [server.served_name for server in found] == [named]
    assert recheck.changes == ()


@pytest.mark.parametrize("place", ["", "/team/llm"])
def test_a_url_with_the_path_of_an_api(place):
    with pages({}) as url:
        text = refusal(f"{url}{place}/v1", kind=NotReadyError)
    assert text.startswith(f"{url}{place}/v1: /health") and text.endswith(" /v1")


@pytest.mark.parametrize("backend", ["sglang", "openai"])
@pytest.mark.parametrize(
    ("key", "remedy"), [(None, "SGLANG_API_KEY or OPENAI_API_KEY"), ("sk-wrong", "the key in OPENAI_API_KEY")]
)
def test_a_key_is_asked_for_although_health_is_open(backend, key, remedy, monkeypatch):
    """As SGLang and vLLM do it. A key that was sent is named by its variable."""
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    table = {"/health": b"", "/model_info": {"model_path": "m"}, "/v1/models": {"data": [{"id": "m"}]}}
    with pages(table, key="right") as url:
        text = refusal(url, backend, key)
        assert "401" in text and remedy in text
        assert "sk-wrong" not in text
        assert discover([url], backend, Access("right"), 20)[0].model == "m"


def test_a_server_that_says_nothing_on_a_bad_network(monkeypatch):
    """Where the kernel has evidence against the network, that is the remedy."""
    monkeypatch.setattr(TcpInfo, "evidence", lambda info: "lost packets")
    with listening(lambda connection: connection.recv(1 << 20) and time.sleep(20)) as url:
        text = refusal(url, seconds=0.5, kind=NotReadyError)
    assert all(value in text for value in ("/health", "0.5 s", "lost packets")), text


def test_a_server_that_answers_health_and_then_says_nothing(caplog, monkeypatch):
    """The wait is named: after a second, but a busy machine may let that one and the end pass together."""
    monkeypatch.setattr(info_client, "_FIRST_NOTICE_S", 0.0)

    def answer(connection):
        while b"GET /health" in connection.recv(1 << 16):
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        time.sleep(20)

    with caplog.at_level("INFO", "mlperf"), listening(answer) as url:
        text = refusal(url, seconds=3, kind=NotReadyError)
    assert all(value in text for value in ("/model_info", "3 s", "--preflight-timeout")), text
    (message,) = caplog.messages
    assert re.search(rf"{url}/(health|model_info), .*--preflight-timeout", message)


@pytest.mark.engine
def test_a_busy_server_that_answers_slowly():
    """Real SGLang took more than 3.5 s on a loaded machine, and was refused."""
    table = {b"/health": b"", b"/model_info": b'{"model_path":"m"}'}

    def answer(connection):
        while request := connection.recv(1 << 16):
            time.sleep(1.4)
            body = table.get(request.split()[1], b"{}")
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    with listening(answer) as url:
        assert discover([url], "sglang", Access(), 60)[0].model == "m"


def test_time_that_is_over_before_the_connection_is_there(monkeypatch):
    """The thread that asks may stand still in between; nothing else ends headers that trickle."""

    def trickle(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
        for _ in range(60):
            connection.sendall(b"y")
            time.sleep(0.05)
        connection.sendall(b"\r\ncontent-length: 0\r\n\r\n")

    monkeypatch.setattr(threading, "Timer", AtOnce)
    with listening(trickle) as url, InfoClient(url, Access(), 60.0) as client, pytest.raises(ServerError):
        client.ask("/health")


class AtOnce:
    """A timer that is over at its start."""

    def __init__(self, seconds, call):
        self.start, self.cancel = call, lambda: None


@pytest.mark.parametrize(
    ("other", "values"),
    [
        (Facts(served_name="llama"), ("gpt-oss-120b", "llama")),
        (Facts(vocab_size=201000), ("vocabulary size", "201088", "201000")),
        (Facts(context_length=4096), ("context length", "131072", "4096")),
        (Facts(weight_version="v2"), ("weight version", "default", "v2")),
        (Facts(model=f"cache/snapshots/{'1' * 40}"), ("revision", "0" * 40, "1" * 40)),
    ],
)
def test_replicas_that_differ(other, values):
    with StubServer(facts=Facts(model=f"cache/snapshots/{'0' * 40}")) as a, StubServer(facts=other) as b:
        text = refusal([a.url, b.url])
    assert all(value in text for value in (*values, a.url, b.url)), text


def test_the_lookup_of_a_name_is_not_the_servers_time(monkeypatch):
    """One for all pages. A resolver whose first server is dead takes 5 s, more than /health may."""
    known, lookups = socket.getaddrinfo, []

    def look_up(host, *others, **named):
        lookups.extend([host] * (host == "late.test"))
        return known("127.0.0.1" if host == "late.test" else host, *others, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 60 * len(lookups))
    monkeypatch.setattr(info_client, "time", clock)
    with StubServer() as stub, InfoClient(stub.url.replace("127.0.0.1", "late.test"), Access(), 30) as client:
        assert [client.ask(page)[0] for page in ("/health", "/version")] == [200, 200]
    assert len(lookups) == 1


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    with StubServer() as stub, refused_url() as dead:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, dead)
        assert discover([stub.url], "sglang", Access(), 20)


def test_tls_with_the_certificate_that_the_request_path_trusts(tls, certificate, monkeypatch):
    cert = certificate[0]
    with StubServer(tls=tls) as stub:
        text = refusal(stub.url)
        assert "certificate" in text and "--ca-file" in text
        assert "--ca-file" in refusal(stub.url.replace("https:", "HTTPS:"))
        assert discover([stub.url], "sglang", Access(ca_file=cert), 20)
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        assert discover([stub.url], "sglang", Access(), 20)


def test_a_certificate_that_ends_soon_is_a_warning(tls, certificate, monkeypatch):
    """The fixture's is valid for two days."""
    limits = PreflightLimits(questions_s=20, trial_s=1)
    with StubServer(tls=tls) as stub:
        for soon, count in ((timedelta(days=1), 0), (timedelta(days=3), 1)):
            monkeypatch.setattr(discovery, "_SOON", soon)
            found = find_servers([stub.url], "sglang", Access(ca_file=certificate[0]), limits)
            assert len(found.warnings) == count
    assert re.match(rf"{stub.url}: the TLS certificate ends in 4\dh\d\dm \(20.* UTC\): ", found.warnings[0])


def test_certificates_of_many_servers_are_one_warning():
    """In a service mesh each server has its own, renewed every few hours."""
    now = datetime(2026, 11, 30, tzinfo=UTC)
    ends = {f"https://n{n}:1": now + timedelta(hours=2, seconds=n) for n in (3, 1, 2)}
    (warning,) = certificate_warnings(ends | {"https://later:1": now + timedelta(days=2)}, now)
    assert warning.startswith("https://n[1-3]:1: the first of the TLS certificates ends in 2h00m (2026-")


def test_a_certificate_that_has_expired(certificate, tmp_path):
    cert, key = certificate
    expired = tmp_path / "expired.pem"
    again = ["openssl", "x509", "-in", cert, "-signkey", key, "-days", "-1", "-out", expired]
    subprocess.run(again, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(expired, key)
    with StubServer(tls=tls) as stub, pytest.raises(ServerError, match=r"expired .*valid now") as caught:
        discover([stub.url], "sglang", Access(ca_file=expired), 20)
    assert "--ca-file" not in str(caught.value)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("by", ["OpenSSL's alert", "a close, as by uvicorn"])
def test_a_server_that_demands_a_client_certificate(tls, certificate, version, by):
    def alert(connection):
        with tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as secure:
            with suppress(ssl.SSLError):
                secure.do_handshake()
            while socket.socket.recv(secure, 1 << 16):  # a close with unread bytes would be a reset
                pass

    tls.maximum_version, tls.verify_mode = version, ssl.CERT_REQUIRED
    tls.load_verify_locations(certificate[0])
    with listening(alert) as url, StubServer(tls=tls) as stub, pytest.raises(ServerError) as caught:
        url = url.replace("http:", "https:") if by == "OpenSSL's alert" else stub.url
        discover([url], "sglang", Access(ca_file=certificate[0]), 20)
    assert "client certificate" in str(caught.value)


@pytest.mark.parametrize("behind", ["the handshake", "the connection"])
def test_a_proxy_whose_tls_server_is_dead(tls, certificate, behind):
    """It closes; --wait-for-servers waits for the server, which may be starting."""

    def close(connection):
        if behind == "the handshake":
            with tls.wrap_socket(connection, server_side=True) as secure:
                read_request(secure)
        else:
            connection.recv(1 << 16)

    with listening(close) as url, pytest.raises(NotReadyError) as caught:
        discover([url.replace("http:", "https:")], "sglang", Access(ca_file=certificate[0]), 20)
    remedies = str(caught.value).partition("); ")[2].split("; ")
    assert remedies[0] == "start the server or correct --server-url" and "certificate" in remedies[-1]


@pytest.mark.parametrize(
    ("status", "header", "body", "words"),
    [
        (
            308,
            b"Location: https://llm.test/health?token=1\r\n",
            b"",
            "a redirect to https://llm.test/health, ",
        ),
        (400, b"", b"<center>The plain HTTP request was sent to HTTPS port</center>", "begins with https://"),
        (400, b"", b"Client sent an HTTP request to an HTTPS server.\n", "begins with https://"),
        (400, b"", b"<center>No required SSL certificate was sent</center>", "client certificate"),
    ],
)
def test_what_a_gateway_says_is_not_a_server_that_starts(status, header, body, words):
    """nginx's and Go's words; --wait-for-servers does not wait for another answer."""

    def answer(connection):
        read_request(connection)
        head = b"HTTP/1.1 %d -\r\n%bContent-Length: %d\r\n\r\n" % (status, header, len(body))
        connection.sendall(head + body)

    with listening(answer) as url, pytest.raises(ServerError) as caught:
        discover([url], "sglang", Access(), 20)
    assert words in str(caught.value) and not isinstance(caught.value, NotReadyError)


def test_a_gateway_that_does_not_know_the_name(tls):
    tls.sni_callback = lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    with listening(lambda connection: tls.wrap_socket(connection, server_side=True)) as url:
        text = refusal(url.replace("http://127.0.0.1", "https://localhost"))
    assert "use a name of the server's certificate" in text


def test_tls_to_a_plain_server():
    def plain(connection):
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with listening(plain) as url:
        assert "http://" in refusal(url.replace("http:", "https:"))


# What granian 2.8.9 with --http 2 sends at once on each connection, without and with TLS.
SETTINGS = bytes.fromhex("0000180400000000000003000000c8000400100000000500004000000601000000")
NO_PROTOCOL = bytes.fromhex("15030300020278")


@pytest.mark.parametrize(
    ("said", "scheme", "words"),
    [(SETTINGS, "http:", "does not speak HTTP/1.1"), (NO_PROTOCOL, "https:", "HTTP/2 alone")],
)
def test_a_server_of_http_2_alone(said, scheme, words):
    """It is said at once, also where servers that start are waited for."""

    def speak(connection):
        connection.recv(1000)
        connection.sendall(said)
        connection.recv(1)

    with listening(speak) as url:
        text = refusal(url.replace("http:", scheme))
        assert words in text and "start the server" not in text


def test_a_tls_handshake_without_an_answer(caplog, monkeypatch):
    """Said while it is waited for, and in the end: a server that starts may be as silent."""
    monkeypatch.setattr(info_client, "_FIRST_NOTICE_S", 0.2)
    with (
        # A greeting with post-quantum keys is longer than 1500 bytes.
        listening(lambda connection: connection.recv(1 << 16) and connection.recv(1)) as url,
        caplog.at_level("INFO", "mlperf"),
        pytest.raises(ServerError, match=r"TLS handshake .* http://"),
    ):
        discover([url.replace("http:", "https:")], "sglang", Access(), 2)
    assert "does not answer the TLS handshake, at most 2 s" in caplog.text


@pytest.mark.parametrize("content", ["", "no certificate", None])
def test_a_ca_file_without_a_certificate(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"--ca-file .*ca\.pem: .*PEM"):
        discover(["https://127.0.0.1:1"], "sglang", Access(ca_file=path), 20)
