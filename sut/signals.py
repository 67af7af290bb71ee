"""Ctrl-C, SIGTERM and a lost terminal as one exception in the main thread."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptedRun(BaseException):
    """The user or the system asked the program to end; ``exit_code`` is the shell's convention."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum
        self.exit_code = 128 + signum


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise InterruptedRun on the first signal; later ones are ignored while the run is being ended.

    A signal that was ignored when the program started stays ignored: nohup asks for that with SIGHUP, and a
    shell's background job with SIGINT.
    """
    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    ours = [signum for signum, handler in before.items() if handler is not signal.SIG_IGN]
    for signum in ours:
        signal.signal(signum, _interrupt)
    try:
        yield
    except InterruptedRun:
        raise  # the program ends: what is left of it is not interrupted again
    except BaseException:
        _restore(before)
        raise
    else:
        _restore(before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """For a report that takes seconds at the end of a run of hours: a signal comes too late to end it."""
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in _SIGNALS}
    try:
        yield
    finally:
        _restore(before)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise InterruptedRun(signum)
