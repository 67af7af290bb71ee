"""System calls that Python has only where it was built for a young system: those of conda and uv lack them.

By the C library, which is the machine's own. All raise OSError.
"""

import ctypes
import os

_MFD_CLOEXEC = 1
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434  # the numbers of all architectures; glibc 2.36 has functions
_system = ctypes.CDLL(None, use_errno=True)
_system.syscall.restype = ctypes.c_long


def memory_file(name: str) -> int:
    """The descriptor of a new file in memory (memfd_create(2)); programs started here do not inherit it."""
    return _checked(_system.memfd_create(name.encode(), _MFD_CLOEXEC))


def process_descriptor(pid: int) -> int:
    """A descriptor that is readable once the process has ended (pidfd_open(2), Linux 5.3)."""
    return _checked(_system.syscall(ctypes.c_long(_PIDFD_OPEN), ctypes.c_long(pid), ctypes.c_long(0)))


def send_signal(descriptor: int, signum: int) -> None:
    """Send a signal to the process of a descriptor (pidfd_send_signal(2)), and to no other."""
    arguments = (_PIDFD_SEND_SIGNAL, descriptor, signum, 0, 0)
    _checked(_system.syscall(*map(ctypes.c_long, arguments)))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
