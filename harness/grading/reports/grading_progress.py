"""Progress of grading: a bar for people, a line a minute for log files, a file for ``report.py watch``."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TextIO

import msgspec

from harness.cli.streams import control
from harness.errors import machine_failure
from harness.files import GRADING_PROGRESS, atomic_write

_BAR = 30
_REDRAW_S, _LINE_S = 0.2, 60.0
_STEADY_S = 5.0  # before that a rate has no meaning
_FILE_S = 2.0

log = logging.getLogger("mlperf")


class ProgressBar:
    """Shows done / total of the present stage; ends its line when the context ends."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._is_terminal = stream.isatty()
        self._shown_at = -_LINE_S if self._is_terminal else clock()
        self._is_open = False
        self._stage, self._began = "", 0.0

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the line of a terminal."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
            self._is_open = False

    def show(self, done: int, total: int, what: str) -> None:
        """Called after every step; draws as often as a reader can follow."""
        now, pause = self._clock(), _REDRAW_S if self._is_terminal else _LINE_S
        if what != self._stage:
            self._stage, self._began = what, now
        if now - self._shown_at < pause and not (self._is_terminal and done == total):
            return
        self._shown_at = now
        line = f"{done}/{total} {what}{_time_left(now - self._began, done, total)}"
        if self._is_terminal:
            filled = _BAR * done // total
            control(self._stream, "\r")
            self._stream.write(f"[{'#' * filled}{'.' * (_BAR - filled)}] {line}")
            control(self._stream, "\033[K")
            self._is_open = True
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()


def _time_left(elapsed_s: float, done: int, total: int) -> str:
    """At the rate so far; empty at the beginning and at the end."""
    if elapsed_s < _STEADY_S or done == total:
        return ""
    seconds = round(elapsed_s / done * (total - done))
    minutes, hours = seconds // 60, seconds // 3600
    left = f"{hours} h {minutes % 60:02} min" if hours else f"{minutes} min {seconds % 60:02} s"
    return f", about {left} left"


class GradingProgress(msgspec.Struct, frozen=True):
    """Steps of the present stage: "outputs", or what a batch of a data set names its steps."""

    time: datetime
    stage: str
    done: int
    total: int
    elapsed_s: float
    """of the stage"""


class ProgressFile:
    """Keeps grading_progress.json in a folder while the context lasts; None keeps nothing.

    The first failure to write ends it, with a warning.
    """

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = None if folder is None else folder / GRADING_PROGRESS
        self._clock = clock
        self._stage, self._began, self._next = "", 0.0, 0.0
        self._broken = False

    def __enter__(self) -> "ProgressFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def show(self, done: int, total: int, what: str) -> None:
        """Called after every step; writes at the first one of a stage and each two seconds."""
        if self._path is None or self._broken:
            return
        now = self._clock()
        if what != self._stage:
            self._stage, self._began = what, now
        elif now < self._next:
            return
        self._next = now + _FILE_S
        moment = GradingProgress(datetime.now(UTC), what, done, total, round(now - self._began, 1))
        try:
            with atomic_write(self._path) as file:
                file.write(msgspec.json.encode(moment))
        except OSError as error:
            log.warning("warning: no progress in %s: %s", self._path, machine_failure(error))
            self._broken = True


def read_grading(folder: Path) -> GradingProgress | None:
    """The present step; None where no grading is going on, or the file is damaged."""
    try:
        return msgspec.json.decode((folder / GRADING_PROGRESS).read_bytes(), type=GradingProgress)
    except (OSError, msgspec.DecodeError):
        return None
