"""Questions before the first query: each unusable server is refused in words, and soon."""

import gzip
import socket
import time

import pytest

from harness.errors import ConfigError, ServerError
from sut.servers.discovery import discover
from sut.servers.info_client import InfoClient
from tests.kit import listening
from tests.stub import Facts, StubServer, refused_url
from tests.sut.pages import LLAMA_MODELS, LLAMA_PROPS, NOT_SGLANG, fact_of, pages, refusal


def test_sglang_facts():
    said = Facts(model="openai/gpt-oss-120b", context_length=9000, dp_size=8, stream_interval=4)
    with StubServer(facts=said) as stub:
        (fact,) = discover([stub.url], "sglang", None, 20)
    assert (fact.engine, fact.wire, fact.model, fact.version) == (
        "SGLang",
        "sglang",
        "gpt-oss-120b",
        "0.5.23",
    )
    assert (fact.context_length, fact.dp_size, fact.stream_interval) == (9000, 8, 4)
    assert fact.max_running_requests == 8 * 512
    assert fact.settings == {"tp_size": 1, "dp_size": 8, "max_running_requests": 512}


def test_sglang_facts_by_its_old_paths():
    fact = fact_of({"/get_model_info": {"model_path": "m"}, "/get_server_info": {"version": "0.4"}})
    assert (fact.model, fact.version, fact.context_length, fact.dp_size) == ("m", "0.4", None, None)


@pytest.mark.parametrize(("path", "words"), [("/v1", "name the server without /v1"), ("", "not ready")])
def test_a_url_with_the_path_of_an_api(path, words):
    with pages({}) as (url, _), pytest.raises(ServerError, match=f"answered 404, .*{words}"):
        discover([url + path], "vllm", None, 20)


@pytest.mark.parametrize("value", ["8", 8.0, True, None, [8]])
def test_facts_of_a_wrong_type_are_not_believed(value):
    info = {"dp_size": value, "version": 5}
    fact = fact_of({"/model_info": {"model_path": "m"}, "/server_info": info})
    assert (fact.dp_size, fact.version) == (None, None)


# What SGLang 0.5.23 reports: recorded with --dp 2; by its sources where memory allows less than asked, and
# with --dp 8 --tp 8 --enable-dp-attention. Then versions before, with and without the limit in force.
CAPACITIES = [
    ({"dp_size": 2, "attn_dp_size": 1, "max_running_requests": 128}, [128, 128], 2, 256),
    ({"dp_size": 2, "attn_dp_size": 1, "max_running_requests": 300}, [128, 100], 2, 228),
    ({"dp_size": 1, "attn_dp_size": 1, "max_running_requests": None}, [2048], 1, 2048),
    (
        {"dp_size": 1, "attn_dp_size": 8, "enable_dp_attention": True, "max_running_requests": 512},
        [64],
        8,
        512,
    ),
    ({"dp_size": 8, "enable_dp_attention": True, "max_running_requests": 512}, [64], 8, 512),
    ({"dp_size": 8, "enable_dp_attention": True, "max_running_requests": 512}, [], 8, 512),
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


@pytest.mark.parametrize("backend", ["pytorch", "sglang"])
def test_facts_of_the_pytorch_server(backend):
    info = {
        "model_path": "deepseek-ai/DeepSeek-R1",
        "served_model_name": "deepseek-r1",
        "revision": "56d4cbbb4d29f4355bab4b9a39ccb717a14ad5ad",
        "version": "transformers 5.19.0, torch 2.13.0+cpu",
        "context_length": 163840,
        "vocab_size": 129280,
        "tp_size": 8,
        "dtype": "bfloat16",
        "max_running_requests": 16,
        "engine": "PyTorch",
        "dp_size": 1,
    }
    fact = fact_of({"/model_info": info, "/server_info": info}, backend)
    assert (fact.engine, fact.wire, fact.version) == ("PyTorch", "sglang", info["version"])
    assert (fact.model, fact.model_path) == ("deepseek-r1", "deepseek-ai/DeepSeek-R1")
    assert (fact.revision, fact.vocabulary_size) == (info["revision"], 129280)
    assert (fact.context_length, fact.max_running_requests) == (163840, 16)
    assert fact.settings.items() >= {"tp_size": 8, "dtype": "bfloat16"}.items()


def test_the_revision_of_a_hugging_face_cache():
    path = "/root/.cache/huggingface/hub/models--openai--gpt-oss-120b/snapshots/" + "b5c939de" * 5
    fact = fact_of({"/model_info": {"model_path": path}, "/server_info": {}})
    assert (fact.model_path, fact.revision) == (path, "b5c939de" * 5)


def test_vllm_engines_are_counted_by_their_metrics():
    """vLLM reports neither its data-parallel size nor max_num_seqs; its metrics come once for each engine."""
    line = 'vllm:num_requests_running{{engine="{}",model_name="openai/gpt-oss-120b"}} 0.0\n'
    metrics = "# TYPE vllm:num_requests_running gauge\n" + "".join(map(line.format, range(8)))
    model = {"id": "gpt-oss", "owned_by": "vllm", "root": "openai/gpt-oss-120b"}
    fact = fact_of({"/v1/models": {"data": [model]}, "/metrics": metrics.encode()}, "openai")
    assert (fact.dp_size, fact.max_running_requests) == (8, None)


@pytest.mark.parametrize("backend", ["vllm", "openai"])
def test_vllm_facts(backend):
    model = {"id": "gpt-oss", "owned_by": "vllm", "root": "openai/gpt-oss-120b", "max_model_len": 4096}
    fact = fact_of({"/v1/models": {"data": [model]}, "/version": {"version": "0.11.0"}}, backend)
    assert (fact.engine, fact.wire, fact.version, fact.context_length) == ("vllm", "openai", "0.11.0", 4096)
    assert (fact.served_name, fact.model) == ("gpt-oss", "openai/gpt-oss-120b")


@pytest.mark.parametrize(
    ("backend", "owner", "wire"),
    [
        ("trtllm", "tensorrt_llm", "trtllm"),
        ("openai", "tensorrt_llm", "trtllm"),
        ("trtllm", "a-gateway", "trtllm"),
    ],
)
def test_tensorrt_llm_facts(backend, owner, wire):
    """Its model card has no more than these members; /metrics takes its statistics away and is not asked."""
    model = {"id": "gpt-oss-120b", "object": "model", "created": 1795316214, "owned_by": owner}
    table = {"/health": b"", "/v1/models": {"data": [model]}, "/version": {"version": "1.2.0"}}
    with pages(table) as (url, asked):
        (fact,) = discover([url], backend, None, 20)
    assert (fact.engine, fact.wire, fact.version, fact.context_length) == (owner, wire, "1.2.0", None)
    assert (fact.served_name, fact.model, fact.model_path) == ("gpt-oss-120b", "gpt-oss-120b", None)
    assert "/metrics" not in asked


def test_llamacpp_facts():
    fact = fact_of({"/v1/models": {"data": [LLAMA_MODELS]}, "/props": LLAMA_PROPS}, "openai")
    assert (fact.wire, fact.model, fact.context_length, fact.vocabulary_size) == (
        "llamacpp",
        "tiny.gguf",
        512,
        201088,
    )
    assert (fact.max_running_requests, fact.version) == (16, "b1-abc")


# -- who is refused, and how


def test_nothing_listens():
    with refused_url() as url:
        text = refusal(url)
    assert text.startswith(f"{url}: not reachable")
    assert "start the server or correct --server-url" in text


@pytest.mark.parametrize(
    ("backend", "table", "wording"),
    [
        ("sglang", {}, "/health answered 404, expected 200"),
        ("sglang", {"/health": 503}, "/health answered 503, expected 200; the server is not ready"),
        ("sglang", {"/health": 302}, "/health answered 302"),
        ("sglang", {"/health": b""}, NOT_SGLANG),
        ("sglang", {"/health": b"", "/model_info": {"name": "x"}}, NOT_SGLANG),
        (
            "sglang",
            {"/health": b"", "/v1/models": {"data": [{"id": "m"}]}},
            "use --backend vllm, trtllm or openai",
        ),
        ("pytorch", {"/health": b""}, "nor ours of PyTorch"),
        ("vllm", {"/health": b""}, "/v1/models lists no model"),
        ("openai", {"/health": b""}, "/v1/models lists no model"),
        ("openai", {"/health": b"", "/v1/models": {"data": []}}, "/v1/models lists no model"),
        ("openai", {"/health": b"", "/v1/models": {"data": ["m"]}}, "/v1/models lists no model"),
        ("openai", {"/health": b"", "/v1/models": b"<html>"}, "/v1/models lists no model"),
        ("sglang", {"/health": 401}, "401, not authorized; put the server's key into SGLANG_API_KEY"),
        ("openai", {"/health": 401}, "401, not authorized; put the server's key into SGLANG_API_KEY"),
    ],
)
def test_wrong_servers(backend, table, wording):
    with pages(table) as (url, _):
        text = refusal(url, backend)
    assert text.startswith(f"{url}: ")
    assert wording in text


@pytest.mark.parametrize("backend", ["sglang", "openai"])
@pytest.mark.parametrize("key", [None, "wrong"])
def test_a_key_is_asked_for_although_health_is_open(backend, key):
    """As SGLang and vLLM do it."""
    table = {"/health": b"", "/model_info": {"model_path": "m"}, "/v1/models": {"data": [{"id": "m"}]}}
    with pages(table, key="right") as (url, _):
        assert "401, not authorized; put the server's key into" in refusal(url, backend, key)
        assert discover([url], backend, "right", 20)[0].model == "m"


def test_the_key_is_in_no_message():
    with pages({}, key="other") as (url, _), refused_url() as dead:
        for place in (url, dead):
            assert "sk-secret" not in refusal(place, key="sk-secret")


@pytest.mark.parametrize(
    ("evidence", "remedy"), [("", "--preflight-timeout"), ("lost packets", "lost packets")]
)
def test_a_server_that_says_nothing(monkeypatch, evidence, remedy):
    """Where the kernel has evidence against the network, that is the remedy."""
    monkeypatch.setattr("sut.servers.info_client.TcpInfo.evidence", lambda info: evidence)
    with listening(lambda connection: connection.recv(1 << 20) and time.sleep(20)) as url:
        text = refusal(url, seconds=0.5)
    assert "/health gave no answer within 0.5 s" in text
    assert remedy in text


def test_a_wait_is_named(caplog, monkeypatch):
    """After a second, but a busy machine may let that one and the end of the wait pass together."""
    monkeypatch.setattr("sut.servers.info_client._FIRST_NOTICE_S", 0.0)
    with (
        caplog.at_level("INFO", "mlperf"),
        listening(lambda connection: connection.recv(1 << 20) and time.sleep(20)) as url,
    ):
        refusal(url, seconds=2.0)
    (message,) = caplog.messages
    assert f"{url}/health" in message
    assert "--preflight-timeout" in message


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
        assert discover([url], "sglang", None, 60)[0].model == "m"


def test_a_server_that_answers_health_and_then_says_nothing():
    def answer(connection):
        while b"GET /health" in connection.recv(1 << 16):
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        time.sleep(20)

    with listening(answer) as url:
        assert "/model_info" in refusal(url, seconds=3)


def test_time_that_is_over_before_the_connection_is_there(monkeypatch):
    """The thread that asks may stand still in between; nothing else ends headers that trickle."""

    def trickle(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
        for _ in range(60):
            connection.sendall(b"y")
            time.sleep(0.05)
        connection.sendall(b"\r\ncontent-length: 0\r\n\r\n")

    monkeypatch.setattr("sut.servers.info_client.threading.Timer", AtOnce)
    with listening(trickle) as url, InfoClient(url, None, 60.0) as client, pytest.raises(ServerError):
        client.ask("/health")


class AtOnce:
    """A timer that is over at its start."""

    def __init__(self, seconds, call):
        self.start, self.cancel = call, lambda: None


def test_compressed_answers():
    """As a proxy in front of the server gives them to a client that offers to take them."""
    pages_of = {b"/health": b"", b"/model_info": b'{"model_path":"m"}', b"/server_info": b'{"dp_size":8}'}

    def answer(connection):
        while request := connection.recv(1 << 16):
            body = pages_of.get(request.split()[1], b"{}")
            coding = b""
            if b"gzip" in request.lower():
                body, coding = gzip.compress(body), b"content-encoding: gzip\r\n"
            connection.sendall(
                b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (coding, len(body), body)
            )

    with listening(answer) as url:
        (fact,) = discover([url], "sglang", None, 20)
    assert (fact.model, fact.dp_size) == ("m", 8)


def test_something_that_speaks_no_http():
    def greet(connection):
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        connection.recv(1000)
        connection.shutdown(socket.SHUT_RDWR)

    with listening(greet) as url:
        assert refusal(url).startswith(f"{url}: not reachable")


@pytest.mark.parametrize(
    ("other", "wording"),
    [
        (Facts(served_name="llama"), "serves gpt-oss-120b"),
        (Facts(version="0.5.22"), "0.5.22"),
        (Facts(version=None), "without a version"),
    ],
)
def test_replicas_that_differ(other, wording):
    with StubServer() as a, StubServer(facts=other) as b:
        text = refusal([a.url, b.url])
    assert "replicas differ" in text
    assert "one run needs equal replicas" in text
    assert wording in text
    assert a.url in text and b.url in text


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    with StubServer() as stub, refused_url() as dead:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, dead)
        assert discover([stub.url], "sglang", None, 20)


def test_tls_with_the_certificate_that_the_request_path_trusts(tls, certificate, monkeypatch):
    cert = certificate[0]
    with StubServer(tls=tls) as stub:
        text = refusal(stub.url)
        assert "certificate" in text and "--ca-file" in text and "start the server" not in text
        assert "--ca-file" in refusal(stub.url.replace("https:", "HTTPS:"))
        assert discover([stub.url], "sglang", None, 20, cert)
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        assert discover([stub.url], "sglang", None, 20)


def test_tls_under_another_name(tls, certificate):
    with (
        StubServer(tls=tls) as stub,
        pytest.raises(ServerError, match=r"Hostname mismatch.*in --server-url"),
    ):
        discover([stub.url.replace("127.0.0.1", "localhost")], "sglang", None, 20, certificate[0])


def test_tls_to_a_plain_server():
    def plain(connection):
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with listening(plain) as url:
        assert "begins with http://" in refusal(url.replace("http:", "https:"))


@pytest.mark.parametrize("content", ["", "no certificate", None])
def test_a_ca_file_without_a_certificate(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"--ca-file .*ca\.pem: .*PEM"):
        discover(["https://127.0.0.1:1"], "sglang", None, 20, path)
