"""Real routers before the embedded engine: what passes, what a cancellation and a dead engine become."""

import json
import os
import re
import signal
import subprocess
from urllib.request import urlopen

import pytest

from harness.dataset import tokenizer
from sut.servers.embedded.engine import EmbeddedEngine
from sut.servers.embedded.tiny_models import tiny_model
from tests.engines import routers
from tests.engines.sglang_server import CACHE
from tests.engines.test_wires import SAID, TEXTS, asked, prompts_of
from tests.kit import wait_until
from tests.runs import command, quick_conf, write_dataset

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

LONG = 400
IN_FLIGHT = len(TEXTS)


@pytest.fixture(scope="module", params=routers.KINDS, ids=lambda kind: kind.name)
def kind(request):
    if os.environ.get("HARNESS_SGLANG") == "1" and request.param.name == "vllm-router":
        try:
            routers.install()
        except subprocess.CalledProcessError as error:
            pytest.fail(f"vllm-router cannot be installed here: {error.stderr}")
    if not request.param.is_there:
        pytest.skip(f"no environment {request.param.venv}: see tests/engines/routers.py")
    return request.param


@pytest.fixture
def before(kind, tmp_path):
    """Starts a router before these URLs, for the length of a test."""
    return lambda *urls: routers.RouterProcess(kind, urls, tmp_path / "router.log")


def test_a_chat_through_a_router(before, scripted_llama, tmp_path):
    """The answers are the server's own, and one warning names the router."""
    with before(scripted_llama.url) as router:
        run = asked(tmp_path, router.url, "chat", prompts_of("chat"))
    assert run.accuracy_log == dict.fromkeys(range(len(TEXTS)), SAID)
    assert run.record["servers"][0]["router"] is not None
    assert sum("in front" in warning for warning in run.record["warnings"]) == 1


def test_a_cancellation_reaches_the_engine(kind, before, llama_server, tmp_path):
    """Answers that nobody waits for end: an interrupted run leaves a server free for the next one."""
    already = predicted(llama_server.url)
    with before(llama_server.url) as router:
        run = start(tmp_path, router.url, kind)
        try:
            wait_until(lambda: busy(llama_server.url) == IN_FLIGHT)  # the trial request is one
            run.send_signal(signal.SIGINT)
            said, _ = run.communicate(timeout=300)
            wait_until(lambda: busy(llama_server.url) == 0)
        finally:
            run.kill()
    assert run.returncode == 128 + signal.SIGINT, said
    assert predicted(llama_server.url) - already < (1 + IN_FLIGHT) * LONG


def test_a_dead_engine_behind_a_router_is_a_failure(kind, before, tmp_path):
    """The router's own errors, in the middle of streams and after a 200 too: never a VALID run."""
    model = tiny_model("tiny-gpt-oss", CACHE).path
    with (
        EmbeddedEngine(model, log_dir=tmp_path / "a") as dies,
        EmbeddedEngine(model, log_dir=tmp_path / "b") as lives,
        before(dies.url, lives.url) as router,
    ):
        run = start(tmp_path, router.url, kind)
        try:
            wait_until(lambda: busy(dies.url) + busy(lives.url) == IN_FLIGHT)  # the trial request is one
            os.kill(dies.pid, signal.SIGKILL)
            said, _ = run.communicate(timeout=300)
        finally:
            run.kill()
    assert run.returncode == 4, said
    record = json.loads((tmp_path / "offline/accuracy/run.json").read_text())
    assert record["verdict"]["result"] == "INVALID"
    failures = record["statistics"]["failures"]
    assert failures.keys() & {"truncated", "in_band_error", "http_status", "no_response"}


def start(folder, url, kind):
    """A run with some long answers at once, in the best API that the router passes on."""
    dataset = write_dataset(folder / "p.parquet", [tokenizer.encode(text) for text in TEXTS])
    where = ("--backend", "openai", "--server-url", url, "--api", kind.passes[0], "--stream", "on")
    words = ("--accuracy", *where, "--max-concurrency", IN_FLIGHT, "--input-file", dataset)
    words = command(folder, *words, "--max-new-tokens", LONG, "--user-conf", quick_conf(folder))
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def busy(url):
    """Requests that llama.cpp works on."""
    return sum(slot["is_processing"] for slot in json.loads(page(f"{url}/slots")))


def predicted(url):
    """Tokens that llama.cpp has produced since its start."""
    return float(re.search(r"^llamacpp:tokens_predicted_total ([\d.e+]+)$", page(f"{url}/metrics"), re.M)[1])


def page(url):
    with urlopen(url, timeout=60) as response:
        return response.read().decode()
