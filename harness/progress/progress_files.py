"""Files for other programs that show the progress of a run: progress.jsonl, and one of its grading.

progress.jsonl gets a line every five seconds, one at once for an alarm or a warning, and one at the end. Its
figures of tokens are of the answers that ended in the last minute, read from the journal that workers write
anyway: the request path has no part in it.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
from msgspec.structs import replace

from harness.analysis.answer_lengths import LengthWatch
from harness.analysis.network_summary import clump_text
from harness.analysis.replicas import ReplicaWatch, straggler_alarm, straggling_text
from harness.analysis.statistics import completed, of_this_attempt, percentile, tpot_ns, ttft_ns
from harness.errors import machine_failure
from harness.files import GRADING_PROGRESS, JOURNAL_DIR, PROGRESS, atomic_write
from harness.progress.lost_run import ValidityRules, failures_text
from harness.progress.progress_line import Latencies, ProgressSnapshot
from harness.record.journal import JournalTail, Rows, first_failure
from harness.text import LONG_LINE, printable

_EVERY_S = 5.0
_WINDOW_S = 60.0
_SLOWEST = 3
_LATEST = 5  # warnings that a line repeats, for those who read the last line alone
_CLUMPS_FROM = 20  # answers that show whether tokens come in clumps
_GRADING_EVERY_S = 2.0

log = logging.getLogger("mlperf")


class OverLimit(msgspec.Struct, frozen=True):
    """Queries over a latency limit so far, by this client's times: LoadGen may count a few less."""

    queries: int
    """also those that still wait for their first token"""
    most: int
    """the most with which the run can be VALID; -1: it has too few queries"""
    limit_ms: float


class SlowReplica(msgspec.Struct, frozen=True):
    """One of the slowest replicas of the last minute."""

    url: str
    tpot_p50_ms: float
    ratio: float
    """its median TPOT over the median of all replicas"""


class PrintedWarning(msgspec.Struct, frozen=True):
    """A warning, as the terminal of the run has it at `--log-level warning`."""

    elapsed_s: float
    """of the line that was the first to have it"""
    text: str


class ProgressLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of progress.jsonl. None: not known (yet)."""

    time: datetime
    elapsed_s: float
    issued: int
    completed: int
    failed: int
    in_flight: int
    """queries issued and not yet ended"""
    sent: int | None = None
    """requests of them at the servers, where their number has a limit"""
    total: int | None = None
    remaining_s: float | None = None
    tokens_per_s: float | None = None
    """over the last ten seconds"""
    failures: dict[str, int] = {}
    ended_last_minute: int = 0
    ttft: Latencies | None = None
    tpot: Latencies | None = None
    over_limit: dict[str, OverLimit] = {}
    slowest: tuple[SlowReplica, ...] = ()
    imbalance: float | None = None
    """the last minute's largest mean number in flight on a replica over the mean of all"""
    stragglers: int = 0
    """replicas that have been slower than the median of all for a minute"""
    straggling: str = ""
    """the slowest of them"""
    last_at: str = ""
    """the replicas that have the last queries, while others have none"""
    lost: str = ""
    """why the run can no longer become VALID"""
    standing: str = ""
    """servers, or data-parallel ranks of them, that show no sign of life"""
    silent_s: float = 0.0
    """time in which nothing has arrived although queries wait"""
    warned: int = 0
    """warnings since the queries began; run.json has the earlier ones from the start"""
    warnings: tuple[PrintedWarning, ...] = ()
    """the latest five of them, the earliest first"""
    ended: bool = False
    """the last line of a run that was not killed, whatever its result"""


class _Printed(logging.Handler):
    """Takes the warnings that any thread of this process logs, alarms and ends of alarms included."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts = deque[str]()
        """those that no line has yet"""

    def emit(self, record: logging.LogRecord) -> None:
        """Without the trace of a defect, which only the terminal has."""
        self.texts.append(printable(record.getMessage().removeprefix("warning: "), LONG_LINE))


class ProgressLog:
    """Writes progress.jsonl in a run's folder and gives each line to ``on_line``.

    ``watch`` has followed the replicas up to the last line. ``may_fail``: a failed query does not lose the
    run, so that no alarm says what happened to the first one. After a failure to write, only ``on_line`` gets
    lines; after a failure to read the journal there are none. Either failure is a warning. A thread writes:
    a disk that stands holds up no line for ``on_line``, and ``close`` alone waits for it.
    """

    def __init__(
        self,
        log_dir: Path,
        rules: ValidityRules,
        replicas: Sequence[str],
        on_line: Callable[[ProgressLine], None] = lambda line: None,
        lengths: LengthWatch | None = None,
        *,
        may_fail: bool = False,
    ) -> None:
        self._lengths = lengths
        self._failure_untold = may_fail
        self._path = log_dir / PROGRESS
        self._tail = JournalTail(log_dir / JOURNAL_DIR)
        self._rules = rules
        self.watch = ReplicaWatch(replicas)
        self._replicas = replicas
        self._on_line = on_line
        self._over = dict.fromkeys(rules.limits_ns, 0)
        self._window: deque[tuple[float, Rows]] = deque()
        self._next_s = _EVERY_S
        self._between: ProgressSnapshot | None = None  # the latest without a line
        self._unread = self._unwritten = self._clumps_told = False
        self._alarms = (False, "")
        self._printed = _Printed()
        self._warned, self._warnings = 0, deque[PrintedWarning](maxlen=_LATEST)
        log.addHandler(self._printed)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="progress")
        self._began_ns = 0  # when the present write began
        self.last: ProgressLine | None = None

    def close(self) -> None:
        """Write the last state as such, and wait until all lines are written."""
        try:
            if self._between is not None:
                self._add(self._between, ended=True)
            elif self.last is not None and not self.last.ended and not self._unread:
                self.last = replace(self.last, ended=True)
                self._thread.submit(self._write, self.last)
        finally:
            log.removeHandler(self._printed)
            self._thread.shutdown()

    @property
    def waits_ns(self) -> int:
        """How long the disk has not taken a line by now; 0 while none is written."""
        began_ns = self._began_ns
        return time.monotonic_ns() - began_ns if began_ns else 0

    def __call__(self, snapshot: ProgressSnapshot) -> None:
        """Write a line where one is due; an alarm and a warning have theirs at once."""
        changed = snapshot.alarms != self._alarms or self._printed.texts
        if snapshot.elapsed_s < self._next_s and not changed:
            self._between = snapshot
            return
        if (recent := self._add(snapshot)) is not None:
            self._tell_clumps(recent)
            self._tell_lengths(snapshot)
            self._tell_failure(snapshot)

    def _add(self, snapshot: ProgressSnapshot, *, ended: bool = False) -> Rows | None:
        """Write a line; returns the answers of the last minute, None where the journal cannot be read."""
        self._between = None
        if self._unread:
            return None
        self._alarms, self._next_s = snapshot.alarms, snapshot.elapsed_s + _EVERY_S
        try:
            self._take(self._tail.read(), snapshot.elapsed_s)
        except OSError as error:
            self._unread = True
            self._warn(error)
            return None
        recent: Rows = np.concatenate([rows for _, rows in self._window])
        for one in self.watch.look(snapshot.elapsed_s, recent)[:_SLOWEST]:
            log.warning("%s", straggler_alarm(one))
        while self._printed.texts:
            self._warnings.append(PrintedWarning(round(snapshot.elapsed_s, 1), self._printed.texts.popleft()))
            self._warned += 1
        self.last = line = replace(self._line(snapshot, recent), ended=ended)
        self._on_line(line)
        self._thread.submit(self._write, line)
        return recent

    def _tell_clumps(self, recent: Rows) -> None:
        """Once, and early: no time of a token is one of the servers' then."""
        if self._rules.limits_ns and not self._clumps_told and len(recent) >= _CLUMPS_FROM:
            if text := clump_text(recent):
                log.warning("warning: %s", text)
            self._clumps_told = bool(text)

    def _tell_lengths(self, s: ProgressSnapshot) -> None:
        if self._lengths is not None:
            at_servers = s.in_flight if s.sent is None else s.sent
            sent = s.completed + s.failed + at_servers
            for text in self._lengths.look(sent, s.elapsed_s, time.monotonic_ns()):
                log.warning("warning: %s", text)

    def _tell_failure(self, s: ProgressSnapshot) -> None:
        """Once: the kind alone, in the progress line, shows no cause and no remedy."""
        if not (s.failed and self._failure_untold):
            return
        # Where there is no text yet, the next line tries again.
        if text := first_failure(self._path.parent / JOURNAL_DIR, self._replicas):
            log.warning("warning: %s; %s", failures_text(s), text)
            self._failure_untold = False

    def _write(self, line: ProgressLine) -> None:
        if self._unwritten:
            return
        self._began_ns = time.monotonic_ns()
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            self._unwritten = True
            self._warn(error)
        finally:
            self._began_ns = 0

    def _warn(self, error: OSError) -> None:
        log.warning("warning: no more lines of progress: %s", machine_failure(error, self._path))

    def _take(self, rows: Rows, now_s: float) -> None:
        own = of_this_attempt(rows)
        good = completed(own)
        for name, values in (("TTFT", ttft_ns(good)), ("TPOT", tpot_ns(good))):
            if name in self._over:
                self._over[name] += int((values > self._rules.limits_ns[name]).sum())
        if self._lengths is not None:
            self._lengths.add(own, time.monotonic_ns())
        self._window.append((now_s, good))
        while self._window[0][0] <= now_s - _WINDOW_S:
            self._window.popleft()

    def _line(self, s: ProgressSnapshot, recent: Rows) -> ProgressLine:
        return ProgressLine(
            time=datetime.now(UTC),
            elapsed_s=round(s.elapsed_s, 1),
            issued=s.issued,
            completed=s.completed,
            failed=s.failed,
            in_flight=s.in_flight,
            sent=s.sent,
            total=s.total,
            remaining_s=None if s.remaining_s is None else round(s.remaining_s, 1),
            tokens_per_s=None if s.tokens_per_s is None else round(s.tokens_per_s, 1),
            failures=dict(s.failures),
            ended_last_minute=len(recent),
            ttft=_latencies(ttft_ns(recent)),
            tpot=_latencies(tpot_ns(recent)),
            over_limit=self._over_limits(s.over.ttft),
            slowest=self._slowest(),
            imbalance=s.imbalance,
            stragglers=len({one.url for one in self.watch.stragglers_now}),
            straggling=straggling_text(self.watch.stragglers_now),
            last_at=s.last_at,
            lost=s.lost,
            standing=s.standing,
            silent_s=round(s.silent_s, 1),
            warned=self._warned,
            warnings=tuple(self._warnings),
        )

    def _over_limits(self, late: int) -> dict[str, OverLimit]:
        return {
            name: OverLimit(
                max(count, late) if name == "TTFT" else count,
                self._rules.most_over,
                self._rules.limits_ns[name] / 1e6,
            )
            for name, count in self._over.items()
        }

    def _slowest(self) -> tuple[SlowReplica, ...]:
        """The replicas with the largest medians, where there are several."""
        medians, ratios = self.watch.medians_ns / 1e6, self.watch.ratios
        order = np.argsort(np.nan_to_num(-ratios))[:_SLOWEST].tolist()
        return tuple(
            SlowReplica(self._replicas[index], float(medians[index]), round(float(ratios[index]), 3))
            for index in order
            if np.isfinite(ratios[index])
        )


def _latencies(values_ns: np.ndarray) -> Latencies | None:
    if not len(values_ns):
        return None
    return Latencies(percentile(values_ns, 0.5) / 1e6, percentile(values_ns, 0.99) / 1e6)


def read_progress(path: Path) -> ProgressLine | None:
    """The last complete line; None where there is none (yet). Raises OSError."""
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - (1 << 16)))
        lines = file.read().split(b"\n")[:-1]  # what follows the last line break is being written
    for line in reversed(lines):
        try:
            return msgspec.json.decode(line, type=ProgressLine)
        except ValueError:
            continue
    return None


class GradingProgress(msgspec.Struct, frozen=True):
    """Steps of the present stage of grading."""

    time: datetime
    stage: str
    """`outputs`, or what the grader of a data set calls its steps"""
    done: int
    total: int
    elapsed_s: float
    """of the stage"""


class ProgressFile:
    """Keeps grading_progress.json in a folder while the context lasts; None keeps nothing.

    After a failure to write, which is a warning, it writes no more.
    """

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = None if folder is None else folder / GRADING_PROGRESS
        self._clock = clock
        self._stage, self._began, self._next = "", 0.0, 0.0
        self._broken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def show(self, done: int, total: int, what: str) -> None:
        """Called after every step; writes at the first step of a stage, and then every two seconds."""
        if self._path is None or self._broken:
            return
        now = self._clock()
        if what != self._stage:
            self._stage, self._began = what, now
        elif now < self._next:
            return
        self._next = now + _GRADING_EVERY_S
        moment = GradingProgress(datetime.now(UTC), what, done, total, round(now - self._began, 1))
        try:
            with atomic_write(self._path) as file:
                file.write(msgspec.json.encode(moment))
        except OSError as error:
            log.warning("warning: no progress is written: %s", machine_failure(error, self._path))
            self._broken = True


def read_grading(folder: Path) -> GradingProgress | None:
    """The present step; None where nothing is being graded, or the file is damaged."""
    try:
        return msgspec.json.decode((folder / GRADING_PROGRESS).read_bytes(), type=GradingProgress)
    except (OSError, ValueError):
        return None
