"""Ctrl-C, SIGTERM and a lost terminal: what each means at each stage of the program.

Before there are child processes the program leaves at once; while they run the signal becomes one exception
in the main thread; once the result is known it comes too late. A signal that was ignored when the program
started stays ignored: nohup asks for that with SIGHUP, a shell's background job with SIGINT.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptedRun(BaseException):
    """The user or the system asked the program to end; ``exit_code`` is the shell's convention."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum
        self.exit_code = 128 + signum


def leave_on_signals() -> None:
    """End the process on a signal, with one line: for the time in which nothing has begun.

    An exception would not do: what is raised inside the import of an extension module can get lost there.
    """
    for signum in _ours():
        signal.signal(signum, _leave)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise InterruptedRun on the first signal; later ones are ignored while the run is being ended.

    Only handlers of leave_on_signals are replaced: a caller from Python keeps its own. Behind the block
    signals stay ignored once one has come or the result is known (uninterrupted).
    """
    handled = [signum for signum in _SIGNALS if signal.getsignal(signum) in (_leave, _interrupt)]
    before = {signum: signal.signal(signum, _interrupt) for signum in handled}
    try:
        yield
    finally:
        for signum, handler in before.items():
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore signals while the result of a run is written, which takes seconds after a run of hours.

    A program's own signals stay ignored after it, until the result is printed; a caller from Python gets its
    handlers back. Does nothing outside of the main thread, where no signal arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in _SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            if handler is not _interrupt:
                signal.signal(signum, handler)


def ignore_signals() -> None:
    """Ignore signals from now on: the result is known, and it is being printed."""
    for signum in _SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Handle the first signal that comes inside the block after it, by the handler from before."""
    came: list[int] = []
    before = {signum: signal.signal(signum, lambda number, _: came.append(number)) for signum in _ours()}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    if came:
        signal.raise_signal(came[0])


@contextmanager
def signals_kept() -> Iterator[None]:
    """What signals do is the same behind it as before: for a run that is followed by another."""
    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _ours() -> list[signal.Signals]:
    return [signum for signum in _SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]


def _leave(signum: int, frame: FrameType | None) -> None:
    program = os.path.basename(sys.argv[0])  # noqa: PTH119 - nothing is imported here any more
    print(f"{program}: ended by {signal.Signals(signum).name}", file=sys.stderr, flush=True)
    os._exit(128 + signum)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    ignore_signals()
    raise InterruptedRun(signum)
