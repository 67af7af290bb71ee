"""The warden: a trusted process inside the sandbox that has a confined child run every test.

It holds one solution and one test input at a time, never an expected output. The children may not
signal, trace or open it. Its fork server has loaded Python and its modules once, so that a test run costs a
fork instead of the start of an interpreter.
"""

import contextlib
import ctypes
import fcntl
import io
import json
import os
import signal
import sys
from typing import NamedTuple

from harness.grading.sandbox.jail import child_watch, fork_server, official, preamble, protocol
from harness.grading.sandbox.jail.confine import PR_SET_DUMPABLE, Confinement
from harness.grading.sandbox.jail.fork_server import ForkedChild, ForkServer
from harness.grading.sandbox.jail.seccomp import PR_SET_PDEATHSIG
from harness.system_calls import memory_file

READY = "ready"
RUNNING = "running"  # sent while a test runs, with the share of a processor that it uses
FULL = "full"  # the test has filled its share of memory; answered when it may have more
END = "end"
DIRTY = "dirty"  # something lies in the scratch folder: the sandbox must be renewed
_OUT_OF_TIME = (protocol.TIMEOUT, protocol.STARVED)
_NOTABLE_WAIT = 0.1  # the share of a test run's time from which waiting is named
# Loaded for the first solution that names one, because they make every fork slower.
_OPTIONAL_MODULES = ("numpy", "sympy", "sympy.parsing.sympy_parser", "pylatexenc.latex2text")
# The public runner has it; without os.putenv a package that needs it, as scipy, could not load it later.
_OFFICIAL_MODULE = "numpy"
_STDERR_TAIL = 2_000
_FIRST_FREE_FD = 10  # it lies above stdin, stdout and stderr


class WardenConfig(NamedTuple):
    """The settings of a warden."""

    confinement: Confinement
    """The restrictions of its children."""
    scratch: str
    """The folder that they may write to; empty: none."""
    alone: bool = False
    """Whether all processes of the namespace are the warden's. Then nothing keeps a child from starting some,
    so the warden ends, and they with it, if one outlives its test run."""

    def as_json(self) -> str:
        """Text for a command line."""
        return json.dumps(self._asdict() | {"confinement": self.confinement._asdict()})

    @classmethod
    def from_json(cls, text: str) -> "WardenConfig":
        """Inverse of ``config.as_json()``."""
        fields = json.loads(text)
        return cls(**fields | {"confinement": Confinement(**fields["confinement"])})

    def with_user(self, uid: int) -> "WardenConfig":
        """The same for children that change to this user; 0: no change."""
        return self._replace(confinement=self.confinement._replace(uid=uid))


def main() -> None:
    """Serve jobs and test runs on stdin/stdout until the grader closes them."""
    # A child copies pages when it releases the interpreter's lock, as it does for ctypes.CDLL.
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    config = WardenConfig.from_json(sys.argv[1]).with_user(int(sys.argv[2]))
    inbox, outbox = _take_control_pipes()
    sys.set_int_max_str_digits(preamble.INT_DIGITS_LIMIT)
    server = ForkServer(config.confinement, libc)
    protocol.send(outbox, READY, {})
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(config, server, inbox, outbox)
        server.close()


def _take_control_pipes() -> tuple[int, int]:
    fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD) for fd in (0, 1)]
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    return fds[0], fds[1]


def _serve(config: WardenConfig, server: ForkServer, inbox: int, outbox: int) -> None:
    at_rest, loaded = _listing(config.scratch), set[str]()
    runner: ProcessPerTest | ProcessPerSolution | None = None

    def more_memory() -> None:
        protocol.send(outbox, FULL, {})
        protocol.receive(inbox)

    grader = child_watch.GraderCallbacks(
        lambda share: protocol.send(outbox, RUNNING, {"share": share}), more_memory
    )

    while True:
        try:
            header, payload = protocol.receive(inbox)
        except EOFError:  # the grader needs no more
            header, payload = {"kind": END}, b""
        if header["kind"] in ("job", END) and runner is not None:
            runner.close()
        if header["kind"] == END:
            return
        if header["kind"] == "job":
            if _listing(config.scratch) != at_rest:
                protocol.send(outbox, DIRTY, {})
                return
            job = protocol.Job(
                str(header["mode"]), str(header["function"]), payload.decode("utf-8", "surrogatepass")
            )
            is_official = job.mode == "official"
            for module in _OPTIONAL_MODULES:
                is_needed = module in job.code or (is_official and module == _OFFICIAL_MODULE)
                if is_needed and module not in loaded:
                    server.load(module)
                    loaded.add(module)
            kind = ProcessPerSolution if is_official else ProcessPerTest
            runner = kind(job, config.confinement, server)
            protocol.send(outbox, READY, {})
        elif runner is not None:
            limit_s, memory = float(str(header["limit_s"])), int(str(header["memory"]))
            test_run = protocol.TestRun(limit_s, payload.decode(), memory)
            protocol.send_result(outbox, runner.attempt(test_run, grader))
            if config.alone and child_watch.processes() - {os.getpid(), server.pid, *runner.pids}:
                return


def _listing(scratch: str) -> list[str]:
    return sorted(entry.name for entry in os.scandir(scratch)) if scratch else []


class ProcessPerTest:
    """Strict: a new process for every test."""

    def __init__(self, job: protocol.Job, confinement: Confinement, server: ForkServer) -> None:
        self._function, self._confinement, self._server = job.function, confinement, server
        self._code, self._source = _memory_file(), _memory_file(job.code)

    def attempt(
        self, test_run: protocol.TestRun, grader: child_watch.GraderCallbacks
    ) -> protocol.TestRunResult:
        """Run the complete program once on this input."""
        files = [_memory_file(test_run.text), _memory_file(), _memory_file(), _memory_file()]
        try:
            return self._result(files, test_run, grader)
        finally:
            for fd in files:
                os.close(fd)

    @property
    def pids(self) -> tuple[int, ...]:
        """None: no process outlives a test run."""
        return ()

    def close(self) -> None:
        """Forget the compiled solution; no process outlives a test run."""
        os.close(self._code)
        os.close(self._source)

    def _result(
        self, files: list[int], test_run: protocol.TestRun, grader: child_watch.GraderCallbacks
    ) -> protocol.TestRunResult:
        child = self._server.start(fork_server.STRICT, self._function, [*files, self._code, self._source])
        seen = child_watch.Watched(protocol.OK)
        if not child.ending:
            limits = _limits(test_run, self._confinement)
            seen = child_watch.until_ready(self._server.fileno(), child, limits, grader)
        ending = self._server.end(child)
        status = ending if seen.status == protocol.OK else seen.status
        if status not in _OUT_OF_TIME and os.fstat(files[1]).st_size >= self._confinement.file_size:
            status = protocol.OUTPUT
        output = _content(files[3 if self._function else 1]) if status == protocol.OK else b""
        detail = "" if status == protocol.OK else _last_line(files[2])
        status, detail = _decided(status, detail, seen)
        return protocol.TestRunResult(status, detail, output)


class ProcessPerSolution:
    """Official: one process compiles the solution and runs its tests one after the other.

    Texts travel in shared memory files, their lengths through pipes, so that no transfer can block.
    """

    def __init__(self, job: protocol.Job, confinement: Confinement, server: ForkServer) -> None:
        self._function, self._confinement, self._server = job.function, confinement, server
        self._source = _memory_file(job.code)
        self._child: ForkedChild | None = None
        self._open: list[int] = []

    def attempt(
        self, test_run: protocol.TestRun, grader: child_watch.GraderCallbacks
    ) -> protocol.TestRunResult:
        """Send one input to the process and receive its output."""
        child = self._child or self._start()
        seen, output = self._exchange(child, test_run, grader)
        ending, detail = (protocol.OK, "") if seen.status == protocol.OK else self._end(child)
        status = ending if seen.status == protocol.ERROR and ending != protocol.OK else seen.status
        status, detail = _decided(status, detail, seen)
        return protocol.TestRunResult(status, detail, output)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process of the solution, if one runs."""
        return () if self._child is None else (self._child.pid,)

    def close(self) -> None:
        """Kill the process, if one runs."""
        if self._child:
            self._end(self._child)
        os.close(self._source)

    def _start(self) -> ForkedChild:
        errors, text_in, text_out = (_memory_file() for _ in range(3))
        child_in, to_child = os.pipe()
        from_child, child_out = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        files = [null, null, errors, child_in, child_out, text_in, text_out, self._source]
        self._child = self._server.start(fork_server.OFFICIAL, self._function, files)
        for fd in (child_in, child_out, null):
            os.close(fd)
        self._open = [errors, text_in, text_out, to_child, from_child]
        return self._child

    def _exchange(
        self, child: ForkedChild, test_run: protocol.TestRun, grader: child_watch.GraderCallbacks
    ) -> tuple[child_watch.Watched, bytes]:
        _, text_in, text_out, to_child, from_child = self._open
        try:
            text = test_run.text.encode("utf-8", "surrogatepass")
            protocol.write_all(to_child, official.store(text_in, text))
            limits = _limits(test_run, self._confinement)
            seen = child_watch.until_ready(from_child, child, limits, grader)
            if seen.status != protocol.OK:
                return seen, b""
            protocol.read_exactly(from_child, official.LENGTH)
        except (BrokenPipeError, EOFError):
            return child_watch.Watched(protocol.ERROR), b""
        output = _content(text_out)
        if len(output) >= self._confinement.file_size:
            return child_watch.Watched(protocol.OUTPUT), b""
        return seen, output

    def _end(self, child: ForkedChild) -> tuple[str, str]:
        """Kill and reap; how it ended and the last line of stderr, where the process ended by itself."""
        ending = self._server.end(child)
        self._child = None
        detail = _last_line(self._open[0])
        for fd in self._open:
            os.close(fd)
        return ending, detail


def _memory_file(text: str = "") -> int:
    """A file in memory that only descriptors lead to, at its start."""
    fd = memory_file("text")
    if text:
        protocol.write_all(fd, text.encode("utf-8", "surrogatepass"))
        os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _limits(test_run: protocol.TestRun, confinement: Confinement) -> child_watch.ProcessLimits:
    return child_watch.ProcessLimits(test_run.limit_s, confinement.threads, test_run.memory)


def _decided(status: str, last_line: str, seen: child_watch.Watched) -> tuple[str, str]:
    """Status and detail: MEMORY instead of TIMEOUT where a thread died of the memory limit and the others
    waited for it; the times where other programs had the processors.
    """
    if status not in _OUT_OF_TIME:
        return status, last_line
    if last_line.startswith("MemoryError"):
        return protocol.MEMORY, last_line
    if seen.waited_s < _NOTABLE_WAIT * seen.wall_s:
        return status, last_line
    return status, f"{seen.wall_s:.0f} s, of them {seen.waited_s:.0f} s waiting for a processor"


def _content(fd: int) -> bytes:
    with io.FileIO(fd, "rb", closefd=False) as file:
        file.seek(0)
        return file.readall()


def _last_line(fd: int) -> str:
    size = os.fstat(fd).st_size
    tail = os.pread(fd, _STDERR_TAIL, max(0, size - _STDERR_TAIL)).decode(errors="replace").strip()
    return tail.rpartition("\n")[2][:300]
