"""The system calls that model-written code never needs, refused by a seccomp filter.

Threads are allowed, processes are not: nothing forks, nothing stays behind, nothing is executed.
"""

import ctypes
import errno
import os
import struct

from harness.grading.sandbox.jail.syscalls import ARCHITECTURES, Architecture

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_CLONE_THREAD = 0x00010000
_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NR_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16  # struct seccomp_data

_STEP_BYTES = 8  # struct sock_filter
_NO_PID = 0x7FFFFFFF  # greater than every pid; the own one replaces it
_PID_CHECKS = 2  # of kill and tgkill

_PR_SET_PDEATHSIG = 1


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refuse(number: int, error: int = errno.EPERM) -> bytes:
    return _step(_JUMP_EQ, number, 0, 1) + _step(_RETURN, _ERRNO | error)


def _only_own_process(number: int, pid: int) -> bytes:
    """A signal may go to the caller itself: abort() and raise() need it."""
    check = _load_argument(0) + _step(_JUMP_EQ, pid, 0, 1) + _step(_RETURN, _ALLOW)
    return _guarded(number, check + _step(_RETURN, _ERRNO | errno.EPERM))


def _only_threads(clone: int) -> bytes:
    check = _load_argument(0) + _step(_JUMP_SET, _CLONE_THREAD, 0, 1) + _step(_RETURN, _ALLOW)
    return _guarded(clone, check + _step(_RETURN, _ERRNO | errno.EPERM))


def _no_truncating_read(number: int, flags_argument: int) -> bytes:
    """O_RDONLY | O_TRUNC empties a file that Landlock before Linux 6.2 takes for one being read."""
    masked = _load_argument(flags_argument) + _step(_AND, os.O_ACCMODE | os.O_TRUNC)
    check = masked + _step(_JUMP_EQ, os.O_TRUNC, 0, 1) + _step(_RETURN, _ERRNO | errno.EPERM)
    return _guarded(number, check + _step(_RETURN, _ALLOW))


def _no_outliving(prctl: int) -> bytes:
    """Refuse to change PR_SET_PDEATHSIG: the child dies with the warden."""
    check = _load_argument(0) + _step(_JUMP_EQ, _PR_SET_PDEATHSIG, 0, 1)
    return _guarded(prctl, check + _step(_RETURN, _ERRNO | errno.EPERM) + _step(_RETURN, _ALLOW))


def _load_argument(index: int) -> bytes:
    return _step(_LOAD, _ARGS_OFFSET + 8 * index)


def _guarded(number: int, check: bytes) -> bytes:
    return _step(_JUMP_EQ, number, 0, len(check) // 8) + check


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
    steps += [_refuse(number) for number in machine.denied.values()]
    # Their flags lie in memory; libc then falls back to clone and openat.
    steps += [_refuse(checked[name], errno.ENOSYS) for name in ("clone3", "openat2")]
    steps += [_only_threads(checked["clone"])]
    steps += [_only_own_process(checked[name], pid) for name in ("kill", "tgkill")]
    steps += [_no_outliving(checked["prctl"])]
    flags = {"open": 1, "openat": 2}
    steps += [_no_truncating_read(checked[name], at) for name, at in flags.items() if name in checked]
    steps += [_step(_RETURN, _ALLOW)]
    return b"".join(steps)


def forbid_new_privileges(libc: ctypes.CDLL) -> None:
    """Set no_new_privs, which Landlock and seccomp require: set-uid programs have no effect."""
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs refused")


class Filter:
    """This machine's filter, made before a process forks; its child installs it, which cannot be undone."""

    def __init__(self) -> None:
        steps = program(ARCHITECTURES[os.uname().machine], _NO_PID)
        self._code = ctypes.create_string_buffer(steps, len(steps))
        self._start = ctypes.addressof(self._code)
        header = struct.pack("HxxxxxxP", len(steps) // _STEP_BYTES, self._start)
        self._header = ctypes.create_string_buffer(header, len(header))
        marked = _step(_JUMP_EQ, _NO_PID, 0, 1)
        self._places = [at for at in range(0, len(steps), _STEP_BYTES) if steps.startswith(marked, at)]
        if len(self._places) != _PID_CHECKS:
            raise OSError(errno.EINVAL, "the seccomp filter has another number of checks of the pid")

    def install(self, libc: ctypes.CDLL) -> None:
        """For the calling process. Raises OSError where the kernel has no seccomp."""
        own = _step(_JUMP_EQ, os.getpid(), 0, 1)
        for place in self._places:
            ctypes.memmove(self._start + place, own, _STEP_BYTES)
        if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, self._header, 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp filter refused")
