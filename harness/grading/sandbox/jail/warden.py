"""The warden: a trusted process inside the sandbox that forks a confined child for every test run.

It holds one solution and one test input at a time, never an expected output. Its children may not
signal, trace or open it. Python and its modules are loaded once, so that a test run costs a fork instead
of the start of an interpreter.
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.grading.sandbox.jail import official, preamble, protocol, seccomp, strict, watch
from harness.grading.sandbox.jail.confine import Confinement, confine

READY = "ready"
DIRTY = "dirty"  # something lies in the scratch folder: the sandbox must be renewed
_PR_SET_DUMPABLE, _PR_SET_PDEATHSIG = 4, 1
_OUT_OF_TIME = (protocol.TIMEOUT, protocol.WAITED)
_LATER_MODULES = ("shutil", "subprocess", "unittest.mock")  # that the official runner's rules import
# Loaded for the first solution that names one: they make every fork dearer.
_OPTIONAL_MODULES = ("numpy", "sympy", "sympy.parsing.sympy_parser", "pylatexenc.latex2text")
_STDERR_TAIL = 2_000
_FIRST_FREE_FD = 10  # the warden's own descriptors; a child closes them all


@dataclass(frozen=True, slots=True)
class WardenConfig:
    """The confinement of the warden's children and the folder that they may write to."""

    confinement: Confinement
    scratch: str

    @classmethod
    def from_json(cls, text: str) -> "WardenConfig":
        """Inverse of ``json.dumps(asdict(config))``."""
        fields = json.loads(text)
        return cls(Confinement(**fields["confinement"]), fields["scratch"])


class Runner(Protocol):
    """Runs the test runs of one job."""

    def attempt(self, test_run: protocol.TestRun) -> protocol.TestRunResult:
        """Try one test."""

    def close(self) -> None:
        """End the process that still runs, if there is one."""


def main() -> None:
    """Serve jobs and test runs on stdin/stdout until the grader closes them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    config = WardenConfig.from_json(sys.argv[1])
    inbox, outbox = _take_control_pipes()
    _load_modules()
    protocol.send(outbox, READY, {})
    with contextlib.suppress(EOFError, BrokenPipeError):
        _serve(config, libc, inbox, outbox)


def _take_control_pipes() -> tuple[int, int]:
    fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD) for fd in (0, 1)]
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    return fds[0], fds[1]


def _load_modules() -> None:
    sys.set_int_max_str_digits(preamble.INT_DIGITS_LIMIT)
    for name in (*preamble.STAR_IMPORTS, *_LATER_MODULES):
        importlib.import_module(name)
    preamble.names()
    seccomp.program(0)
    sys.setrecursionlimit(1000)
    _freeze()


def _load_optional_modules(code: str) -> None:
    wanted = [name for name in _OPTIONAL_MODULES if name in code and name not in sys.modules]
    for name in wanted:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if wanted:
        _freeze()


def _freeze() -> None:
    """Keep a child's garbage collector from writing to shared pages."""
    gc.collect()
    gc.freeze()


def _serve(config: WardenConfig, libc: ctypes.CDLL, inbox: int, outbox: int) -> None:
    at_rest = _listing(config.scratch)
    runner: Runner | None = None
    while True:
        header, payload = protocol.receive(inbox)
        if header["kind"] == "job":
            if runner is not None:
                runner.close()
            if _listing(config.scratch) != at_rest:
                protocol.send(outbox, DIRTY, {})
                return
            runner = _runner(header, payload, config.confinement, libc)
            protocol.send(outbox, READY, {})
        elif runner is not None:
            cpu_s, wall_s, memory = (str(header[name]) for name in ("cpu_s", "wall_s", "memory"))
            test_run = protocol.TestRun(float(cpu_s), float(wall_s), payload.decode(), int(memory))
            protocol.send_result(outbox, runner.attempt(test_run))


def _listing(scratch: str) -> list[str]:
    return sorted(path.name for path in Path(scratch).iterdir()) if scratch else []


def _runner(header: dict[str, object], payload: bytes, limits: Confinement, libc: ctypes.CDLL) -> Runner:
    code = payload.decode("utf-8", "surrogatepass")
    job = protocol.Job(str(header["mode"]), str(header["function"]), code)
    _load_optional_modules(code)
    return (
        ProcessPerSolution(job, limits, libc) if job.mode == "official" else ProcessPerTest(job, limits, libc)
    )


class ProcessPerTest:
    """Strict: a new process for every test."""

    def __init__(self, job: protocol.Job, confinement: Confinement, libc: ctypes.CDLL) -> None:
        self._job, self._confinement, self._libc = job, confinement, libc
        self._code = os.memfd_create("code", os.MFD_CLOEXEC)

    def attempt(self, test_run: protocol.TestRun) -> protocol.TestRunResult:
        """Run the complete program once on this input."""
        files = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("in", "out", "err", "result")]
        try:
            protocol.write_all(files[0], test_run.text.encode("utf-8", "surrogatepass"))
            os.lseek(files[0], 0, os.SEEK_SET)
            return self._result(files, test_run)
        finally:
            for fd in files:
                os.close(fd)

    def close(self) -> None:
        """Forget the compiled solution; no process outlives a test run."""
        os.close(self._code)

    def _result(self, files: list[int], test_run: protocol.TestRun) -> protocol.TestRunResult:
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _become_child([*files, self._code], self._confinement, self._libc, int(test_run.cpu_s) + 1)
            os._exit(strict.run(self._job, test_run.text))
        status, cpu_s = _watch_to_the_end(pid, test_run, self._confinement)
        if status not in _OUT_OF_TIME and os.fstat(files[1]).st_size >= self._confinement.file_size:
            status = protocol.OUTPUT
        output = _content(files[3 if self._job.function else 1]) if status == protocol.OK else b""
        detail = "" if status == protocol.OK else _last_line(files[2])
        return protocol.TestRunResult(
            _decided(status, detail), cpu_s, time.monotonic() - started, detail, output
        )


class ProcessPerSolution:
    """Official: one process compiles the solution and runs its tests one after the other.

    Texts travel in shared memory files, their lengths through pipes, so that no transfer can block.
    """

    def __init__(self, job: protocol.Job, confinement: Confinement, libc: ctypes.CDLL) -> None:
        self._job, self._confinement, self._libc = job, confinement, libc
        self._pid = 0
        self._open: list[int] = []

    def attempt(self, test_run: protocol.TestRun) -> protocol.TestRunResult:
        """Send one input to the process and receive its output."""
        started = time.monotonic()
        if not self._pid:
            self._start()
        cpu_before = watch.usage(self._pid).cpu_s
        status, output = self._exchange(test_run)
        cpu_s = max(0.0, watch.usage(self._pid).cpu_s - cpu_before)
        ending, detail = (protocol.OK, "") if status == protocol.OK else self._end()
        if status == protocol.ERROR and ending != protocol.OK:
            status = ending
        return protocol.TestRunResult(
            _decided(status, detail), cpu_s, time.monotonic() - started, detail, output
        )

    def close(self) -> None:
        """Kill the process, if one runs."""
        if self._pid:
            self._end()

    def _start(self) -> None:
        errors, text_in, text_out = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("err", "in", "out"))
        child_in, to_child = os.pipe()
        from_child, child_out = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        self._pid = os.fork()
        if self._pid == 0:
            files = [null, null, errors, child_in, child_out, text_in, text_out]
            _become_child(files, self._confinement, self._libc, SOLUTION_CPU_S)
            os._exit(_serve_tests(self._job, *range(3, 7)))
        for fd in (child_in, child_out, null):
            os.close(fd)
        self._open = [errors, text_in, text_out, to_child, from_child]

    def _exchange(self, test_run: protocol.TestRun) -> tuple[str, bytes]:
        _, text_in, text_out, to_child, from_child = self._open
        limits = watch.ProcessLimits(
            test_run.cpu_s, test_run.wall_s, self._confinement.threads, test_run.memory
        )
        try:
            protocol.write_all(to_child, _store(text_in, test_run.text.encode("utf-8", "surrogatepass")))
            status = watch.until_ready(from_child, self._pid, limits)
            if status != protocol.OK:
                return status, b""
            protocol.read_exactly(from_child, _LENGTH)
        except (BrokenPipeError, EOFError):
            return protocol.ERROR, b""
        output = _content(text_out)
        return (protocol.OUTPUT, b"") if len(output) >= self._confinement.file_size else (protocol.OK, output)

    def _end(self) -> tuple[str, str]:
        """Kill and reap; how it ended and the last line of stderr, where the process ended by itself."""
        watch.kill(self._pid)
        ending, _ = watch.reap(self._pid)
        self._pid = 0
        detail = _last_line(self._open[0])
        for fd in self._open:
            os.close(fd)
        return ending, detail


SOLUTION_CPU_S = 7_200  # a backstop: the process of a solution is watched test by test
_LENGTH = 8


def _store(fd: int, text: bytes) -> bytes:
    """Replace the content of a memory file. Returns its length as the bytes that are sent through a pipe."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    protocol.write_all(fd, text)
    return len(text).to_bytes(_LENGTH, "little")


def _serve_tests(job: protocol.Job, inbox: int, outbox: int, text_in: int, text_out: int) -> int:
    """The child's loop: one input after the other, until the first exception."""
    try:
        attempt = official.prepare(job)
        while True:
            size = int.from_bytes(protocol.read_exactly(inbox, _LENGTH), "little")
            output = attempt(os.pread(text_in, size, 0).decode("utf-8", "surrogatepass"))
            protocol.write_all(outbox, _store(text_out, output))
    except BaseException as error:  # noqa: BLE001 - the process's edge
        return _exit_code_after(error)


def _exit_code_after(error: BaseException) -> int:
    os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace")[:_STDERR_TAIL])
    return watch.exit_code(error)


def _become_child(files: list[int], confinement: Confinement, libc: ctypes.CDLL, cpu_s: int) -> None:
    """In the child: make ``files`` descriptors 0, 1, 2, ..., close all others, and confine the process."""
    try:
        lifted = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_FREE_FD) for fd in files]
        for target, fd in enumerate(lifted):
            os.dup2(fd, target)
        os.closerange(len(files), 1 << 16)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        confine(confinement, libc, cpu_s)
    except BaseException as error:  # noqa: BLE001 - the process's edge
        os.write(2, f"{CONFINEMENT_FAILED}: {error}\n".encode())
        os._exit(CONFINEMENT_EXIT)


CONFINEMENT_FAILED, CONFINEMENT_EXIT = "not confined", 113


def _watch_to_the_end(pid: int, test_run: protocol.TestRun, confinement: Confinement) -> tuple[str, float]:
    pidfd = os.pidfd_open(pid)
    try:
        limits = watch.ProcessLimits(test_run.cpu_s, test_run.wall_s, confinement.threads, test_run.memory)
        status = watch.until_ready(pidfd, pid, limits)
    finally:
        os.close(pidfd)
    watch.kill(pid)
    ending, cpu_s = watch.reap(pid)
    return (ending if status == protocol.OK else status), cpu_s


def _decided(status: str, last_line: str) -> str:
    """MEMORY instead of a time limit where a thread died of the memory limit and the others waited for it."""
    return protocol.MEMORY if status in _OUT_OF_TIME and last_line.startswith("MemoryError") else status


def _content(fd: int) -> bytes:
    with io.FileIO(fd, "rb", closefd=False) as file:
        file.seek(0)
        return file.readall()


def _last_line(fd: int) -> str:
    size = os.fstat(fd).st_size
    tail = os.pread(fd, _STDERR_TAIL, max(0, size - _STDERR_TAIL)).decode(errors="replace").strip()
    return tail.rpartition("\n")[2][:300]
