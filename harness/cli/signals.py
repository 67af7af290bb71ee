"""Effect of Ctrl-C, SIGTERM and a lost terminal at each stage of a program.

Before there are child processes the program ends at once; while they run a signal becomes an exception in the
main thread; once the result is known signals are ignored. A signal that was ignored when the program
started stays ignored: nohup does so with SIGHUP, a shell with SIGINT of its background jobs.
"""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal, cast, get_args

from harness.errors import EXIT_INVALID, EXIT_VALID
from harness.text import SIGNALLED

SignalName = Literal["SIGINT", "SIGTERM", "SIGHUP"]
"""a signal that ends a run, as records name it"""
_SIGNALS = tuple(signal.Signals[name] for name in get_args(SignalName))
_AGAIN_S = 0.01  # wait before a signal whose exception was swallowed is sent again
_delivered: list[int] = []  # signals whose exception was raised; an Event's lock would stop a second handler
_kept: list[list[int]] = []  # for each block of signals_kept the signals that came while a result was written


class InterruptedRun(BaseException):
    """The user or the system asked the program to end; ``exit_code`` is the shell's convention."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum
        self.exit_code = SIGNALLED + signum


def exit_code_after(ended_by: SignalName | None, *, good: bool) -> int:
    """A program's: 0 for a ``good`` end, 4 for another one, 128 and the number of a signal that ended it."""
    if ended_by is not None:
        return InterruptedRun(signal.Signals[ended_by]).exit_code
    return EXIT_VALID if good else EXIT_INVALID


def require_no_signal(ended_by: SignalName | None) -> None:
    """Raise InterruptedRun where a signal has ended what a program has called."""
    if ended_by is not None:
        raise InterruptedRun(signal.Signals[ended_by])


def signal_name(interruption: InterruptedRun | KeyboardInterrupt) -> SignalName:
    """The signal of an interruption; Python's own for SIGINT names none."""
    return cast("SignalName", str(interruption) or "SIGINT")


def leave_on_signals() -> None:
    """End the process on a signal, with one line, as long as nothing has started.

    An exception would not be enough: one raised while an extension module is imported can get lost.
    """
    sys.unraisablehook = _send_again
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
    hook, sys.unraisablehook = sys.unraisablehook, _send_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for signum, handler in before.items():
            if signal.getsignal(signum) not in (signal.SIG_IGN, _keep):
                signal.signal(signum, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore signals while the result of a run is written, which takes seconds after a run of hours.

    A program's own signals stay ignored after it, until the result is printed; a caller from Python gets its
    handlers back. Within signals_kept they come at the end of that block. Does nothing outside of the main
    thread, where no signal arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    for signum in _ours():
        signal.signal(signum, _keep if _kept else signal.SIG_IGN)
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
def blocked_in_children(
    signums: Collection[signal.Signals] = _SIGNALS, *, forked: bool = False
) -> Iterator[None]:
    """Processes that are started within the block inherit a block of ``signums``; here signals are deferred.

    The mask alone does not stop the handler: the kernel can deliver a signal to another thread, and Python
    then runs the handler in this one. An exception halfway through a start would end the child with a
    traceback. ``forked``: they are copies of this one, which need no resource tracker.
    """
    if not forked:
        from multiprocessing import resource_tracker  # here: most programs start no process

        # When it starts, it unblocks SIGINT and SIGTERM. Of one that was killed Python warns that resources
        # may leak.
        with warnings.catch_warnings(action="ignore"):
            resource_tracker.ensure_running()
    with _deferred():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signums)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Restore the signal handlers after the block, for a run that is followed by another.

    A signal that came while the run's result was written is handled then.
    """
    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    _kept.append([])
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        if came := _kept.pop():
            signal.raise_signal(came[0])


@contextmanager
def _deferred() -> Iterator[None]:
    """Delay the first signal of the block until its end; the previous handler then handles it."""
    came: list[int] = []
    before = {signum: signal.signal(signum, lambda number, _: came.append(number)) for signum in _ours()}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    if came:
        signal.raise_signal(came[0])


def _ours() -> list[signal.Signals]:
    return [signum for signum in _SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]


def _keep(signum: int, frame: FrameType | None) -> None:
    _kept[-1].append(signum)


def _leave(signum: int, frame: FrameType | None) -> None:
    program = os.path.basename(sys.argv[0])  # noqa: PTH119 - no import inside a signal handler
    print(f"{program}: ended by {signal.Signals(signum).name}", file=sys.stderr, flush=True)
    os._exit(SIGNALLED + signum)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    around = frame
    while around is not None:
        if around.f_code is _send_again.__code__:
            return  # an exception would get lost here as well, and the signal comes again
        around = around.f_back
    _delivered.append(signum)
    ignore_signals()
    raise InterruptedRun(signum)


def _send_again(lost: "sys.UnraisableHookArgs") -> None:
    """Send a signal again whose exception Python swallowed, in a weak reference's callback or a finalizer."""
    if isinstance(lost.exc_value, BufferError) and _delivered:
        return  # of a message in memory that was read when the signal came; Python 3.13 tells that
    if not isinstance(lost.exc_value, InterruptedRun):
        sys.__unraisablehook__(lost)
        return
    signum = lost.exc_value.signum
    _delivered.clear()
    signal.signal(signum, _interrupt)
    threading.Thread(target=_insist, args=(signum,), name="signal", daemon=True).start()


def _insist(signum: int) -> None:
    """Send a signal until its exception was raised, or until it has another handler."""
    while not _delivered:
        time.sleep(_AGAIN_S)
        handler = signal.getsignal(signum)
        if handler is signal.SIG_IGN:
            return
        os.kill(os.getpid(), signum)
        if handler is not _interrupt:
            return
