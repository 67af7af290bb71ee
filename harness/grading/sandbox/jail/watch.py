"""Supervision of one confined child from outside: CPU time, wall time, threads, and how it ended."""

import errno
import os
import select
import signal
import time
from typing import NamedTuple

from harness.grading.sandbox.jail import protocol

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_EVERY_MS = 100
_IDLE_SHARE = 0.1  # of the time allowed: below it a process that has not ended waits for something
_UTIME, _STIME, _THREADS, _RSS = 11, 12, 17, 21  # fields of /proc/<pid>/stat after the command name
_LONGEST_STAT = 4_096
_LONGEST_STAT = 4_096
_PAGE = os.sysconf("SC_PAGESIZE")


class ProcessLimits(NamedTuple):
    """Seconds of CPU and of wall time, threads, and bytes of memory (0: no limit)."""

    cpu_s: float
    wall_s: float
    threads: int
    memory: int = 0


def processes() -> set[int]:
    """Every process of this PID namespace, those that have ended and were not waited for included."""
    return {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}


def until_ready(fd: int, pid: int, limits: ProcessLimits, cpu_before: float = 0.0) -> str:
    """Wait until ``fd`` is readable: protocol.OK, or the status that names the limit that was hit.

    ``cpu_before``: CPU seconds that the process had used and that do not count.
    """
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    started = time.monotonic()
    while not poller.poll(_LOOK_EVERY_MS):
        used = usage(pid)
        status = _exceeded(limits, used, used.cpu_s - cpu_before, time.monotonic() - started)
        if status != protocol.OK:
            return status
    return protocol.OK


def _exceeded(limits: ProcessLimits, used: "Usage", cpu_s: float, wall_s: float) -> str:
    if used.threads > limits.threads:
        return protocol.THREADS
    if 0 < limits.memory < used.memory:
        return protocol.CROWDED
    if cpu_s >= limits.cpu_s:
        return protocol.TIMEOUT
    idle = wall_s >= limits.cpu_s and cpu_s < _IDLE_SHARE * limits.cpu_s
    return protocol.WAITED if idle or wall_s >= limits.wall_s else protocol.OK


class Usage(NamedTuple):
    """CPU seconds used so far, threads, and bytes of resident memory; zeros for a process that has ended."""

    cpu_s: float = 0.0
    threads: int = 0
    memory: int = 0


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
