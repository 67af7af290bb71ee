"""Child processes that are copies of this one: they exist before their work is known, and import nothing.

A fresh interpreter takes 0.2 to 0.4 s of CPU before it can work, most of it for modules that this process has
already. A copy takes 0.01 s.
"""

import gc
import io
import multiprocessing
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing import context
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from harness.cli.signals import blocked_in_children
from sut.processes.spawn import die_with_parent, spawn, stop

_OPEN = Path("/proc/self/fd")
_STANDARD = 3  # input, output, errors
_MOST_AT_ONCE = 200  # descriptors in a message; Linux takes 253
_DESCRIPTORS, _WORK = b"d", b"w"  # what follows in the channel

_Work = Callable[..., None]


class PreparedProcess:
    """A child that waits for its work, and does it once. SIGINT, SIGTERM and SIGHUP stay blocked in it.

    It holds no descriptor of this process but the standard streams and those among the work's arguments:
    another child's end of a channel would hide the end of that child. Where this process has other threads,
    whose locks would stay closed in a copy, the child is a fresh interpreter, started with the work.
    """

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._channel: socket.socket | None = None
        if threading.active_count() == 1:
            self._process, self._channel = _copy_of_this_process()

    def begin(self, work: _Work, *arguments: Any) -> BaseProcess:
        """Give the child its work; the arguments are pickled as for a process that is spawned."""
        if self._process is None or self._channel is None:
            return spawn(work, *arguments)
        message, descriptors = _pickled((work, arguments))
        died = suppress(BrokenPipeError, ConnectionResetError)  # its own channels show that
        with self._channel as channel, died:
            for first in range(0, len(descriptors), _MOST_AT_ONCE):
                socket.send_fds(channel, [_DESCRIPTORS], descriptors[first : first + _MOST_AT_ONCE])
            channel.sendall(_WORK + message)
        self._channel = None
        return self._process

    def dismiss(self) -> None:
        """End a child that got no work."""
        if self._process is not None and self._channel is not None:
            self._channel.close()
            self._channel = None
            stop(self._process, 1.0)


def _copy_of_this_process() -> tuple[BaseProcess, socket.socket]:
    ours, theirs = socket.socketpair()
    inherited = [
        number for number in _open_descriptors() if number not in (theirs.fileno(), *range(_STANDARD))
    ]
    copy = multiprocessing.get_context("fork").Process(
        target=_wait_and_work, args=(theirs, inherited), daemon=True
    )
    with blocked_in_children(forked=True):
        copy.start()
    theirs.close()
    return copy, ours


def _open_descriptors() -> list[int]:
    listed = [int(entry.name) for entry in _OPEN.iterdir()]  # with the listing's own, which is closed again
    return list(filter(_is_open, listed))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _wait_and_work(channel: socket.socket, inherited: Iterable[int]) -> None:
    """The life of a copy. Objects of the descriptors that are closed here live on in the frames below."""
    gc.freeze()  # a collection would write to every object, and so copy all memory
    die_with_parent()
    for number in inherited:
        os.close(number)
    while (word := _next_word(channel)) == _DESCRIPTORS:
        pass
    if not word:
        os._exit(0)  # there is no work
    with channel.makefile("rb") as stream:
        work, arguments = ForkingPickler.loads(stream.read())
    channel.close()
    work(*arguments)


def _next_word(channel: socket.socket) -> bytes:
    """The word, of which the descriptors are kept; b"" at the end."""
    word, descriptors, _, _ = socket.recv_fds(channel, 1, _MOST_AT_ONCE, socket.MSG_CMSG_CLOEXEC)
    _Carried.descriptors += descriptors
    return word


class _Carried:
    """A descriptor among the arguments: its place among those that come with them."""

    descriptors: list[int] = []  # noqa: RUF012 - of the one parcel that a process gets

    def __init__(self, place: int) -> None:
        self._place = place

    def detach(self) -> int:
        """The descriptor in this process."""
        return self.descriptors[self._place]


class _Parcel:
    """What multiprocessing's reductions of sockets, pipes and shared memory take for the child's Popen."""

    DupFd = _Carried

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def duplicate_for_child(self, descriptor: int) -> int:
        """Carry the descriptor; returns its place."""
        self.descriptors.append(descriptor)
        return len(self.descriptors) - 1


def _pickled(value: object) -> tuple[bytes, list[int]]:
    """The value, and the descriptors that go with it."""
    parcel, stream = _Parcel(), io.BytesIO()
    context.set_spawning_popen(parcel)  # type: ignore[arg-type]
    try:
        ForkingPickler(stream, pickle.HIGHEST_PROTOCOL).dump(value)
    finally:
        context.set_spawning_popen(None)
    return stream.getvalue(), parcel.descriptors
