"""Work that is shared among processes. They end with this one, however it ends."""

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

from harness.cli.signals import blocked_in_children
from harness.errors import HarnessError

log = logging.getLogger("mlperf")

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@contextmanager
def computing(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    processes: int,
    at_a_time: int,
    killed: HarnessError,
    begin: Callable[[], None] | None = None,
) -> Iterator[Iterator[_Result]]:
    """The results of ``work`` for all items, in order; each process calls ``begin`` first.

    A process takes ``at_a_time`` items; 0 processes: all is done in this one, as without semaphores.
    If the block raises, the processes are killed at once. Raises ``killed`` if one was killed by others.
    """
    if not processes:
        yield map(work, items)
        return
    if why := _no_semaphores():
        log.warning("/dev/shm: %s: one process does the work of %d", why, processes)
        if begin is not None:
            begin()
        yield map(work, items)
        return
    # A fork of a process with threads may lock itself. multiprocessing.Pool waits forever for the result of a
    # process that was killed, and at its end for a lock that was held by a process it killed itself.
    start = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, start, _begin, (begin,))
    try:
        with blocked_in_children({signal.SIGINT, signal.SIGHUP}):  # the pool ends its processes by SIGTERM
            chunks = deque(pool.submit(_each, work, chunk) for chunk in _chunks(iter(items), at_a_time))
        # While this process can write results, too, half of one is waited for when all that do are killed, as
        # by a signal to the process group. While it can read items, too, Python before 3.11.7 and 3.12.1 then
        # writes those larger than the pipe forever.
        pool._result_queue._writer.close()  # type: ignore[attr-defined]
        pool._call_queue._reader.close()  # type: ignore[attr-defined]
        with _killed_together(tuple(pool._processes.values())):
            yield _in_order(chunks)
    except BrokenProcessPool as error:
        raise killed from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _killed_together(processes: Collection[BaseProcess]) -> Iterator[None]:
    """Kill all processes as soon as one has ended within the block, or the block raises.

    One that is killed while it writes a result leaves half of it and the lock of the queue: the others wait
    for that lock, and while they live their parent waits for the other half.
    """
    ended = {process.sentinel: process for process in processes}
    left, leave = multiprocessing.Pipe(duplex=False)

    def kill() -> None:
        for process in ended.values():
            process.kill()

    def watch() -> None:
        if left not in wait([left, *ended]):
            kill()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        kill()
        raise
    finally:
        leave.close()
        thread.join()
        left.close()


def _no_semaphores() -> str:
    """Why processes cannot have a lock in common: Linux keeps it in /dev/shm, which a container may lack."""
    try:
        multiprocessing.get_context("fork").Lock()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _chunks(items: Iterator[_Item], at_a_time: int) -> Iterator[list[_Item]]:
    return iter(lambda: list(islice(items, at_a_time)), [])


def _each(work: Callable[[_Item], _Result], chunk: list[_Item]) -> list[_Result]:
    return list(map(work, chunk))


def _in_order(chunks: deque[Future[list[_Result]]]) -> Iterator[_Result]:
    """The iterator of Executor.map cancels the rest when it raises: if a process was killed, this may end the
    thread that fails them, and the pool's other processes are never ended.
    """
    while chunks:
        yield from chunks.popleft().result()


def _begin(begin: Callable[[], None] | None) -> None:
    """Begin a process, which ends when its parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
    if begin is not None:
        begin()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
