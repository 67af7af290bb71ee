"""The system calls that model-written code never needs, refused by a seccomp filter (x86_64).

Threads are allowed, processes are not: nothing forks, nothing stays behind, nothing is executed.
Numbers: Linux arch/x86/entry/syscalls/syscall_64.tbl.
"""

import ctypes
import errno
import os
import struct

MACHINE = "x86_64"
_AUDIT_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_CLONE_THREAD = 0x00010000
_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NR_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16  # struct seccomp_data

_STEP_BYTES = 8  # struct sock_filter
_NO_PID = 0x7FFFFFFF  # greater than every pid; the own one replaces it
_PID_CHECKS = 2  # of kill and tgkill

_OPEN, _OPENAT, _OPENAT2 = 2, 257, 437
_CLONE, _CLONE3, _KILL, _TGKILL, _PRCTL = 56, 435, 62, 234, 157
_PR_SET_PDEATHSIG = 1

DENIED = {
    "socket": 41, "fork": 57, "vfork": 58, "execve": 59, "execveat": 322,
    "tkill": 200, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
    "pidfd_open": 434, "pidfd_send_signal": 424, "pidfd_getfd": 438,
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440, "kcmp": 312,
    "unshare": 272, "setns": 308, "chroot": 161, "pivot_root": 155, "personality": 135,
    "mount": 165, "umount2": 166, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "mount_setattr": 442,
    "name_to_handle_at": 303, "open_by_handle_at": 304,
    "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452,
    "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260,
    "utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280, "truncate": 76,
    "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "setxattrat": 463,
    "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "removexattrat": 466,
    "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "msgget": 68, "mq_open": 240,
    "memfd_create": 319, "memfd_secret": 447, "userfaultfd": 323, "io_uring_setup": 425,
    "bpf": 321, "perf_event_open": 298, "fanotify_init": 300,
    "add_key": 248, "request_key": 249, "keyctl": 250,
    "init_module": 175, "delete_module": 176, "finit_module": 313, "kexec_load": 246, "kexec_file_load": 320,
    "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163, "quotactl": 179, "quotactl_fd": 443,
    "syslog": 103, "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "sethostname": 170,
    "iopl": 172, "ioperm": 173,
}  # fmt: skip


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refuse(number: int, error: int = errno.EPERM) -> bytes:
    return _step(_JUMP_EQ, number, 0, 1) + _step(_RETURN, _ERRNO | error)


def _only_own_process(number: int, pid: int) -> bytes:
    """A signal may go to the caller itself: abort() and raise() need it."""
    check = _load_argument(0) + _step(_JUMP_EQ, pid, 0, 1) + _step(_RETURN, _ALLOW)
    return _guarded(number, check + _step(_RETURN, _ERRNO | errno.EPERM))


def _only_threads() -> bytes:
    check = _load_argument(0) + _step(_JUMP_SET, _CLONE_THREAD, 0, 1) + _step(_RETURN, _ALLOW)
    return _guarded(_CLONE, check + _step(_RETURN, _ERRNO | errno.EPERM))


def _no_truncating_read(number: int, flags_argument: int) -> bytes:
    """O_RDONLY | O_TRUNC empties a file that Landlock before Linux 6.2 takes for one being read."""
    masked = _load_argument(flags_argument) + _step(_AND, os.O_ACCMODE | os.O_TRUNC)
    check = masked + _step(_JUMP_EQ, os.O_TRUNC, 0, 1) + _step(_RETURN, _ERRNO | errno.EPERM)
    return _guarded(number, check + _step(_RETURN, _ALLOW))


def _no_outliving() -> bytes:
    """Refuse to change PR_SET_PDEATHSIG: the child dies with the warden."""
    check = _load_argument(0) + _step(_JUMP_EQ, _PR_SET_PDEATHSIG, 0, 1)
    return _guarded(_PRCTL, check + _step(_RETURN, _ERRNO | errno.EPERM) + _step(_RETURN, _ALLOW))


def _load_argument(index: int) -> bytes:
    return _step(_LOAD, _ARGS_OFFSET + 8 * index)


def _guarded(number: int, check: bytes) -> bytes:
    return _step(_JUMP_EQ, number, 0, len(check) // 8) + check


def program(pid: int) -> bytes:
    """The filter for the process ``pid``, as an array of struct sock_filter."""
    return _before() + _only_own_process(_KILL, pid) + _only_own_process(_TGKILL, pid) + _behind()


def _before() -> bytes:
    steps = [
        _step(_LOAD, _ARCH_OFFSET),
        _step(_JUMP_EQ, _AUDIT_ARCH_X86_64, 1, 0),
        _step(_RETURN, _KILL_PROCESS),
        _step(_LOAD, _NR_OFFSET),
        _step(_JUMP_GE, _X32_BIT, 0, 1),
        _step(_RETURN, _ERRNO | errno.EPERM),
        *(_refuse(number) for number in DENIED.values()),
        _refuse(_CLONE3, errno.ENOSYS),  # its flags lie in memory; libc then falls back to clone
        _refuse(_OPENAT2, errno.ENOSYS),
        _only_threads(),
    ]
    return b"".join(steps)


def _behind() -> bytes:
    steps = [
        _no_outliving(),
        _no_truncating_read(_OPEN, 1),
        _no_truncating_read(_OPENAT, 2),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


def forbid_new_privileges(libc: ctypes.CDLL) -> None:
    """Set no_new_privs, which Landlock and seccomp require: set-uid programs have no effect."""
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs refused")


class Filter:
    """The filter, made before a process forks; its child installs it, which cannot be undone."""

    def __init__(self) -> None:
        steps = program(_NO_PID)
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
