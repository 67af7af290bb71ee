"""A progress bar on stderr for people, and one line a minute for log files; both with the time left."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

_BAR = 30
_REDRAW_S, _LINE_S = 0.2, 60.0
_STEADY_S = 5.0  # before that a rate has no meaning


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
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()

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
            self._stream.write(f"\r[{'#' * filled}{'.' * (_BAR - filled)}] {line}\033[K")
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
