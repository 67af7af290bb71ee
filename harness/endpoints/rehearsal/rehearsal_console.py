"""The texts of a rehearsal on stdout: the plan, the progress of each point, its numbers, what is left."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.analysis.statistics import user_tokens_per_s
from harness.endpoints.accuracy import PointAccuracy
from harness.endpoints.curve import Point
from harness.endpoints.official_files import percentile_of
from harness.endpoints.point_run import PointRun
from harness.progress.progress_line import LiveLine, ProgressBar, ProgressPrinter, ProgressSnapshot
from harness.record.settled import ServerInfo
from harness.rows.eval_plan import EvalPlan
from harness.text import by_kind, counted, duration, labelled, milliseconds, show

_PLAIN_EVERY_S = 30.0  # between two lines of progress in a log file or a pipe


class RehearsalConsole:
    """Prints a rehearsal while it lasts (sut.endpoints.point.PointWatcher)."""

    def __init__(self) -> None:
        self._line = LiveLine()
        self._bar = ProgressBar(sys.stderr)
        self._plain: tuple[str, float] = ("", 0.0)
        self._said: set[str] = set()

    def say(self, *lines: str) -> None:
        """Lines that stay."""
        self._line.end()
        self._bar.end()
        show(*lines)

    def progress(self, point: Point, elapsed_s: float, phase: str) -> None:
        """The present phase: a line that is overwritten on a terminal, sometimes a plain line elsewhere."""
        last, last_s = self._plain
        if self._line.on_terminal or point.name != last or not 0 <= elapsed_s - last_s < _PLAIN_EVERY_S:
            self._plain = (point.name, elapsed_s)
            self._line.show(f"[{duration(elapsed_s)}] {point.name}: {phase}")

    def passed(self, point: Point, steady: str) -> None:
        """A line that stays: whether it is worth waiting for the rest of the point."""
        self.say(f"{point.name}: {steady}")

    def counting(self, done: int, total: int, what: str) -> None:
        """The work on a point's answers after its last request."""
        self._line.end()
        self._bar.show(done, total, what)

    def warn(self, warnings: Iterable[str]) -> None:
        """Warnings that were not said before: most are the same for each point."""
        new = [one for one in dict.fromkeys(warnings) if one not in self._said]
        self._said.update(new)
        show(*labelled("WARNING", new))

    def point(self, run: PointRun, summary: Mapping[str, Any], steady: str) -> None:
        """A point that has ended: what is wrong with it, its numbers in the rules' definitions."""
        words = [*_wrong(run), *_numbers(summary), *((steady,) if steady else ())]
        self.say(f"{run.point.name}: {', '.join(words)}")
        show(*labelled("ERROR", run.errors))
        self.warn((*run.warnings, *run.client_bound))

    def accuracy(self, point: Point, found: PointAccuracy) -> None:
        """An accuracy run that was scored."""
        self.say(f"{point.name}: accuracy {found.line}")
        self.warn(found.warnings)


class AccuracyConsole:
    """Prints the accuracy run of a point (sut.endpoints.accuracy.AccuracyWatcher)."""

    def __init__(self, point: Point, console: RehearsalConsole) -> None:
        self._point, self._console = point, console
        self._progress = ProgressPrinter()

    def earlier(self, first_line: str) -> None:
        """Nothing: the number of answers follows, and the score of a complete run."""

    def plan(
        self, plan: EvalPlan, samples: int, kept: int, servers: Sequence[ServerInfo], warnings: Sequence[str]
    ) -> None:
        """One line; what is wrong with the servers was said before the first point."""
        found = f", {kept} of them answered" if kept else ""
        self._console.say(f"{self._point.name}: accuracy, {counted(samples, 'sample')}{found}")
        self._console.warn(warnings)

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Once a second."""
        self._progress(snapshot)

    def written(self, done: int, total: int) -> None:
        """After each row of the table of answers."""
        self.graded(done, total, "answers written")

    def graded(self, done: int, total: int, what: str) -> None:
        """An output or a program was graded."""
        self._progress.end()
        self._console.counting(done, total, what)


def _wrong(run: PointRun) -> list[str]:
    found = [] if run.complete else ["NOT COMPLETE"]
    if run.failures:
        failed = sum(run.failures.values())
        found.append(f"{failed} of {run.issued} requests FAILED ({by_kind(run.failures)})")
    return found


def _numbers(summary: Mapping[str, Any]) -> list[str]:
    """``1,234.5 tokens/s, 45.2 for a user, TTFT p90 210 ms``; what the summary has."""
    found = [] if summary.get("tps") is None else [f"{summary['tps']:,.1f} tokens/s"]
    if rate := user_tokens_per_s(percentile_of(summary, "tpot", 90)):
        found.append(f"{rate:,.1f} for a user")
    if ttft := percentile_of(summary, "ttft", 90):
        found.append(f"TTFT p90 {milliseconds(round(ttft))} ms")
    return found
