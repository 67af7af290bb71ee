"""The line that shows the progress of a run, a ladder or an evaluation."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Self, TextIO

import msgspec

from harness.cli.streams import can_overwrite, control
from harness.text import by_kind, duration, milliseconds

# Seconds between two lines of a run in a log file or a pipe: in the first minute, and after it.
_PLAIN_EVERY_S, _PLAIN_LATER_S = 10.0, 60.0
_MOST_KINDS = 3  # kinds of failures that the line names
_BAR = 30  # columns
_REDRAW_S, _LINE_S = 0.2, 60.0  # between two states of a bar: on a terminal, and in a log file
_STEADY_S = 5.0  # an earlier rate says nothing about the time left
SILENT_S = 30.0  # after this time without an event no time left is estimated
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


class LiveLine:
    """A line that is overwritten on a terminal; elsewhere its users print plain lines now and then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.on_terminal = can_overwrite(self._stream)
        self._alarm = _BOLD if os.environ.get("NO_COLOR") else _BOLD + _RED
        self._is_open = False

    @property
    def columns(self) -> int:
        """The longest text. One column stays free: a terminal breaks the line when its last one is filled."""
        return max(shutil.get_terminal_size().columns - 1, 1)

    def show(self, text: str, alarm: slice = slice(0)) -> None:
        """Overwrite the line of a terminal, else print a line; ``alarm`` is the part to be seen first."""
        if self.on_terminal:
            shown = text[: self.columns].ljust(self.columns)
            control(self._stream, "\r")
            self._stream.write(shown[: alarm.start or 0])
            if shown[alarm]:
                control(self._stream, self._alarm)
                self._stream.write(shown[alarm])
                control(self._stream, _PLAIN)
            self._stream.write(shown[alarm.stop :])
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()
        self._is_open = self.on_terminal

    def end(self) -> None:
        """End the line of a terminal, so that it stays."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
            self._is_open = False

    def clear(self) -> None:
        """Remove the line of a terminal."""
        if self._is_open:
            control(self._stream, f"\r{' ' * self.columns}\r")
            self._stream.flush()
            self._is_open = False


class Latencies(msgspec.Struct, frozen=True):
    """Of the answers that ended in the last minute, in ms."""

    p50_ms: float
    p99_ms: float


class Over(msgspec.Struct, frozen=True):
    """Queries over each limit."""

    ttft: int = 0
    tpot: int = 0

    @property
    def most(self) -> tuple[str, int]:
        """The limit that more of them are over, and their number."""
        return max(("TTFT", self.ttft), ("TPOT", self.tpot), key=lambda pair: pair[1])


class ProgressSnapshot(msgspec.Struct, frozen=True):
    """A run at one moment; None: not known (yet)."""

    elapsed_s: float
    issued: int
    completed: int
    failed: int
    total: int | None = None
    """queries that LoadGen will issue, as far as is known"""
    tokens_per_s: float | None = None
    """over the last seconds"""
    servers_tokens_per_s: float | None = None
    """as the servers say, also before an answer that is not streamed ends"""
    ttft_ns: float | None = None
    """mean so far"""
    tpot_ns: float | None = None
    """mean so far"""
    remaining_s: float | None = None
    failures: Mapping[str, int] = msgspec.field(default_factory=dict)
    """by kind"""
    imbalance: float | None = None
    """of several replicas, as in ReplicaBalance, over the last minute"""
    straggling: str = ""
    """the slowest of the replicas that have been slower than the median of all for a minute"""
    first_tokens: int = 0
    """queries that have a first token"""
    sent: int | None = None
    """requests without an end at the servers, where their number has a limit"""
    last_at: str = ""
    """the replicas that have the last queries, while others have none"""
    lost: str = ""
    """why the run can no longer become VALID"""
    over: Over = Over()
    """at least these: of TTFT also those that still wait for their first token"""
    standing: str = ""
    """servers, or data-parallel ranks of them, that show no sign of life"""
    silent_s: float = 0.0
    """time in which nothing has arrived although queries wait"""
    ttft: Latencies | None = None
    tpot: Latencies | None = None

    @property
    def in_flight(self) -> int:
        """Queries issued and not yet ended."""
        return self.issued - self.completed - self.failed

    @property
    def alarms(self) -> tuple[bool, str]:
        """What has a line at once where it changes."""
        return bool(self.lost), self.standing


class ProgressPrinter:
    """Shows a run's progress on stdout."""

    def __init__(self) -> None:
        self._line = LiveLine()
        self._last_plain_s = 0.0
        self._alarms = (False, "")

    def __call__(self, snapshot: ProgressSnapshot) -> None:
        """Show the run's present state. In a log file an alarm has its line at once."""
        if self._line.on_terminal:
            text = terminal_progress(snapshot, self._line.columns)
            self._line.show(text, _alarm_part(snapshot))
        elif snapshot.alarms != self._alarms or snapshot.elapsed_s - self._last_plain_s >= _plain_every_s(
            snapshot.elapsed_s
        ):
            self._last_plain_s = snapshot.elapsed_s
            self._line.show(plain_progress(snapshot))
        self._alarms = snapshot.alarms

    def end(self) -> None:
        """End the line, so that it stays."""
        self._line.end()


def _plain_every_s(elapsed_s: float) -> float:
    return _PLAIN_EVERY_S if elapsed_s <= _PLAIN_LATER_S else _PLAIN_LATER_S


def plain_progress(snapshot: ProgressSnapshot) -> str:
    """The complete line, for a log file or a pipe."""
    return ", ".join(_fields(snapshot))


def terminal_progress(snapshot: ProgressSnapshot, columns: int) -> str:
    """The line, cut between fields to at most these columns."""
    fields = _fields(snapshot)
    while len(fields) > 1 and len(", ".join(fields)) > columns:
        fields.pop()
    return ", ".join(fields)[:columns]


def _fields(s: ProgressSnapshot) -> list[str]:
    """The most important first: the last ones are left out on a narrow terminal."""
    alarms = _alarms(s)
    done = f"{s.completed + s.failed}/{s.total or s.issued} done"
    fields = [
        f"{_clock(s)}{alarms or done}",
        done if alarms else "",
        "" if "failed" in s.lost else failed_text(s),
        time_to_go(s.silent_s, s.remaining_s),
        s.straggling,
        in_flight_text(s.in_flight, s.sent, s.last_at),
        _rate(s),
        _latency("TTFT", s.ttft, s.ttft_ns),
        _latency("TPOT", s.tpot, s.tpot_ns),
        f"imbalance {s.imbalance:.2f}" if s.imbalance is not None else "",
    ]
    return [field for field in fields if field]


def _clock(s: ProgressSnapshot) -> str:
    return f"[{duration(s.elapsed_s)}] "


def _alarms(s: ProgressSnapshot) -> str:
    return ", ".join(text for text in (f"lost: {s.lost}" if s.lost else "", s.standing) if text)


def _alarm_part(s: ProgressSnapshot) -> slice:
    """Where the alarms are in the line."""
    start = len(_clock(s))
    return slice(start, start + len(_alarms(s)))


def time_to_go(silent_s: float, remaining_s: float | None) -> str:
    """The rate of answers says nothing about the time left while none arrives."""
    if silent_s >= SILENT_S:
        return f"no estimate: nothing has arrived for {duration(silent_s)}"
    return "" if remaining_s is None else f"{duration(remaining_s)} left"


def _rate(s: ProgressSnapshot) -> str:
    """The client's; while it has received none, the servers', which stands for work and not for a result."""
    if s.tokens_per_s == 0 and s.in_flight and s.servers_tokens_per_s:
        return f"0 tok/s received, the servers make {s.servers_tokens_per_s:.0f}"
    return f"{s.tokens_per_s:.0f} tok/s" if s.tokens_per_s is not None else ""


def _latency(name: str, recent: Latencies | None, mean_ns: float | None) -> str:
    """The last minute's percentiles; the mean of the run before there are any."""
    if recent is not None:
        p50, p99 = milliseconds(recent.p50_ms * 1e6), milliseconds(recent.p99_ms * 1e6)
        return f"{name} p50 {p50} p99 {p99} ms"
    return "" if mean_ns is None else f"mean {name} {milliseconds(mean_ns)} ms"


def in_flight_text(issued: int, sent: int | None, last_at: str) -> str:
    """``512 in flight, 5884 waiting`` of queries without an end: the others wait for a request to end.

    ``sent`` are at the servers, None where any may be. At the end ``7 in flight, all at http://node3:30000``.
    """
    waiting = 0 if sent is None else max(0, issued - sent)
    text = f"{issued - waiting} in flight" + (f", {waiting} waiting" if waiting else "")
    return f"{text}, all at {last_at}" if last_at else text


def failed_text(s: ProgressSnapshot) -> str:
    """``3 FAILED (timeout 2, connect 1)``, the most frequent kind first."""
    if not s.failed:
        return ""
    shown = by_kind(s.failures, _MOST_KINDS)
    return f"{s.failed} FAILED ({shown})" if shown else f"{s.failed} FAILED"


class ProgressBar:
    """Shows done / total of the present stage; ends its line when the context ends."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._line, self._clock = LiveLine(stream), clock
        self._shown_at = -_LINE_S if self._line.on_terminal else clock()
        self._stage, self._began = "", 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the line of a terminal."""
        self._line.end()

    def show(self, done: int, total: int, what: str) -> None:
        """Show a step where one is due: as often as a reader can follow, or once a minute in a log file."""
        now, pause = self._clock(), _REDRAW_S if self._line.on_terminal else _LINE_S
        if what != self._stage:
            self._stage, self._began = what, now
        if now - self._shown_at < pause and not (self._line.on_terminal and done == total):
            return
        self._shown_at = now
        bar = f"{progress_bar(done, total, _BAR)} " if self._line.on_terminal else ""
        self._line.show(f"{bar}{done}/{total} {what}{_time_left(now - self._began, done, total)}")


def progress_bar(done: int, total: int, width: int) -> str:
    """``[####......]``"""
    filled = min(width * done // total, width) if total else 0
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def _time_left(elapsed_s: float, done: int, total: int) -> str:
    """``, 1m05s left`` at the rate so far; empty at the beginning and at the end."""
    if elapsed_s < _STEADY_S or done in (0, total):
        return ""
    return f", {time_to_go(0.0, elapsed_s / done * (total - done))}"
