"""The system calls that model-written code never needs, refused by a seccomp filter.

Threads are allowed, processes are not: nothing forks, nothing outlives its run, nothing is executed.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from harness.grading.sandbox.jail.syscalls import ARCHITECTURES, Architecture

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_CLONE_THREAD = 0x00010000
_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NR_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16  # struct seccomp_data

_STEP_BYTES, _OPERAND = 8, 4  # struct sock_filter, and where its value lies
_NO_PID = 0x7FFFFFFF  # greater than every pid; the child's replaces it
_LEAF = 8  # comparisons in a row

PR_SET_PDEATHSIG = 1


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refused(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)


# Every check ends in an answer, whatever the argument is.
def _only_own_process(pid: int) -> bytes:
    """A signal may go to the caller itself: abort() and raise() need it."""
    return _load_argument(0) + _step(_JUMP_EQ, pid, 0, 1) + _step(_RETURN, _ALLOW) + _refused(errno.EPERM)


def _only_threads() -> bytes:
    is_thread = _load_argument(0) + _step(_JUMP_SET, _CLONE_THREAD, 0, 1)
    return is_thread + _step(_RETURN, _ALLOW) + _refused(errno.EPERM)


def _no_truncating_read(flags_argument: int) -> bytes:
    """O_RDONLY | O_TRUNC empties a file that Landlock before Linux 6.2 takes for one being read."""
    masked = _load_argument(flags_argument) + _step(_AND, os.O_ACCMODE | os.O_TRUNC)
    return masked + _step(_JUMP_EQ, os.O_TRUNC, 0, 1) + _refused(errno.EPERM) + _step(_RETURN, _ALLOW)


def _no_outliving() -> bytes:
    """Refuse to change PR_SET_PDEATHSIG: the child dies with the warden."""
    changes = _load_argument(0) + _step(_JUMP_EQ, PR_SET_PDEATHSIG, 0, 1)
    return changes + _refused(errno.EPERM) + _step(_RETURN, _ALLOW)


def _load_argument(index: int) -> bytes:
    return _step(_LOAD, _ARGS_OFFSET + 8 * index)


def program(machine: Architecture, pid: int) -> bytes:
    """The filter for the process ``pid``, as an array of struct sock_filter."""
    checked = machine.checked
    steps = [
        _step(_LOAD, _ARCH_OFFSET),
        _step(_JUMP_EQ, machine.audit, 1, 0),
        _step(_RETURN, _KILL_PROCESS),
        _step(_LOAD, _NR_OFFSET),
    ]
    if machine.above:
        steps += [_step(_JUMP_GE, machine.above, 0, 1), _step(_RETURN, _ERRNO | errno.EPERM)]
    checks = dict.fromkeys(machine.denied.values(), _refused(errno.EPERM))
    # Their flags lie in memory; libc then falls back to clone and openat.
    checks |= {checked[name]: _refused(errno.ENOSYS) for name in ("clone3", "openat2")}
    checks |= {checked["clone"]: _only_threads(), checked["prctl"]: _no_outliving()}
    checks |= {checked[name]: _only_own_process(pid) for name in ("kill", "tgkill")}
    flags = {"open": 1, "openat": 2}
    checks |= {checked[name]: _no_truncating_read(at) for name, at in flags.items() if name in checked}
    return b"".join(steps) + _tree(sorted(checks.items()))


def _tree(checks: Sequence[tuple[int, bytes]]) -> bytes:
    """The checks of system calls by number, found by halving, in few steps.

    The kernel compiles a filter whenever it is installed, and tries all numbers on it.
    """
    if len(checks) <= _LEAF:
        return _leaf(checks)
    half = len(checks) // 2
    below, others = _tree(checks[:half]), _tree(checks[half:])
    return _step(_JUMP_GE, checks[half][0], len(below) // _STEP_BYTES, 0) + below + others


def _leaf(checks: Sequence[tuple[int, bytes]]) -> bytes:
    """One comparison after the other; equal checks follow once."""
    jumps, following = b"", _step(_RETURN, _ALLOW)
    places = {}
    for check in dict.fromkeys(check for _, check in checks):
        places[check] = len(following) // _STEP_BYTES
        following += check
    for left, (number, check) in zip(reversed(range(len(checks))), checks, strict=True):
        jumps += _step(_JUMP_EQ, number, left + places[check], 0)
    return jumps + following


class Filter:
    """This machine's filter, made before a process forks; its child installs it, which cannot be undone."""

    def __init__(self, libc: ctypes.PyDLL) -> None:
        self._prctl = libc.prctl
        steps = program(ARCHITECTURES[os.uname().machine], _NO_PID)
        self._code = ctypes.create_string_buffer(steps, len(steps))
        header = struct.pack("HxxxxxxP", len(steps) // _STEP_BYTES, ctypes.addressof(self._code))
        self._header = ctypes.create_string_buffer(header, len(header))
        marked = _step(_JUMP_EQ, _NO_PID, 0, 1)
        places = [at for at in range(0, len(steps), _STEP_BYTES) if steps.startswith(marked, at)]
        self._pids = [ctypes.c_uint32.from_buffer(self._code, at + _OPERAND) for at in places]
        if not places:
            raise OSError(errno.EINVAL, "the seccomp filter has no check of the pid")

    def install(self) -> None:
        """For the calling process. Raises OSError where the kernel has no seccomp."""
        own = os.getpid()
        for pid in self._pids:
            pid.value = own
        if self._prctl(_PR_SET_SECCOMP, _MODE_FILTER, self._header, 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp filter refused")
