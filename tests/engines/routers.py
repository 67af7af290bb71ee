"""Real routers from the registry before real engines.

vllm-router is the smallest (one file of 24 MB; the others take 31 and 37 MB and more packages), it starts in
half a second, and it is the only one that passes on every API, llama.cpp's own too: .ci/run installs it.
HARNESS_ROUTERS names a folder with environments for more: ``python -m venv smg; smg/bin/pip install smg``,
and the same with sglang-router.
"""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.engines.sglang_server import CACHE, HERE, ServerProcess
from tests.kit import free_ports

REQUIREMENTS = HERE / "router_requirements.txt"
OWN = CACHE / "vllm-router"
_FOLDER = os.environ.get("HARNESS_ROUTERS", "")
_START_SECONDS = 60
# Of the package for debugging, and it would need a web framework.
_WITHOUT_PYTHON_ROUTER = """
import sys, types
for name in ("setproctitle", "vllm_router.mini_lb"):
    sys.modules[name] = types.SimpleNamespace(setproctitle=lambda _: None, MiniLoadBalancer=None)
from vllm_router.launch_router import main
main()
"""


@dataclass(frozen=True, slots=True)
class RouterKind:
    """A router: its environment's folder, and its command there."""

    name: str
    command: tuple[str, ...]
    passes: tuple[str, ...]
    """The values of --api that it passes on unchanged."""

    @property
    def venv(self) -> Path:
        return OWN if self.name == "vllm-router" else Path(_FOLDER) / self.name

    @property
    def is_there(self) -> bool:
        return (self.venv / self.command[0]).exists()


KINDS = (
    RouterKind(
        "vllm-router",
        ("bin/python", "-c", _WITHOUT_PYTHON_ROUTER),
        ("generate", "completions", "completions-text", "chat"),
    ),
    RouterKind("smg", ("bin/smg", "launch"), ("completions-text", "chat")),
    RouterKind(
        "sglang-router", ("bin/python", "-m", "sglang_router.launch_router"), ("completions-text", "chat")
    ),
)


def install() -> None:
    """Install vllm-router once, whichever process of the tests comes first.

    Raises subprocess.CalledProcessError.
    """
    stamp, state = OWN / ".installed", REQUIREMENTS.read_text()
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "vllm-router.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == state:
            return
        subprocess.run([sys.executable, "-m", "venv", "--clear", OWN], check=True)
        words = ("-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--requirement")
        subprocess.run(
            [OWN / "bin/python", *words, REQUIREMENTS], check=True, stderr=subprocess.PIPE, text=True
        )
        stamp.write_text(state)


class RouterProcess(ServerProcess):
    """One router before some servers."""

    def __init__(self, kind: RouterKind, urls: Sequence[str], log_path: Path, *arguments: str) -> None:
        port = free_ports(2)
        program, *words = kind.command
        command = [
            *(str(kind.venv / program), *words, "--host", "127.0.0.1", "--port", str(port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(port + 1)),
            *("--policy", "round_robin", *arguments, "--worker-urls", *urls),
        ]
        self._servers = len(urls)
        super().__init__(command, port, dict(os.environ), log_path)

    def _wait_until_healthy(self) -> None:
        """Its own /health says nothing of the servers behind it."""
        deadline = time.monotonic() + _START_SECONDS
        while self._workers() < self._servers:
            code = self.process.poll()
            assert code is None, f"the router ended with exit code {code}: {self.log}"
            assert time.monotonic() < deadline, f"not ready after {_START_SECONDS} s: {self.log}"
            time.sleep(0.1)

    def _workers(self) -> int:
        try:
            # A context of TLS takes 20 ms of CPU, and this asks ten times a second.
            page = httpx.get(f"{self.url}/workers", timeout=5, trust_env=False, verify=False).json()
        except (httpx.TransportError, ValueError):
            return 0
        return sum(worker.get("is_healthy", worker.get("status") == "ready") for worker in page["workers"])
