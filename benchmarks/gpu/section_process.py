"""The processes of a first run: a command, limited in time, and the server that stays for several."""

import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.section_figures import ERRORS, OUTPUT, SERVER_INFO
from harness.campaign import child
from harness.campaign.campaign_file import Servers
from harness.campaign.servers import ServerCommand
from harness.errors import ServerError
from harness.files import ROOT
from harness.text import duration

_GRACE_S = 20.0  # between Ctrl-C and SIGKILL
_LOOK_S = 0.5
_ANSWER_S = 20.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by a proxy


def executed(words: Sequence[str], folder: Path, limit_s: float, more: Mapping[str, str]) -> int | None:
    """Run a command in the checkout, its output in ``folder``; its exit code, None where it took too long.

    It ends when this process dies. Raises InterruptedRun after it has ended.
    """
    guarded = [sys.executable, "-I", child.__file__, str(os.getpid()), *words]
    with (folder / OUTPUT).open("wb") as output, (folder / ERRORS).open("wb") as errors:
        process = subprocess.Popen(
            guarded,
            cwd=ROOT,
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            process_group=0,
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command as Ctrl-C does, and what is left of it by force."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def last_line(folder: Path) -> str:
    """The last words of a command, on stderr or else on stdout."""
    for name in (ERRORS, OUTPUT):
        lines = (folder / name).read_text(errors="replace").split("\n")
        if found := [line.strip() for line in lines if line.strip()]:
            return found[-1]
    return "it said nothing"


class RandomServer:
    """A backend's run_server.sh with random weights; ``lost`` says why it is not there."""

    def __init__(self, words: Sequence[str], url: str, folder: Path, backend: str) -> None:
        self.words = list(words)
        self.lost = ""
        self._url = url
        self._folder = folder
        self._backend = backend
        self._command = ServerCommand(folder, ROOT, grace_s=_GRACE_S)

    def start(self, limit_s: float) -> None:
        """Return when it answers, and keep what it says of itself. Raises ServerError."""
        if self._backend == "pytorch":
            os.environ.setdefault("PYTHON", _python_of_server())
        began = time.monotonic()
        self._command.use(Servers(command=shlex.join(self.words), url=(self._url,)))
        while (info := self._info()) is None:
            if self.is_gone():
                raise ServerError(self.lost)
            if time.monotonic() - began > limit_s:
                raise ServerError(f"not ready within {duration(limit_s)}; see {self._command.log}")
            time.sleep(_LOOK_S)
        (self._folder / SERVER_INFO).write_bytes(info)

    def is_gone(self) -> bool:
        """Whether it has ended."""
        process = self._command.process
        if process is not None and process.poll() is not None:
            words = (self._command.obituary(), *self._command.last_lines()[-1:])
            self.lost = " ".join(words)
        return bool(self.lost)

    def stop(self) -> None:
        """Stop it and all that it started."""
        self._command.stop()

    def _info(self) -> bytes | None:
        try:
            _DIRECT.open(f"{self._url}/health", timeout=_ANSWER_S).close()  # 503 while it warms up
            with _DIRECT.open(f"{self._url}/server_info", timeout=_ANSWER_S) as answer:
                content: bytes = answer.read()
                return content
        except OSError:
            return None


def _python_of_server() -> str:
    """That of ./setup.sh --backend pytorch, else this one, which sees a machine's own PyTorch."""
    own = ROOT / ".venv-pytorch/bin/python"
    return str(own if own.exists() else sys.executable)
