"""Starts llama.cpp's server in a separate process, waits until it answers, and stops it."""

import contextlib
import errno
import http.client
import os
import select
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import BinaryIO, Self
from urllib.parse import urlsplit

from harness.errors import ConfigError, ServerError
from harness.files import ROOT, lock_file
from harness.machine import usable_cores
from harness.text import how_it_ended

_LOG_NAME = "embedded_engine.log"
_LOG_LINES = 5
_START_SECONDS = 60.0
_STOP_SECONDS = 2.0
_POLL_SECONDS = 0.05


class EmbeddedEngine:
    """A context manager around one engine process.

    Start it from the main thread: Linux ends the engine with the *thread* that started it. The engine
    ignores Ctrl-C and has a session of its own, so only the process that started it ends it; it also ends
    when that process dies.
    """

    def __init__(
        self,
        model_path: Path,
        *,
        log_dir: Path,
        slots: int = 16,
        context_per_slot: int = 4096,
    ) -> None:
        """``slots`` requests run at once, each with ``context_per_slot`` tokens of prompt and answer."""
        self.url = ""
        self.log_path = log_dir.absolute() / _LOG_NAME
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            *(sys.executable, "-m", "sut.servers.embedded.serve", str(model_path.absolute())),
            *("--slots", str(slots)),
            *("--context-per-slot", str(context_per_slot)),
            *("--threads", str(max(1, usable_cores() - 1))),  # the client needs one
        ]

    @property
    def pid(self) -> int | None:
        """The engine's process id, None while it is not running."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start and wait until /health answers. Raises ServerError, in most cases with the end of its log."""
        process = self._process = self._spawn()
        deadline = time.monotonic() + _START_SECONDS
        try:
            self.url = self._read_url(process, deadline)
            while not _is_healthy(self.url):
                self._check_alive(process, deadline)
                time.sleep(_POLL_SECONDS)
        except BaseException:  # also Ctrl-C while waiting: no process may be left
            self.stop()
            raise

    def death(self) -> str:
        """The end of an engine that was not stopped; "" while it runs."""
        if self._process is None or self._process.poll() is None:
            return ""
        return str(self._failure(how_it_ended(self._process.returncode)))

    def stop(self) -> None:
        """End the engine within 2 seconds, by SIGKILL if necessary. Idempotent."""
        process, self._process, self.url = self._process, None, ""
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _spawn(self) -> subprocess.Popen[bytes]:
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            with self._open_log() as log:
                return subprocess.Popen(
                    self._command,
                    cwd=ROOT,
                    env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
                    stdin=subprocess.PIPE,  # closing it ends the engine
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise ConfigError(
                f"{self.log_path}: cannot start the embedded engine: {error.strerror}"
            ) from error

    def _open_log(self) -> BinaryIO:
        """The log, under another name where an engine of another run, or another user, has this one."""
        for number in count(2):
            if not self.log_path.exists() or os.access(self.log_path, os.W_OK):
                log = self.log_path.open("ab")
                try:
                    lock_file(log)  # until the engine ends, which inherits it
                    break
                except BlockingIOError:
                    log.close()
            self.log_path = self.log_path.with_name(f"{Path(_LOG_NAME).stem}_{number}.log")
        log.truncate(0)
        return log

    def _read_url(self, process: subprocess.Popen[bytes], deadline: float) -> str:
        assert process.stdout is not None
        while not select.select([process.stdout], [], [], _POLL_SECONDS)[0]:
            self._check_alive(process, deadline)
        url = process.stdout.readline().decode().strip()
        if not url:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            raise self._failure(how_it_ended(process.returncode))
        return url

    def _check_alive(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        if process.poll() is not None:
            raise self._failure(how_it_ended(process.returncode))
        if time.monotonic() > deadline:
            raise self._failure(f"is not ready after {_START_SECONDS:g} s")

    def _failure(self, what: str) -> ServerError:
        lines = self.log_path.read_text(errors="replace").split("\n")
        last = " | ".join([line.strip() for line in lines if line.strip()][-_LOG_LINES:])
        return ServerError(
            f"the embedded engine, which this program started, {what}; "
            f"{self.log_path} ends with: {last or 'nothing'}"
        )


def _is_healthy(url: str) -> bool:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except OSError as error:
        if error.errno == errno.ENETUNREACH:
            raise ServerError(
                f"{url}: {error.strerror}: this machine's loopback interface is down, as in a new network "
                "namespace; ip link set lo up"
            ) from None
        return False
    finally:
        connection.close()
