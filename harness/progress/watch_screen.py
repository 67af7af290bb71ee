"""report.py watch: the progress of a run or of its grading, on a screen or, in a pipe, as plain lines."""

import math
import os
import select
import shutil
import sys
import termios
import textwrap
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.analysis.early_stopping import at_most_text
from harness.analysis.run_outcome import RunOutcome, score_line
from harness.cli.streams import can_overwrite, control
from harness.errors import ConfigError
from harness.files import GRADING_PROGRESS, PROGRESS, RUN_RECORD
from harness.progress.progress_files import (
    GradingProgress,
    ProgressLine,
    read_grading,
    read_progress,
)
from harness.progress.progress_line import (
    Latencies,
    ProgressSnapshot,
    in_flight_text,
    plain_progress,
    progress_bar,
    time_to_go,
)
from harness.record.run_record import RunRecord
from harness.text import LONG_LINE, by_kind, counted, duration, moment, printable

_LOOK_S = 1.0
_SILENT_S = 15.0  # the time of three lines of progress
_SAY_S = 60.0  # between two lines of a pipe that say that there are none
_LONGEST_STEP_S = 600.0  # an evaluator that shows no step for longer is assumed to have been killed
_BAR = 40
_CLEAR, _HIDE, _SHOW = "\x1b[H\x1b[J", "\x1b[?25l", "\x1b[?25h"


class _Age:
    """The seconds since something was written, at each look.

    By the wall clock at the first one alone: it may be set, and that of the run be another machine's.
    """

    def __init__(self) -> None:
        self._written: datetime | None = None
        self._age_s = 0.0
        self._looked_s = -math.inf

    def __call__(self, written: datetime, now: datetime) -> float:
        looked_s = time.monotonic()
        since_s, self._looked_s = looked_s - self._looked_s, looked_s
        if written == self._written:
            self._age_s += since_s
        else:
            self._written = written
            self._age_s = max(0.0, min((now - written).total_seconds(), since_s))
        return self._age_s


class Ages:
    """The ages that a watch follows from look to look."""

    def __init__(self) -> None:
        self.line, self.grading = _Age(), _Age()


class RunState(msgspec.Struct, frozen=True):
    """What the files of a run say at a moment."""

    title: str
    run: Path
    line: ProgressLine | None
    """the last one"""
    silent_s: float
    """since then; 0 without one"""
    result: str
    """the verdict and score in one line; "" while the run lasts"""
    grading: GradingProgress | None
    """None where no evaluator is running"""
    no_step_s: float = 0.0
    """since its latest step"""

    @property
    def ended(self) -> str:
        """The result; "" while the run lasts or is graded."""
        return "" if self.grading is not None else self.result


def read_state(run: Path, now: datetime, ages: Ages | None = None) -> RunState:
    """Read the files of a run, the record first: the last line is written before the verdict.

    ``ages`` are those of the earlier looks.
    """
    ages = ages or Ages()
    record = line = None
    with suppress(FileNotFoundError):
        record = RunRecord.read(run / RUN_RECORD)
    found = read_grading(run)
    no_step_s = 0.0 if found is None else ages.grading(found.time, now)
    grading = found if no_step_s < _LONGEST_STEP_S else None
    with suppress(FileNotFoundError):
        line = read_progress(run / PROGRESS)
    silent_s = 0.0 if line is None else ages.line(line.time, now)
    title = str(run) if record is None else record.plan.title
    result = _end_without_record(run, line, silent_s) if record is None else _result(run, record)
    return RunState(title, run, line, silent_s, result, grading, no_step_s)


def newest_run(folder: Path) -> Path:
    """The folder itself, or the run below it that wrote progress last. Raises ConfigError for none."""
    # A run of a few seconds has no line of progress.
    for names in ((PROGRESS, GRADING_PROGRESS), (RUN_RECORD,)):
        found = [folder / name for name in names if (folder / name).is_file()]
        if found := found or [path for name in names for path in folder.rglob(name)]:
            return max(found, key=lambda path: path.stat().st_mtime).parent
    raise ConfigError(f"{folder}: no run in it or below; pass the --results of a run that has begun")


def watch(folder: Path, look_s: float = _LOOK_S) -> None:
    """Show the run until it ends, or until q or Ctrl-C. Raises ConfigError where there is none."""
    run, ages = newest_run(folder), Ages()
    if can_overwrite(sys.stdout) and sys.stdin.isatty():
        with _screen(look_s) as leaves:
            while not leaves():
                state, size = read_state(run, datetime.now(UTC), ages), shutil.get_terminal_size()
                _control(_CLEAR)
                print("\n".join(_fitting(screen(state, size.columns), size.lines)), end="", flush=True)
                if state.ended:
                    break
        state = read_state(run, datetime.now(UTC), ages)
        print("\n".join(screen(state, shutil.get_terminal_size().columns)))
        return
    print(printable(str(run)), flush=True)
    last, warned = "", 0
    while True:
        state = read_state(run, datetime.now(UTC), ages)
        warned = _print_warnings(state.line, warned)
        if state.ended:
            break
        if (text := _plain_state(state)) not in ("", last):
            last = text
            print(printable(text), flush=True)
        time.sleep(look_s)
    print(state.ended, flush=True)


def _control(text: str) -> None:
    control(sys.stdout, text)
    sys.stdout.flush()


@contextmanager
def _screen(look_s: float) -> Iterator[Callable[[], bool]]:
    """The terminal without echo and cursor; the value waits ``look_s`` and returns whether q was pressed."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def leaves() -> bool:
        ready, _, _ = select.select([descriptor], [], [], look_s)
        return bool(ready) and os.read(descriptor, 64)[:1] in (b"q", b"Q", b"")

    try:
        tty.setcbreak(descriptor)
        _control(_HIDE)
        yield leaves
    finally:
        _control(_SHOW)
        print(flush=True)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def screen(state: RunState, width: int) -> list[str]:
    """The lines of the screen, wrapped at its width."""
    lines = [state.title, str(state.run), ""]
    if state.line is not None:
        lines += _figures(state, state.line)
    elif not state.result:
        lines.append("no progress yet: the first line comes five seconds after the first query")
    if not state.result:
        lines += ["", "q leaves; the run continues"]
    else:
        lines += ["", state.result]
        if state.grading is not None:
            lines += ["", *_steps(state.grading, state.no_step_s), "", "q leaves; grading continues"]
    return [part for text in lines for part in _wrapped(printable(text, LONG_LINE), max(width - 1, 1))]


def _fitting(lines: list[str], rows: int) -> list[str]:
    """As many lines as the terminal has, or the first would scroll away; the last one names the key."""
    return lines if len(lines) <= rows else [*lines[: rows - 1], lines[-1]]


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of this width, the further ones indented; a word that is too long is broken."""
    indent = " " * min(2, width - 1)
    return textwrap.wrap(text, width, subsequent_indent=indent) or [""]


def _figures(state: RunState, line: ProgressLine) -> Iterator[str]:
    done, total = line.completed + line.failed, line.total or line.issued
    left = "" if state.result else time_to_go(line.silent_s, line.remaining_s)
    times = ", ".join(filter(None, (duration(line.elapsed_s), left)))
    yield f"{progress_bar(done, total, _BAR)} {done:,} of {total:,}, {times}"
    if not state.result and state.silent_s > _SILENT_S:
        yield _no_line(state.silent_s)
    if line.lost:
        yield f"LOST: {line.lost}"
    if line.standing:
        yield f"WARNING: {line.standing}"
    yield ""
    rate = "" if line.tokens_per_s is None else f", {line.tokens_per_s:,.0f} tokens/s"
    spread = "" if line.imbalance is None else f", imbalance of the replicas {line.imbalance:.2f}"
    yield f"{in_flight_text(line.in_flight, line.sent, line.last_at)}{rate}{spread}"
    yield f"{line.failed:,} failed" + (f" ({by_kind(line.failures)})" if line.failures else "")
    yield f"last minute, {counted(line.ended_last_minute, 'answer')}:"
    for name, part in (("TTFT", line.ttft), ("TPOT", line.tpot)):
        yield f"  {name:<8} {_latencies(part)}{_over(name, line)}"
    if line.straggling:
        yield f"{line.straggling} of the median of all replicas for a minute"
    for replica in line.slowest:
        yield f"  {replica.ratio:.2f} x the median TPOT: {replica.url}"
    if line.warned:
        yield ""
        where = "all in the output of the run, unless it has --log-level error"
        yield f"{counted(line.warned, 'warning')}, {where}; the latest, newest first:"
        yield from reversed([*_warnings(line)])


def _print_warnings(line: ProgressLine | None, before: int) -> int:
    """Print those after the first ``before``; returns how many there are. Another run begins with none."""
    if line is None:
        return before
    for text in _warnings(line, before if before <= line.warned else 0):
        print(printable(text, LONG_LINE), flush=True)
    return line.warned


def _warnings(line: ProgressLine, after: int = 0) -> Iterator[str]:
    """The warnings that the line has, without the first ``after`` of the run."""
    for number, one in enumerate(line.warnings, line.warned - len(line.warnings)):
        if number >= after:
            yield f"  [{moment(one.elapsed_s)}] {one.text}"


def _no_line(silent_s: float) -> str:
    return f"NO LINE FOR {duration(silent_s)}: the run was killed or suspended, or its disk is full"


def _steps(grading: GradingProgress, no_step_s: float) -> Iterator[str]:
    done, total = grading.done, grading.total
    bar = progress_bar(done, total, _BAR)
    yield f"grading {bar} {done:,} of {total:,} {grading.stage}, {duration(grading.elapsed_s)}"
    if no_step_s > _SILENT_S:
        yield f"no step for {duration(no_step_s)}: a long one, or the evaluator was killed"


def _latencies(part: Latencies | None) -> str:
    return "-" if part is None else f"p50 {part.p50_ms:,.1f} ms, p99 {part.p99_ms:,.1f} ms"


def _over(name: str, line: ProgressLine) -> str:
    if (over := line.over_limit.get(name)) is None:
        return ""
    if over.most < 0:
        return f"; {over.queries:,} over {over.limit_ms:g} ms (too few queries to become VALID)"
    return f"; {over.queries:,} over {over.limit_ms:g} ms, {at_most_text(over.most)}"


def plain(line: ProgressLine) -> str:
    """One line for a file or a pipe, as the run prints it."""
    return plain_progress(msgspec.convert(line, ProgressSnapshot, from_attributes=True))


def _plain_state(state: RunState) -> str:
    """The present line of the run, or of its grading when it has ended; "" where there is none."""
    if state.result:
        if (grading := state.grading) is None:
            return ""
        steps = f"{grading.done}/{grading.total} {grading.stage}"
        return f"[{duration(grading.elapsed_s)}] grading, {steps}"
    if state.line is None:
        return ""
    if state.silent_s <= _SILENT_S:
        return plain(state.line)
    return _no_line(max(state.silent_s // _SAY_S * _SAY_S, _SILENT_S))  # once a minute


def _end_without_record(run: Path, line: ProgressLine | None, silent_s: float) -> str:
    """Of rows, a ladder or a point of a curve nothing but their lines, or their folder, shows the end."""
    if not run.is_dir():
        return "Ended: the folder is gone"
    if line is not None and line.ended:
        return "Ended"
    return f"Ended, killed or suspended: no line for {duration(silent_s)}" if silent_s > _SILENT_S else ""


def _result(run: Path, record: RunRecord) -> str:
    if record.verdict is None:
        return ""
    reasons = "; ".join(record.verdict.reasons)
    figures = score_line(run)
    return (
        f"Result: {record.verdict.result}{RunOutcome(run, record).mark}"
        + (f": {reasons}" if reasons else "")
        + (f"; {figures}" if figures else "")
    )
