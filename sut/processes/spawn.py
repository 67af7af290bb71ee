"""Child processes: their start, their end with the program, signals, garbage collections and CPUs."""

import ctypes
import gc
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any

from harness.cli.signals import blocked_in_children
from harness.record.settled import Cpus

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


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


def stop(process: BaseProcess, grace_s: float) -> None:
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
