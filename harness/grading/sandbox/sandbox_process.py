"""The grader's side of a sandbox: starts a warden, sends it solutions, and survives its death."""

import contextlib
import select
import subprocess
from collections.abc import Callable
from types import TracebackType

from harness.errors import GradingError
from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.jail.fork_server import CONFINEMENT_FAILED
from harness.grading.sandbox.jail.warden import DIRTY, FULL, RUNNING
from harness.grading.sandbox.tiers import Sandbox, Tier
from harness.grading.sandbox.users import NO_CHANGE, own_user

START_LIMIT_S = 60.0
_SILENCE_S = 60.0  # a warden reports every second while a test runs
_STOP_LIMIT_S = 5.0


class SandboxLostError(Exception):
    """Raised when the warden died or does not answer; the next job starts a new one."""


class SandboxProcess:
    """One warden. Use it in the thread that made it: it dies with that thread."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._process: subprocess.Popen[bytes] | None = None
        self._is_aborted = False
        self.processor_share = 1.0
        """the share of a processor that the running test used lately; 1 until that is known"""
        self._user = contextlib.ExitStack()  # holds the user id while the warden runs

    def __enter__(self) -> "SandboxProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._end()
        self.stop()

    @property
    def tier(self) -> Tier:
        """The kind of sandbox."""
        return self._sandbox.tier

    def abort(self) -> None:
        """End it from another thread, in which every later use raises SandboxLostError."""
        self._is_aborted = True
        process = self._process
        if process is not None:
            process.kill()

    def begin(self, job: protocol.Job) -> None:
        """Send the solution for the next test runs; a dirty sandbox is renewed. Raises SandboxLostError."""
        if self._is_aborted:
            raise SandboxLostError("grading was aborted")
        if self._process is None or not self._offer(job):
            self.stop()
            self._start()
            if not self._offer(job):
                raise SandboxLostError("a new sandbox took no job")

    def attempt(
        self, test_run: protocol.TestRun, more_memory: Callable[[], None] = lambda: None
    ) -> protocol.TestRunResult:
        """Run one test. Raises SandboxLostError when there is no answer.

        ``more_memory`` returns when a program that has filled its share, and is stopped, may have more.
        """
        fields: dict[str, object] = {"limit_s": test_run.limit_s, "memory": test_run.memory}
        self.processor_share = 1.0
        header, output = self._ask("test_run", fields, test_run.text)
        while header["kind"] in (RUNNING, FULL):
            self.processor_share = float(str(header.get("share", 0)))
            if header["kind"] == FULL:
                more_memory()
                header, output = self._ask(FULL, {}, "")
            else:
                header, output = self._receive(_SILENCE_S)
        status, detail = str(header["status"]), str(header["detail"])
        if detail.startswith(CONFINEMENT_FAILED):
            raise SandboxLostError(detail)
        return protocol.TestRunResult(status, detail, output)

    def stop(self) -> None:
        """Kill the warden and, with it, everything in its sandbox."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait(_STOP_LIMIT_S)
        self._user.close()

    def _end(self) -> None:
        """Let an idle warden end by itself: the CPU time of its children then counts as this process's."""
        if self._process is not None and not self._is_aborted:
            assert self._process.stdin is not None
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_LIMIT_S)

    def _offer(self, job: protocol.Job) -> bool:
        try:
            fields: dict[str, object] = {"mode": job.mode, "function": job.function}
            header, _ = self._ask("job", fields, job.code)
        except SandboxLostError:
            return False
        return header["kind"] != DIRTY

    def _start(self) -> None:
        is_confined = self.tier is not Tier.UNSANDBOXED
        uid = self._user.enter_context(own_user()) if is_confined else NO_CHANGE
        try:
            self._process = subprocess.Popen(
                (*self._sandbox.command, str(uid)),
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._sandbox.environment,
                cwd="/",
            )
        except OSError as error:
            self._user.close()
            raise GradingError(f"{self._sandbox.tier}: cannot start: {error}") from error
        try:
            self._receive(START_LIMIT_S)
        except SandboxLostError as lost:
            reason = self._startup_error() or f"{lost}; repeat the command"
            self.stop()
            raise GradingError(f"{self._sandbox.tier}: did not start: {reason}") from lost
        if self._is_aborted:
            self.stop()
            raise SandboxLostError("grading was aborted")

    def _startup_error(self) -> str:
        assert self._process is not None and self._process.stderr is not None
        self._process.kill()
        lines = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def _ask(self, kind: str, fields: dict[str, object], text: str) -> tuple[dict[str, object], bytes]:
        assert self._process is not None and self._process.stdin is not None
        try:
            protocol.send(self._process.stdin.fileno(), kind, fields, text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise SandboxLostError(f"the warden has ended: {error}") from error
        return self._receive(_SILENCE_S)

    def _receive(self, limit_s: float) -> tuple[dict[str, object], bytes]:
        assert self._process is not None and self._process.stdout is not None
        fd = self._process.stdout.fileno()
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        if not poller.poll(limit_s * 1000):
            raise SandboxLostError(f"no answer in {limit_s:.0f} s")
        try:
            return protocol.receive(fd)
        except EOFError as error:
            raise SandboxLostError("the warden died") from error
