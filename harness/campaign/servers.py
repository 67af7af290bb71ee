"""The servers that a campaign starts: their command, their death, and what is left of a killed campaign's."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness.campaign import guard
from harness.campaign.campaign_file import Servers
from harness.text import LONG_LINE, duration, printable

_LINES = 12  # of the log that are shown
_TAIL_BYTES = 1 << 14
_MORE_S = 30.0


@dataclass(slots=True)
class ServerCommand:
    """The servers' process while a campaign runs; at most one command at a time."""

    folder: Path
    """of the campaign; it also names its processes, so that a later campaign in it finds them"""
    work: Path
    """where the command runs"""
    servers: Servers | None = None
    grace_s: float = guard.GRACE_S
    """between SIGTERM and SIGKILL"""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _began: float = 0.0

    @property
    def log(self) -> Path:
        """What the command prints."""
        return self.folder / "server.log"

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process to watch; None where the servers are not the campaign's."""
        return self._process

    def use(self, servers: Servers) -> None:
        """Have these servers started, unless they run; their readiness is what a run waits for."""
        if servers == self.servers and self._process is not None and self._process.poll() is None:
            return
        self.stop()
        self.servers = servers
        if servers.command is None:
            return
        guard.stop(str(self.folder), self.grace_s)  # those of a campaign that was killed
        if self.log.exists():
            self.log.replace(self.log.with_name(f"{self.log.name}.1"))
        words = (self.folder, self.log, os.getpid(), self.grace_s)
        program = [sys.executable, "-I", guard.__file__, *map(str, words)]
        self._began = time.monotonic()
        # A session of its own: Ctrl-C is for the run, and then the servers are stopped.
        self._process = subprocess.Popen([*program, servers.command], cwd=self.work, start_new_session=True)

    def obituary(self) -> str:
        """How the servers ended, with the last lines of their log."""
        assert self._process is not None and self.servers is not None
        code, lived = self._process.wait(), duration(time.monotonic() - self._began)
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the server command ended after {lived} with {ended}: {self.servers.command}"

    def last_lines(self) -> list[str]:
        """The end of the log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                tail = file.read().decode(errors="replace")
        except OSError:
            return []
        return [f"| {printable(line, LONG_LINE)}" for line in tail.splitlines()[-_LINES:]]

    def stop(self) -> None:
        """Stop what was started."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(self.grace_s + _MORE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        guard.stop(str(self.folder), 0)
