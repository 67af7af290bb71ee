"""The servers that a campaign starts: their command, their death, and what is left of a killed campaign's."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from harness.campaign import guard
from harness.campaign.campaign_file import Servers
from harness.config.run_options import SERVER_URL
from harness.config.server_urls import default_port
from harness.errors import ServerError
from harness.system_calls import process_descriptor
from harness.text import LONG_LINE, duration, how_it_ended, printable, show

_LINES = 12  # of the log that are shown
_TAIL_BYTES = 1 << 14
_MORE_S = 30.0
_CONNECT_S = 2.0


class ServerCommand(msgspec.Struct):
    """The servers' process while a campaign runs; at most one command at a time."""

    folder: Path
    """of the campaign; it also names its processes, so that a later campaign in it finds them"""
    work: Path
    """where the command runs"""
    servers: Servers | None = None
    grace_s: float = guard.GRACE_S
    """between SIGTERM and SIGKILL"""
    were_ready: bool = False
    """whether a program that asks them has ended well since the command was started: a plan's check, a run"""
    process: subprocess.Popen[bytes] | None = None
    """the one to watch; None where the servers are not the campaign's"""
    _began: float = 0.0

    @property
    def log(self) -> Path:
        """What the command prints."""
        return self.folder / "server.log"

    @property
    def died(self) -> bool:
        """Whether the command has ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def use(self, servers: Servers) -> None:
        """Have these servers started, unless their command runs; their readiness is what a run waits for."""
        before, self.servers = self.servers, servers
        if self.process is not None and before is not None and servers.command == before.command:
            if self.process.poll() is None:
                return
            show(f"{self.obituary()}; it is started again")
        self.stop()
        if servers.command is None:
            return
        guard.stop(str(self.folder), self.grace_s)  # those of a campaign that was killed
        _require_free(servers.url)
        if self.log.exists():
            self.log.replace(self.log.with_name(f"{self.log.name}.1"))
        show(f"Starting the servers, whose log is {self.log}: {servers.command}")
        words = (self.folder, self.log, os.getpid(), self.grace_s)
        program = [sys.executable, "-I", guard.__file__, *map(str, words)]
        self._began, self.were_ready = time.monotonic(), False
        # A session of its own: Ctrl-C is for the run, and then the servers are stopped.
        self.process = subprocess.Popen([*program, servers.command], cwd=self.work, start_new_session=True)

    def obituary(self) -> str:
        """How the servers ended."""
        assert self.process is not None and self.servers is not None
        code, lived = self.process.wait(), duration(time.monotonic() - self._began)
        stays = " (it has to stay as long as its servers: docker run without -d)" if code == 0 else ""
        return f"the server command {how_it_ended(code)} after {lived}{stays}: {self.servers.command}"

    def last_lines(self) -> list[str]:
        """The end of the log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                tail = file.read().decode(errors="replace")
        except OSError:
            return []
        return [f"| {printable(line, LONG_LINE)}" for line in tail.splitlines()[-_LINES:]]

    def more_time(self) -> Iterator[str]:
        """The remedy for servers that live and were never ready: they may only load for longer."""
        if self.servers is not None and not (self.died or self.were_ready):
            yield (
                "Where the servers only need more time: write a longer wait into their table of the TOML, "
                f"now {self.servers.wait}."
            )

    def stop(self) -> None:
        """Stop what was started."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(self.grace_s + _MORE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        guard.stop(str(self.folder), 0)


def first_to_end(processes: Sequence[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Wait until one of the processes ends; the first counts where several have."""
    poller = select.poll()
    descriptors = [process_descriptor(process.pid) for process in processes]
    try:
        for descriptor in descriptors:
            poller.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poller.poll()}
        pairs = zip(processes, descriptors, strict=True)
        return next(process for process, descriptor in pairs if descriptor in ready)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program in order; what it still says stays on the terminal.

    By SIGTERM: SIGINT shows a traceback of a Python that has only begun to start.
    """
    if process.poll() is None:
        process.terminate()
    process.wait()


def _require_free(urls: Sequence[str]) -> None:
    """Raise ServerError where something answers already: a run would measure that."""
    for url in urls or (SERVER_URL,):
        host, port = _address(url)
        if not host:
            continue
        try:
            socket.create_connection((host, port), timeout=_CONNECT_S).close()
        except OSError:
            continue
        raise ServerError(
            f"a server that is not the campaign's listens at {url} already: stop it, or remove the "
            "servers' command from the TOML to use it"
        )


def _address(url: str) -> tuple[str, int]:
    """Host and port; "" where that is not plain from the text, as with several hosts in one."""
    if not url.startswith(("http://", "https://")):
        return "", 0
    try:
        return urlsplit(url).hostname or "", default_port(url)
    except ValueError:
        return "", 0
