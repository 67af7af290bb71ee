"""Child processes: their start, their end with the program, signals, garbage collections and CPUs."""

import ctypes
import gc
import multiprocessing
import os
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any

from harness.cli.signals import blocked_in_children
from harness.record.settled import Cpus

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_TIMERSLACK = 1, 15, 29
_SCHED_SETATTR = {"x86_64": 314}.get(os.uname().machine, 274)  # the number of the system call
_SCHED_ATTR = struct.Struct("=IIQiIQQQII")  # sched_setattr(2)
_SHORTEST_SLICE_NS = 100_000


def spawn(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a child with a fresh interpreter. SIGINT, SIGTERM and SIGHUP stay blocked in it.

    Only this process reacts to them. A signal that comes during the start is handled after it.
    """
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
    with blocked_in_children():
        process.start()
    return process


def show_as(name: str) -> None:
    """Name this process for ps and top: the command lines of all children are the same."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def wake_promptly() -> None:
    """Let this thread, and those that it will start, wake at their time, and run before others of their core.

    Timers of other threads are 50 us late, to wake together (prctl(2)). A thread with a short slice of CPU
    time has its turn earlier, not more of it (Linux 6.12 and later).
    """
    with suppress(OSError, AttributeError):
        system = ctypes.CDLL(None)
        system.prctl(_PR_SET_TIMERSLACK, 1)
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            fields = (_SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, _SHORTEST_SLICE_NS, 0, 0, 0, 0)
            system.syscall(_SCHED_SETATTR, 0, _SCHED_ATTR.pack(*fields), 0)


def die_with_parent() -> None:
    """Make the kernel kill this process when the one that started it dies (prctl(2), Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid != os.getppid():
        os._exit(1)  # it died before the request


def gc_runs() -> int:
    """The number of garbage collections in this process."""
    return sum(generation["collections"] for generation in gc.get_stats())


def stop(process: BaseProcess, grace_s: float) -> bool:
    """Wait for the child to end, then kill it; returns whether it had to be killed."""
    process.join(grace_s)
    late = process.is_alive()
    if late:
        process.kill()
        process.join()
    return late


def pin(cpus: Cpus) -> None:
    """Pin this process, and all threads that it will start, to ``cpus``."""
    if cpus:
        with suppress(OSError):  # a core that was removed meanwhile is no reason to end a run
            os.sched_setaffinity(0, cpus)
