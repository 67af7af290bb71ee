"""Confinement of the calling process before it runs model-written code. It cannot be undone."""

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Callable
from typing import NamedTuple

from harness.grading.sandbox.jail import landlock, seccomp

PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 4, 8, 38
_SIGKILL = int(signal.SIGKILL)
_CPU_S = 7_200  # a backstop: a process is watched test by test
_CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_READ_SEARCH = 2


class Confinement(NamedTuple):
    """The restrictions of a child. Sizes in bytes."""

    uid: int
    """The user that a root warden changes to; 0: none."""
    memory: int
    file_size: int
    threads: int
    """Watched from outside."""
    processes: int
    """RLIMIT_NPROC, which counts all processes of the user."""
    open_files: int
    readable: tuple[str, ...]
    """Landlock's allow-list; empty, as ``devices``, where namespaces do that work."""
    devices: tuple[str, ...]
    read_any: bool
    """Whether the listed trees may be read where they lie below a private home."""
    filter: bool
    """Whether there is a seccomp filter."""


Confine = Callable[[], None]
_Step = tuple[Callable[..., object], tuple[object, ...]]


def confiner(wanted: Confinement, libc: ctypes.PyDLL) -> Confine:
    """A function that applies every restriction to its process, those that need rights first. Raises OSError.

    All that it needs is made before the process forks, down to the functions that it calls: a child that
    looks up a name in an object copies memory pages.
    """
    limits = [(which, _allowed(which, value)) for which, value in _limits(wanted).items()]
    first: list[_Step] = [(resource.setrlimit, (which, (value, value))) for which, value in limits]
    first += [(libc.prctl, (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))]  # Landlock and seccomp need it
    is_root = os.geteuid() == 0 and (wanted.uid or wanted.readable)  # unsandboxed it stays what it is
    then: list[_Step] = _without_rights(wanted, libc) if is_root else []
    # The fork server is not dumpable, and /dev/stdin cannot be opened by a process that is not.
    then += [(libc.prctl, (PR_SET_DUMPABLE, 1, 0, 0, 0))]
    then += [(libc.prctl, (seccomp.PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0))]  # a change of user clears it
    install = seccomp.Filter(libc).install if wanted.filter else None

    def confine() -> None:
        _take(first)
        if wanted.readable:
            landlock.restrict(libc, (*wanted.readable, f"/proc/{os.getpid()}"), wanted.devices)
        _take(then)
        if install:
            install()

    return confine


def _take(steps: list[_Step]) -> None:
    for function, arguments in steps:
        if function(*arguments):
            raise OSError(ctypes.get_errno(), f"{function.__name__} refused")


def _limits(wanted: Confinement) -> dict[int, int]:
    return {
        resource.RLIMIT_CPU: _CPU_S,
        resource.RLIMIT_AS: wanted.memory,
        resource.RLIMIT_FSIZE: wanted.file_size,
        resource.RLIMIT_NOFILE: wanted.open_files,
        resource.RLIMIT_NPROC: wanted.processes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }


def _allowed(which: int, value: int) -> int:
    """The value, or the hard limit where that is lower."""
    hard = resource.getrlimit(which)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _without_rights(wanted: Confinement, libc: ctypes.PyDLL) -> list[_Step]:
    """The steps that give up root's capabilities; ``read_any`` keeps one, limited by Landlock."""
    kept = 1 << CAP_DAC_READ_SEARCH if wanted.read_any else 0
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    sets = struct.pack("=6I", kept, kept, 0, 0, 0, 0)  # effective, permitted, inheritable; twice 32 bits
    change = _new_user(wanted, libc) if wanted.uid else []
    return [*change, (libc.capset, (header, sets))]


def _new_user(wanted: Confinement, libc: ctypes.PyDLL) -> list[_Step]:
    user = (wanted.uid,) * 3
    return [
        (libc.prctl, (_PR_SET_KEEPCAPS, int(wanted.read_any), 0, 0, 0)),
        (os.setgroups, ([],)),
        (os.setresgid, user),
        (os.setresuid, user),
        (change_of_user, (user,)),
    ]


def change_of_user(expected: tuple[int, int, int]) -> bool:
    """Whether it had no effect, as under a filter that lets setresuid() do nothing."""
    return os.getresuid() != expected
