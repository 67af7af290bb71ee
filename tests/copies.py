"""The processes of a run in the process of a test, as they are in a program: copies, which import nothing.

A program makes the copies itself, which is only safe without other threads; a test has those of its servers
and of pytest-xdist. Here a server without threads makes them. A fresh interpreter takes 0.2 s of CPU.
"""

import multiprocessing
import os
import resource
from collections.abc import Callable
from contextlib import chdir
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running, set_forkserver_preload
from multiprocessing.process import BaseProcess, parent_process
from typing import Any, NamedTuple

from harness.cli.signals import blocked_in_children
from harness.files import ROOT
from sut.processes import prepared
from sut.supervisor import session

_STREAMS = (1, 2)
_LIMITS = {number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}


class _Surroundings(NamedTuple):
    """What a copy of this process would have of it, and one of the server has not."""

    environment: dict[str, str]
    umask: int
    limits: dict[int, tuple[int, int]]
    streams: tuple[Connection, ...]
    """stdout and stderr, in a form that can be passed on"""


def use_copies() -> None:
    """From now on runs in this process start copies."""
    set_forkserver_preload([session.__name__])
    vars(prepared)["spawn"] = _copy


def _copy(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    with chdir(ROOT):  # where the server finds what it imports; a test may be elsewhere
        ensure_running()
    os.umask(umask := os.umask(0o077))
    streams = tuple(Connection(os.dup(stream), readable=False) for stream in _STREAMS)
    limits = {number: resource.getrlimit(number) for number in _LIMITS}
    given = _Surroundings(dict(os.environ), umask, limits, streams)
    process = multiprocessing.get_context("forkserver").Process(
        target=_begin, args=(given, work, *arguments), daemon=True
    )
    with blocked_in_children():
        process.start()
    return process


def _begin(given: _Surroundings, work: Callable[..., None], *arguments: Any) -> None:
    os.environ.clear()
    os.environ.update(given.environment)
    os.umask(given.umask)
    for number, limit in given.limits.items():
        resource.setrlimit(number, limit)
    for stream, connection in zip(_STREAMS, given.streams, strict=True):
        os.dup2(connection.fileno(), stream)
        connection.close()
    # The server of copies, which ends with the process of the tests.
    vars(parent_process())["_pid"] = os.getppid()
    work(*arguments)
