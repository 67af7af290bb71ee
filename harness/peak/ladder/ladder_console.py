"""The texts of a ladder on stdout: the plan, the progress, a line for each step, the result."""

from collections.abc import Iterator

from harness.analysis.replicas import SLOWER
from harness.errors import EXIT_VALID
from harness.peak.ladder.ladder_files import LADDER_PAGE
from harness.peak.ladder.ladder_plan import LadderPlan
from harness.peak.ladder.ladder_result import Ladder, broken, stragglers
from harness.peak.ladder.steps import NOT_A_RESULT, Latency, Step
from harness.progress.progress_line import LiveLine
from harness.record.repeated import repeat_step
from harness.report.run_console import DRY_RUN, api_lines, limits_text, served_by, server_lines
from harness.text import aligned, duration, labelled, milliseconds, show

_SLOWEST = 3  # replicas that a remark names
_PLAIN_EVERY_S = 30.0  # between two lines of progress in a log file or a pipe

# The columns of step_cells.
COLUMNS = (
    "in flight",
    "tokens/s",
    "per user",
    "req/s",
    "TTFT p50",
    "p90",
    "p99",
    "TPOT p50",
    "p90",
    "p99",
    "remarks",
)


class LadderConsole:
    """Prints a ladder to stdout while it lasts."""

    def __init__(self) -> None:
        self._line = LiveLine()
        self._last_plain_s = 0.0

    def plan(self, ladder: Ladder, plan: LadderPlan) -> None:
        """Everything is checked, nothing was sent yet."""
        steps = ", ".join(map(str, ladder.wanted))
        lines = [
            f"ladder: {ladder.benchmark}, requests in flight without LoadGen: {NOT_A_RESULT}",
            f"steps     {steps} in flight, {ladder.seconds:g} s each after their filling",
            f"limits    p99 of {ladder.scenario}: {limits_text(ladder.limits_ns) or 'none'}",
            f"samples   {ladder.samples} of {ladder.input_file}, in order, repeated",
            *labelled("api", api_lines(ladder.servers)),
            *labelled("server", server_lines(ladder.servers, served_by)),
            f"output    {plan.client.log_dir}",
            *labelled("DEVIATION", ladder.deviations),
            *labelled("WARNING", ladder.warnings),
        ]
        show(*lines)

    def progress(self, concurrency: int, elapsed_s: float, phase: str) -> None:
        """Show the progress: a line that is overwritten on a terminal, sometimes a plain line elsewhere."""
        text = f"[{duration(elapsed_s)}] {concurrency} in flight, {phase}"
        if self._line.on_terminal:
            self._line.show(text)
        # The time falls where another ladder begins.
        elif not 0 <= elapsed_s - self._last_plain_s < _PLAIN_EVERY_S:
            self._last_plain_s = elapsed_s
            self._line.show(text)

    def step(self, ladder: Ladder) -> None:
        """After each step."""
        self.end_line()
        last = ladder.steps[-1]
        user = last.user_tokens_per_s
        shown = "" if user is None else f", {user:,.1f} for a user"
        show(f"{last.concurrency} in flight: {last.tokens_per_s:,.1f} tokens/s{shown}")

    def finish(self, ladder: Ladder, plan: LadderPlan) -> int:
        """Print the result; returns the program's exit code."""
        self.end_line()
        if plan.client.dry_run:
            print(DRY_RUN)
            return EXIT_VALID
        page = f"page      {plan.client.log_dir / LADDER_PAGE}"
        show("", *table_lines(ladder), *result_lines(ladder), page, *repeat_lines(ladder))
        return ladder.exit_code

    def end_line(self) -> None:
        """Begin a new line where a line of progress is open."""
        self._line.end()


def table_lines(ladder: Ladder) -> Iterator[str]:
    """The steps as a table."""
    rows = [COLUMNS, *(step_cells(step, ladder) for step in ladder.steps)]
    yield from aligned(rows, ">" * (len(COLUMNS) - 1) + "<")


def step_cells(step: Step, ladder: Ladder) -> tuple[str, ...]:
    """A row of COLUMNS; times in ms."""
    user = step.user_tokens_per_s
    return (
        str(step.concurrency),
        f"{step.tokens_per_s:,.1f}",
        "-" if user is None else f"{user:,.1f}",
        f"{step.queries_per_s:,.2f}",
        *_latency_cells(step.ttft),
        *_latency_cells(step.tpot),
        "; ".join(remarks(step, ladder)),
    )


def remarks(step: Step, ladder: Ladder) -> Iterator[str]:
    """Remarks on a step, the most important first."""
    if step.failed:
        yield f"{step.failed} FAILED"
    if found := broken(step, ladder.limits_ns):
        yield found
    if not step.steady:
        yield "NOT STEADY"
    yield from step.notes
    slow = sorted(stragglers(step), key=lambda one: -one[1])
    yield from (f"{url} has {ratio:.2f} times the median TPOT" for url, ratio in slow[:_SLOWEST])
    if len(slow) > _SLOWEST:
        yield f"and {len(slow) - _SLOWEST} more replicas over {SLOWER:g} times"
    if step is ladder.best:
        yield "most tokens/s inside the limits"
    if step is ladder.knee:
        yield "knee"


def result_lines(ladder: Ladder) -> Iterator[str]:
    """The reason why the ladder ended, and the result."""
    yield f"stopped   {ladder.stopped}"
    yield from labelled("ERROR", (error for error in ladder.errors if error != ladder.stopped))
    yield from labelled("WARNING", ladder.warnings)
    if ladder.steps and ladder.best is None:
        yield "result    no step is inside the limits, without failures and with time to spare at the client"
    elif ladder.best is not None:
        best = ladder.best
        yield (
            f"result    {best.tokens_per_s:,.1f} tokens/s and {best.queries_per_s:,.2f} requests/s with "
            f"{best.concurrency} in flight: {NOT_A_RESULT}"
        )


def repeat_lines(ladder: Ladder) -> Iterator[str]:
    """The command that measures again, after a ladder that ended early or has failed requests."""
    made = ladder.provenance
    if ladder.exit_code != EXIT_VALID and made.command:
        mend = ladder.interrupted_by is None or ladder.has_failures
        yield str(repeat_step(made.command, made.folder, mend=mend))


def _latency_cells(latency: Latency | None) -> tuple[str, ...]:
    if latency is None:
        return ("-", "-", "-")
    return tuple(milliseconds(value) for value in (latency.p50_ns, latency.p90_ns, latency.p99_ns))
