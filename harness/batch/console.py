"""The texts of ``run_batch.py run`` on stdout: the plan, the progress, time and rate."""

import sys
from collections.abc import Sequence

from harness.grading.reports.progress import ProgressBar
from harness.outputs.outcome import EvalResult
from harness.outputs.plan import EvalPlan
from harness.record.resolved_plan import ServerInfo
from harness.report.console import served_by, server_lines
from harness.report.next_step import resuming_command
from harness.report.progress import ProgressPrinter, ProgressSnapshot
from harness.text import printable

_LONG = 2000


class BatchConsole:
    """Prints a batch to stdout while it runs (sut.rows.run.Watcher)."""

    def __init__(self, command: Sequence[str], positions: int) -> None:
        """``command``: sys.argv, for the command that resumes it; ``positions``: of prompt and answer."""
        self._command = command
        self._positions = positions
        self._progress = ProgressPrinter()
        self._writing = ProgressBar(sys.stderr)

    def plan(
        self, plan: EvalPlan, samples: int, kept: int, servers: Sequence[ServerInfo], warnings: Sequence[str]
    ) -> None:
        """Everything is checked, nothing was sent yet."""
        parameters, run = plan.run.parameters, plan.run
        how = "greedy" if parameters.temperature == 0 else (
            f"temperature {parameters.temperature:g}, top_p {parameters.top_p:g}"
        )  # fmt: skip
        seed = "" if parameters.seed is None else f", seed {parameters.seed}"
        lines = [
            f"{run.benchmark.name}: {samples} prompts of {run.input_file}",
            f"answers   {self._positions} positions for a prompt with its answer, {how}{seed}",
            *(f"server    {line}" for line in server_lines(servers, served_by)),
            f"output    {plan.output}",
            *([f"resuming  {kept} of {samples} prompts are answered already"] if kept else []),
            *(f"WARNING   {warning}" for warning in warnings),
        ]  # fmt: skip
        _print(lines)

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Once a second."""
        self._progress(snapshot)

    def written(self, done: int, total: int) -> None:
        """After each line of the file."""
        self._progress.end()
        self._writing.show(done, total, "lines written")

    def finish(self, result: EvalResult) -> int:
        """Print the result; returns the program's exit code."""
        self._progress.end()
        if result.plan.run.dry_run:
            print("dry run: everything is checked, nothing was sent")
            return 0
        _print(self._lines(result))
        return result.exit_code

    def _lines(self, result: EvalResult) -> list[str]:
        answered, failed = len(result.answers), len(result.failures)
        kinds = ", ".join(f"{kind} {count}" for kind, count in result.failure_kinds.items())
        tokens = sum(answer.count for answer in result.answers.values())
        lines = [
            f"prompts   {result.samples}: {answered} answered, {failed} failed"
            + (f" ({kinds})" if kinds else "")
        ]
        lines += [f"WARNING   {warning}" for warning in result.warnings]
        lines += [f"ERROR     {error}" for error in result.errors]
        if result.failures:
            index, (kind, detail) = min(result.failures.items())
            lines.append(f"ERROR     line {index + 2} of the prompts: {kind.label}: {detail}")
        if result.written:
            lines += _times(result, tokens)
        if result.interrupted_by:
            lines.append(f"ended by {result.interrupted_by}")
        if not result.written:
            lines.append(
                f"{result.plan.output} is not written; {answered} answers are kept; to resume: "
                f"{resuming_command(self._command)}"
            )
        return lines


def _times(result: EvalResult, tokens: int) -> list[str]:
    """In the words of the engines that use these files; the trial request of each server is the warm-up."""
    lines = [f"warm up elapsed time(s): {result.warm_up_s:f}"]
    if result.elapsed_s:
        rate = tokens / result.elapsed_s
        lines.append(f"elapsed time(s): {result.elapsed_s:f}, achieved throughput TPS (tok/s): {rate:f}")
    if result.kept:
        lines.append(
            f"resumed   {result.kept} answers are of earlier attempts; the time is that of all attempts"
        )
    return [*lines, f"output    {result.plan.output}: {result.samples} answers, {tokens} tokens"]


def _print(lines: Sequence[str]) -> None:
    print("\n".join(printable(line, _LONG) for line in lines), flush=True)
