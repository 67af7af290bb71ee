"""Servers with chosen information pages, for tests of what comes before the first query."""

import json

import pytest

from harness.config.deadlines import PreflightLimits
from harness.errors import ServerError
from harness.record.settled import ServerInfo
from sut.client.endpoint import Access, resolve_endpoint
from sut.servers.discovery import discover, find_servers
from tests.kit import listening, parameters, read_request, wire_of

PARAMETERS = parameters(max_new_tokens=10240)
# What SGLang 0.5.23 and llama.cpp (xllamacpp) say of themselves, cut to what matters.
LLAMA_MODELS = {"id": "tiny.gguf", "owned_by": "llamacpp", "meta": {"n_vocab": 201088, "n_ctx_train": 131072}}
LLAMA_PROPS = {"default_generation_settings": {"n_ctx": 512}, "total_slots": 16, "build_info": "b1-abc"}
LLAMA_PROPS["model_path"] = "/m/tiny.gguf"


def pages(table, key=None):
    """A server of ``table``: path to JSON, bytes, a status, or both; all but /health asks for ``key``."""

    def serve(connection):
        while request := read_request(connection):
            path = request[0].split()[1].decode()
            allowed = key is None or path == "/health" or f"Bearer {key}".encode() in request[0]
            found = table.get(path, 404) if allowed else 401
            if not isinstance(found, tuple):
                found = (found, b"") if isinstance(found, int) else (200, found)
            status, body = found
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.sendall(b"HTTP/1.1 %d -\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))

    return listening(serve)


def fact_of(table, backend="sglang"):
    """What a healthy server with these pages says of itself."""
    with pages({"/health": b""} | table) as url:
        (fact,) = discover([url], backend, Access(), 20)
    return fact


def refusal(urls, backend="sglang", key=None, seconds=20.0, kind=ServerError):
    """The line of the error with which ``discover`` refuses; ``seconds`` is --preflight-timeout."""
    with pytest.raises(kind) as caught:
        discover([urls] if isinstance(urls, str) else urls, backend, Access(key), seconds)
    text = str(caught.value)
    assert "\n" not in text
    return text


def find(urls, wait=0.0, least=None, seconds=20.0):
    """``find_servers`` with --wait-for-servers, --min-replicas and --preflight-timeout."""
    limits = PreflightLimits(questions_s=seconds, trial_s=20, wait_s=wait, min_replicas=least)
    return find_servers(urls, "sglang", Access(), limits)


def endpoints(*stubs, wire="sglang"):
    path = wire_of(wire).path
    return [resolve_endpoint(getattr(stub, "url", stub), path, Access()) for stub in stubs]


def facts(url, wire="sglang", **more):
    return ServerInfo(url=url, wire=wire, engine="x", **more)
