"""report.py watch: the progress of a run or of its grading, on a screen or, in a pipe, as plain lines."""

import os
import select
import shutil
import sys
import termios
import textwrap
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    run = newest_run(folder)
    if can_overwrite(sys.stdout) and sys.stdin.isatty():
        with _screen(look_s) as leaves:
            while not leaves():
                size = shutil.get_terminal_size()
                lines = _fitting(screen(run, datetime.now(UTC), size.columns), size.lines)
                _control(_CLEAR)
                print("\n".join(lines), end="", flush=True)
                if _ended(run):
                    break
        print("\n".join(screen(run, datetime.now(UTC), shutil.get_terminal_size().columns)))
        return
    print(printable(str(run)), flush=True)
    last, warned = "", 0
    while True:
        ended = _ended(run)
        warned = _print_warnings(run, warned)  # after the look: the last line is written before the verdict
        if ended:
            break
        if (text := _plain_state(run)) not in ("", last):
            last = text
            print(printable(text), flush=True)
        time.sleep(look_s)
    print(ended, flush=True)


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


def screen(run: Path, now: datetime, width: int) -> list[str]:
    """The lines of the screen, wrapped at its width."""
    record, line, result = _record(run), _last_line(run), _result(run)
    title = record.plan.title if record is not None else str(run)
    lines = [title, str(run), ""]
    if line is not None:
        lines += _figures(line, now, lasts=not result)
    elif not result:
        lines.append("no progress yet: the first line comes five seconds after the first query")
    if result:
        lines += ["", result]
    if result and (grading := _grading(run, now)) is not None:
        lines += ["", *_steps(grading, now), "", "q leaves; grading continues"]
    elif not result:
        lines += ["", "q leaves; the run continues"]
    return [part for text in lines for part in _wrapped(printable(text, LONG_LINE), max(width - 1, 1))]


def _fitting(lines: list[str], rows: int) -> list[str]:
    """As many lines as the terminal has, or the first would scroll away; the last one names the key."""
    return lines if len(lines) <= rows else [*lines[: rows - 1], lines[-1]]


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of this width, the further ones indented; a word that is too long is broken."""
    indent = " " * min(2, width - 1)
    return textwrap.wrap(text, width, subsequent_indent=indent) or [""]


def _figures(line: ProgressLine, now: datetime, *, lasts: bool) -> Iterator[str]:
    done, total = line.completed + line.failed, line.total or line.issued
    left = time_to_go(line.silent_s, line.remaining_s) if lasts else ""
    times = ", ".join(filter(None, (duration(line.elapsed_s), left)))
    yield f"{progress_bar(done, total, _BAR)} {done:,} of {total:,}, {times}"
    silent_s = (now - line.time).total_seconds()
    if lasts and silent_s > _SILENT_S:
        yield _no_line(silent_s)
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


def _print_warnings(run: Path, before: int) -> int:
    """Print those after the first ``before``; returns how many there are. Another run begins with none."""
    if (line := _last_line(run)) is None:
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


def _steps(grading: GradingProgress, now: datetime) -> Iterator[str]:
    done, total = grading.done, grading.total
    bar = progress_bar(done, total, _BAR)
    yield f"grading {bar} {done:,} of {total:,} {grading.stage}, {duration(grading.elapsed_s)}"
    if (silent_s := (now - grading.time).total_seconds()) > _SILENT_S:
        yield f"no step for {duration(silent_s)}: a long one, or the evaluator was killed"


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


def _plain_state(run: Path) -> str:
    """The present line of the run, or of its grading when it has ended; "" where there is none."""
    if _result(run):
        if (grading := _grading(run, datetime.now(UTC))) is None:
            return ""
        steps = f"{grading.done}/{grading.total} {grading.stage}"
        return f"[{duration(grading.elapsed_s)}] grading, {steps}"
    if (line := _last_line(run)) is None:
        return ""
    silent_s = (datetime.now(UTC) - line.time).total_seconds()
    if silent_s <= _SILENT_S:
        return plain(line)
    return _no_line(max(silent_s // _SAY_S * _SAY_S, _SILENT_S))  # once a minute


def _grading(run: Path, now: datetime) -> GradingProgress | None:
    """None where no evaluator is running."""
    found = read_grading(run)
    return found if found and (now - found.time).total_seconds() < _LONGEST_STEP_S else None


def _last_line(run: Path) -> ProgressLine | None:
    try:
        return read_progress(run / PROGRESS)
    except FileNotFoundError:
        return None


def _record(run: Path) -> RunRecord | None:
    try:
        return RunRecord.read(run / RUN_RECORD)
    except FileNotFoundError:
        return None


def _ended(run: Path) -> str:
    """The verdict in one line; "" while the run lasts or is graded."""
    return "" if _grading(run, datetime.now(UTC)) is not None else _result(run)


def _end_without_record(run: Path) -> str:
    """Of rows, a ladder or a point of a curve nothing but their lines, or their folder, shows the end."""
    if not run.is_dir():
        return "Ended: the folder is gone"
    line = _last_line(run)
    silent_s = 0.0 if line is None else (datetime.now(UTC) - line.time).total_seconds()
    return f"Ended, killed or suspended: no line for {duration(silent_s)}" if silent_s > _SILENT_S else ""


def _result(run: Path) -> str:
    """The verdict and score in one line; "" while the run lasts."""
    record = _record(run)
    if record is None:
        return _end_without_record(run)
    if record.verdict is None:
        return ""
    reasons = "; ".join(record.verdict.reasons)
    figures = score_line(run)
    return (
        f"Result: {record.verdict.result}{RunOutcome(run, record).mark}"
        + (f": {reasons}" if reasons else "")
        + (f"; {figures}" if figures else "")
    )
