"""Supervision of one confined child from outside: its time, threads and memory, and how it ended."""

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from harness.grading.sandbox.jail import protocol

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_EVERY_MS = 100
_REPORT_EVERY_S = 1.0
_LONGEST = 2  # the multiple of the limit that ends a test in wall time, on a machine that is too busy
_UTIME, _STIME, _THREADS, _RSS = 11, 12, 17, 21  # fields of /proc/<pid>/stat after the command name
_LONGEST_STAT = 4_096
_PAGE = os.sysconf("SC_PAGESIZE")


class Process(Protocol):
    """A child of a fork server."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def signal(self, signum: int) -> None:
        """Send it a signal, if it still runs."""


class GraderCallbacks(NamedTuple):
    """The functions by which a watch reports to the grader, and asks it for memory."""

    report: Callable[[float], None]
    """Takes the share of a processor that the process has used since the last call."""
    more_memory: Callable[[], None]
    """Returns when the process may have all the memory that its sandbox allows."""


class ProcessLimits(NamedTuple):
    """The limits of one test run."""

    seconds: float
    """Wall time, as the official runner's alarm counts it, without ``Watched.waited_s``."""
    threads: int
    memory: int = 0
    """The bytes above which the grader is asked for more; 0: never."""


class Watched(NamedTuple):
    """The end of a watch."""

    status: str
    """protocol.OK, or the status that names the limit that was hit."""
    wall_s: float = 0.0
    waited_s: float = 0.0
    """The part of it in which a thread was ready to run and other programs had the processors."""


def processes() -> set[int]:
    """Every process of this PID namespace, those that have ended and were not waited for included."""
    return {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}


def until_ready(fd: int, process: Process, limits: ProcessLimits, grader: GraderCallbacks) -> Watched:
    """Wait until ``fd`` is readable, or the process has hit a limit.

    It is stopped while it waits for more memory, and that time does not count.
    """
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    started = reported = time.monotonic()
    if poller.poll(_LOOK_EVERY_MS):
        return Watched(protocol.OK)
    pid = process.pid
    first = last = usage(pid)  # what a process did in earlier tests does not count
    delays, waited_ns = _delays(pid), 0
    while not poller.poll(_LOOK_EVERY_MS):
        now, used, before = time.monotonic(), usage(pid), delays
        delays = _delays(pid)
        waited_ns += max((delay - before.get(task, 0) for task, delay in delays.items()), default=0)
        wall_s = now - started
        waited_s = min(waited_ns / 1e9, wall_s)
        status = _exceeded(limits, used, used.cpu_s - first.cpu_s, wall_s, waited_s)
        if status != protocol.OK:
            return Watched(status, wall_s, waited_s)
        if now - reported >= _REPORT_EVERY_S:
            grader.report((used.cpu_s - last.cpu_s) / (now - reported))
            last, reported = used, now
        if 0 < limits.memory < used.memory:
            limits = limits._replace(memory=0)
            process.signal(signal.SIGSTOP)
            grader.more_memory()
            process.signal(signal.SIGCONT)
            stopped_s = time.monotonic() - now
            started, reported = started + stopped_s, reported + stopped_s
    return Watched(protocol.OK)


def _exceeded(limits: ProcessLimits, used: "Usage", cpu_s: float, wall_s: float, waited_s: float) -> str:
    if used.threads > limits.threads:
        return protocol.THREADS
    # CPU time counts too: many threads can wait for each other's processors.
    if max(wall_s - waited_s, cpu_s) >= limits.seconds:
        return protocol.TIMEOUT
    return protocol.STARVED if wall_s >= _LONGEST * limits.seconds else protocol.OK


def _delays(pid: int) -> dict[str, int]:
    """The nanoseconds for which each thread was ready and had no processor: Linux's run_delay.

    Empty where the kernel does not count them, so that wall time alone counts.
    Source: Linux Documentation/scheduler/sched-stats.rst.
    """
    found: dict[str, int] = {}
    folder = f"/proc/{pid}/task"
    try:
        tasks = os.listdir(folder)  # noqa: PTH208 - pathlib is not loaded here
    except OSError:  # the process has ended
        return found
    for task in tasks:
        with contextlib.suppress(OSError, IndexError):  # the thread has
            fd = os.open(f"{folder}/{task}/schedstat", os.O_RDONLY)
            try:
                found[task] = int(os.read(fd, _LONGEST_STAT).split()[1])
            finally:
                os.close(fd)
    return found


class Usage(NamedTuple):
    """What a process uses; zeros for one that has ended."""

    cpu_s: float = 0.0
    threads: int = 0
    memory: int = 0
    """Resident bytes."""


def usage(pid: int) -> Usage:
    """The present usage of a process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            fields = os.read(fd, _LONGEST_STAT).rpartition(b")")[2].split()
        finally:
            os.close(fd)
    except OSError:
        return Usage()
    cpu_s = (int(fields[_UTIME]) + int(fields[_STIME])) / _CLOCK_TICKS
    return Usage(cpu_s, int(fields[_THREADS]), int(fields[_RSS]) * _PAGE)


def exit_code(error: BaseException) -> int:
    """The exit code of a child that an exception ended: each limit of the sandbox has its own."""
    match error:
        case MemoryError() | OSError(errno=errno.ENOMEM):
            return _LIMIT_EXITS[protocol.MEMORY]
        case RuntimeError() if "can't start new thread" in str(error):
            return _LIMIT_EXITS[protocol.THREADS]
        case OSError(errno=errno.EMFILE):
            return _LIMIT_EXITS[protocol.FILES]
        case OSError(errno=errno.EFBIG | errno.ENOSPC):
            return _LIMIT_EXITS[protocol.OUTPUT]
    return 1


_LIMIT_EXITS = {protocol.MEMORY: 101, protocol.THREADS: 102, protocol.FILES: 103, protocol.OUTPUT: 104}


def ending(status: int) -> str:
    """The end of a process, from its wait status."""
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        by_code = {0: protocol.OK, **{limit: name for name, limit in _LIMIT_EXITS.items()}}
        return by_code.get(code, protocol.ERROR)
    by_signal = {int(signal.SIGXCPU): protocol.TIMEOUT, int(signal.SIGXFSZ): protocol.OUTPUT}
    return by_signal.get(os.WTERMSIG(status), protocol.KILLED)
