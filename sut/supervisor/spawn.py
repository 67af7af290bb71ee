"""Child processes: their start, their end with the program, signals, garbage collections and CPUs."""

import ctypes
import gc
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from typing import Any

from harness.cli.signals import deferred_signals
from harness.record.resolved_plan import Cpus

_PR_SET_PDEATHSIG = 1
_OURS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def spawn(target: Callable[..., None], *arguments: Any) -> SpawnProcess:
    """Start a child with a fresh interpreter. SIGINT, SIGTERM and SIGHUP stay blocked in it.

    Only this process reacts to them. A signal that comes during the start is handled after it. The child
    inherits this thread's mask, but the mask alone does not stop the handler: the kernel can deliver the
    signal to another thread, and Python then runs the handler here. An exception between the fork and the
    child's arguments would end the child with a traceback.
    """
    resource_tracker.ensure_running()  # when it starts, it unblocks SIGINT and SIGTERM
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
    with deferred_signals():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


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


def stop(process: SpawnProcess, grace_s: float) -> None:
    """Wait for the child to end, then kill it."""
    process.join(grace_s)
    if process.is_alive():
        process.kill()
        process.join()


def pin(cpus: Cpus) -> None:
    """Pin this process, and all threads that it will start, to ``cpus``."""
    if cpus:
        with suppress(OSError):  # a core that was removed meanwhile is no reason to end a run
            os.sched_setaffinity(0, cpus)
