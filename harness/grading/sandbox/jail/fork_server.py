"""The fork server: has Python and its modules loaded, and forks a confined child for every test run.

It is a process of its own because after a fork every memory page that either side writes to is copied, and
Python writes to objects even when it only reads them. So the process that forks does little else, and what
its children need is made before the fork.
"""

import _random
import array
import contextlib
import ctypes
import functools
import gc
import importlib
import os
import random
import select
import signal
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from harness.grading.sandbox.jail import child_watch, official, strict
from harness.grading.sandbox.jail.confine import Confinement, confiner
from harness.grading.sandbox.jail.seccomp import PR_SET_PDEATHSIG
from harness.system_calls import process_descriptor, send_signal

LOAD, STRICT, OFFICIAL = range(3)
CONFINEMENT_FAILED, CONFINEMENT_EXIT = "not confined", 113
_REQUEST = struct.Struct("=B")  # what; the name of a module or of a function follows
_ANSWER = struct.Struct("=i")  # process id, with which the pidfd comes, or wait status
_LONGEST_NAME, _MOST_FILES = 1 << 16, 8
_SOON_MS = 20


class ForkedChild(NamedTuple):
    """A child of the fork server."""

    pid: int
    pidfd: int
    """Refers to its process and no other, even when it has ended."""
    ending: bytes = b""
    """The server's message where it has ended already, without the other two; else empty."""

    def signal(self, signum: int) -> None:
        """As child_watch.Process."""
        with contextlib.suppress(ProcessLookupError):
            send_signal(self.pidfd, signum)


class ForkServer:
    """The warden's side: one child at a time. Raises EOFError or OSError where the server died."""

    def __init__(self, confinement: Confinement, libc: ctypes.PyDLL) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        warden = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._channel.close()
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() == warden:
                with contextlib.suppress(EOFError, BrokenPipeError):
                    _serve(theirs, confinement, libc)
            os._exit(0)
        theirs.close()

    def fileno(self) -> int:
        """Readable once the child has ended."""
        return self._channel.fileno()

    def close(self) -> None:
        """End the server, which has no child now; its CPU time becomes this process's."""
        self._channel.close()
        os.waitpid(self.pid, 0)

    def load(self, module: str) -> None:
        """Import a module for all later children, if it is there."""
        self._channel.send(_REQUEST.pack(LOAD) + module.encode())
        self._receive(1)

    def start(self, kind: int, function: str, files: Sequence[int]) -> ForkedChild:
        """Fork a child that has ``files`` as its descriptors 0, 1, 2, ...

        A strict one that is quick has ended when this returns.
        """
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
        name = function.encode("utf-8", "surrogatepass")
        self._channel.sendmsg([_REQUEST.pack(kind) + name], [rights])
        answer, fds = _with_files(self._channel, _ANSWER.size)
        return ForkedChild(*_ANSWER.unpack(answer), *fds) if fds else ForkedChild(0, -1, answer)

    def end(self, child: ForkedChild) -> str:
        """Kill the child if it still runs, and wait for its end: its status."""
        ending = child.ending
        if not ending:
            child.signal(signal.SIGKILL)
            ending = self._receive(_ANSWER.size)
            os.close(child.pidfd)
        return child_watch.ending(*_ANSWER.unpack(ending))

    def _receive(self, size: int) -> bytes:
        answer = self._channel.recv(size)
        if not answer:
            raise EOFError("the fork server died")
        return answer


def _with_files(channel: socket.socket, size: int) -> "tuple[bytes, array.array[int]]":
    """One message and the descriptors that came with it; EOFError when the other side has closed."""
    fds = array.array("i")
    message, rights, _, _ = channel.recvmsg(size, socket.CMSG_SPACE(_MOST_FILES * fds.itemsize))
    if not message:
        raise EOFError("the other side closed the channel")
    for _, _, content in rights:
        fds.frombytes(content)
    return message, fds


def _serve(channel: socket.socket, confinement: Confinement, libc: ctypes.PyDLL) -> None:
    """Fork one child after the other until the warden ends."""
    run = _Run(confinement, libc)
    while os.dup(0) < _MOST_FILES:  # so that no file that arrives has a number that a child gives to another
        pass
    gc.disable()
    _freeze()
    while True:
        message, files = _with_files(channel, _REQUEST.size + _LONGEST_NAME)
        (kind,) = _REQUEST.unpack_from(message)
        if kind == LOAD:
            with contextlib.suppress(ImportError):
                importlib.import_module(message[_REQUEST.size :].decode())
            _freeze()
            channel.send(b"1")
            continue
        pid = _fork(libc)
        if pid == 0:
            run.child(kind, message[_REQUEST.size :], files)
        pidfd = process_descriptor(pid)
        if kind == OFFICIAL or not _ends_soon(pidfd):
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (pidfd,)))
            channel.sendmsg([_ANSWER.pack(pid)], [rights])
        for fd in (pidfd, *files):
            os.close(fd)
        _, status = os.waitpid(pid, 0)
        channel.send(_ANSWER.pack(status))


def _fork(libc: ctypes.PyDLL) -> int:
    """Fork by the C library alone. Raises OSError where it is refused.

    With the hooks of ``os.fork`` a child copies more memory pages: they renew locks, which a process with a
    single thread does not need, and seed ``random``, which ``_Run`` does.
    """
    pid: int = libc.fork()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "fork refused")
    return pid


def _ends_soon(pidfd: int) -> bool:
    """Wait for the end of a quick process: the warden then has one message to read instead of two."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(_SOON_MS))


def _freeze() -> None:
    """Keep a child's garbage collector from writing to shared pages."""
    gc.collect()
    gc.freeze()


class _Run:
    """The work of a child, and the objects for it, made before the fork."""

    def __init__(self, confinement: Confinement, libc: ctypes.PyDLL) -> None:
        self._confine = confiner(confinement, libc)
        self._seed = functools.partial(_random.Random.seed, random._inst)
        self._strict, self._official = strict.PreparedProcess(), official.PreparedModule()
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

    def child(self, kind: int, function: bytes, files: Sequence[int]) -> NoReturn:
        """Run a solution and exit."""
        exit_code = 1
        try:
            self._become_child(files)
            name = function.decode("utf-8", "surrogatepass")
            if kind == STRICT:
                exit_code = strict.run(name, self._strict)
            else:
                exit_code = official.serve_tests(name, self._official)
        finally:
            os._exit(exit_code)

    def _become_child(self, files: Sequence[int]) -> None:
        """Make ``files`` descriptors 0, 1, 2, ..., close all others, and confine this process."""
        try:
            gc.enable()
            self._seed()
            for target, fd in enumerate(files):
                os.dup2(fd, target)
            os.closerange(len(files), 1 << 16)
            self._confine()
        except BaseException as error:  # noqa: BLE001 - the process's edge
            os.write(2, f"{CONFINEMENT_FAILED}: {error}\n".encode())
            os._exit(CONFINEMENT_EXIT)
