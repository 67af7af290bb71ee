"""Confinement of the calling process before it runs model-written code. It cannot be undone."""

import ctypes
import os
import resource
import signal
import struct
from typing import NamedTuple

from harness.grading.sandbox.jail import landlock, seccomp

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 4, 8
_SIGKILL = int(signal.SIGKILL)
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH = 2


class Confinement(NamedTuple):
    """The restrictions of a child. Sizes in bytes.

    ``uid`` is the user that a root warden changes to (0: none). ``readable`` and ``devices`` are
    Landlock's allow-lists; both are empty where namespaces do that work. ``read_any`` keeps the right
    to read the listed trees where they lie below a private home. ``filter`` is off only unsandboxed.
    ``threads`` is watched from outside, ``processes`` is RLIMIT_NPROC, which counts all of the user's.
    """

    uid: int
    memory: int
    file_size: int
    threads: int
    processes: int
    open_files: int
    readable: tuple[str, ...]
    devices: tuple[str, ...]
    read_any: bool
    filter: bool


class Confiner:
    """Confines processes that are forked after it was made; what it can do before, it does."""

    def __init__(self, wanted: Confinement, libc: ctypes.CDLL) -> None:
        self._wanted, self._libc = wanted, libc
        self._limits = [(which, _allowed(which, value)) for which, value in _limits(wanted).items()]
        self._filter = seccomp.Filter() if wanted.filter else None

    def confine(self, cpu_s: int) -> None:
        """Apply every restriction, those that need rights first. Raises OSError when one is refused."""
        wanted, libc = self._wanted, self._libc
        for which, value in self._limits:
            resource.setrlimit(which, (value, value))
        cpu_s = _allowed(resource.RLIMIT_CPU, cpu_s)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        seccomp.forbid_new_privileges(libc)
        if wanted.readable:
            landlock.restrict(libc, (*wanted.readable, f"/proc/{os.getpid()}"), wanted.devices)
        if wanted.uid and os.geteuid() == 0:
            _become(wanted.uid, wanted.read_any, libc)
        # The fork server is not dumpable, and /dev/stdin cannot be opened by a process that is not.
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)  # a change of user clears it
        if self._filter:
            self._filter.install(libc)


def _limits(wanted: Confinement) -> dict[int, int]:
    return {
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


def _become(uid: int, read_any: bool, libc: ctypes.CDLL) -> None:
    """Change to a user without capabilities; ``read_any`` keeps one, which Landlock limits to its lists."""
    libc.prctl(_PR_SET_KEEPCAPS, int(read_any), 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    kept = 1 << _CAP_DAC_READ_SEARCH if read_any else 0
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    sets = struct.pack("=6I", kept, kept, 0, 0, 0, 0)  # effective, permitted, inheritable; twice 32 bits
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset refused")
