"""System calls that Python has only where it was built for a new system: those of conda and uv lack them.

By the C library, which is the machine's own. All raise OSError, with the name of the call.
"""

import ctypes
import os

_MFD_CLOEXEC = 1
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434  # the numbers of all architectures; glibc 2.36 has functions
_system = ctypes.CDLL(None, use_errno=True)
_system.syscall.restype = ctypes.c_long


def memory_file(name: str) -> int:
    """The descriptor of a new file in memory (memfd_create(2)); programs started here do not inherit it."""
    return _checked("memfd_create", _system.memfd_create(name.encode(), _MFD_CLOEXEC))


def process_descriptor(pid: int) -> int:
    """A descriptor that is readable once the process has ended (pidfd_open(2), Linux 5.3)."""
    arguments = (_PIDFD_OPEN, pid, 0)
    return _checked("pidfd_open", _system.syscall(*map(ctypes.c_long, arguments)))


def send_signal(descriptor: int, signum: int) -> None:
    """Send a signal to the process of a descriptor (pidfd_send_signal(2)), and to no other."""
    arguments = (_PIDFD_SEND_SIGNAL, descriptor, signum, 0, 0)
    _checked("pidfd_send_signal", _system.syscall(*map(ctypes.c_long, arguments)))


def _checked(call: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
    return result
