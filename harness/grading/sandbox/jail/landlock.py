"""Landlock: the files that model-written code may read, and nothing that it may write.

Source: Linux Documentation/userspace-api/landlock.rst and include/uapi/linux/landlock.h.
"""

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Iterator

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_QUERY_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_READ = _READ_FILE | _READ_DIR
_FS_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many bits the kernel knows
_NET_TCP = 0b11  # bind, connect: since ABI 4
_SCOPES = 0b11  # abstract unix sockets, signals: since ABI 6


def abi(libc: ctypes.CDLL) -> int:
    """Landlock version of the running kernel; 0 where it is absent or switched off."""
    version: int = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _QUERY_VERSION)
    return max(0, version)


def restrict(libc: ctypes.CDLL, readable: Iterable[str], devices: Iterable[str]) -> None:
    """Allow only reading of ``readable`` trees, reading and writing of ``devices``. Raises OSError."""
    ruleset = _create(libc)
    try:
        for path in readable:
            _allow(libc, ruleset, path, _READ)
        for path in devices:
            _allow(libc, ruleset, path, _READ_FILE | _WRITE_FILE)
        _check(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _create(libc: ctypes.CDLL) -> int:
    version = abi(libc)
    rights = (1 << _FS_RIGHTS_BY_ABI.get(version, max(_FS_RIGHTS_BY_ABI.values()))) - 1
    fields = [rights]
    if version >= 4:
        fields.append(_NET_TCP)
    if version >= 6:
        fields.append(_SCOPES)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    size = ctypes.c_size_t(len(attributes))
    return _check(libc.syscall(_CREATE_RULESET, attributes, size, 0), "landlock_create_ruleset")


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    with _opened(path) as fd:
        if fd is None:
            return
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= ~_READ_DIR
        rule = struct.pack("=Qi", rights, fd)
        _check(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"landlock_add_rule {path}")


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int | None]:
    """A path that does not exist on this machine needs no rule."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what} refused")
    return result
