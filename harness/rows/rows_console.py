"""The texts of runs without LoadGen on stdout, and of run_eval.py: the plan, the progress, the result."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from harness.errors import EXIT_VALID
from harness.progress.progress_line import ProgressBar, ProgressPrinter, ProgressSnapshot
from harness.record.repeated import restarting_command, resuming_command
from harness.record.settled import ServerInfo
from harness.report.run_console import DRY_RUN, api_lines, sampling_text, served_by, server_lines
from harness.rows.eval_plan import EvalPlan
from harness.rows.eval_result import EvalResult
from harness.rows.table_scoring import table_scoring_command
from harness.text import by_kind, counted, labelled, show

_OUTPUT = ("--output", "-o", "--output-file")


class RowsConsole(ABC):
    """Prints a run of rows to stdout while it lasts (sut.rows.run_rows.RowsWatcher)."""

    WRITTEN: ClassVar[str]
    """what the file of answers consists of"""

    def __init__(self, command: Sequence[str]) -> None:
        """``command``: sys.argv, for the command that resumes the run."""
        self._command = command
        self._progress = ProgressPrinter()
        self._writing = ProgressBar(sys.stderr)

    @abstractmethod
    def heading(self, plan: EvalPlan, samples: int) -> tuple[str, str]:
        """The line of the rows, and that of the answers."""

    @abstractmethod
    def lines(self, result: EvalResult) -> list[str]:
        """The result of a run that sent its rows."""

    def earlier(self, first_line: str) -> None:
        """What an earlier run has left: the first line of the output."""
        show(first_line)

    def plan(
        self, plan: EvalPlan, samples: int, kept: int, servers: Sequence[ServerInfo], warnings: Sequence[str]
    ) -> None:
        """Everything is checked, nothing was sent yet."""
        rows, answers = self.heading(plan, samples)
        lines = [
            rows,
            f"answers   {answers}",
            *labelled("api", api_lines(servers)),
            *labelled("server", server_lines(servers, served_by)),
            f"output    {plan.output}",
            *labelled("WARNING", warnings),
        ]
        show(*lines)

    def progress(self, snapshot: ProgressSnapshot) -> None:
        """Once a second."""
        self._progress(snapshot)

    def written(self, done: int, total: int) -> None:
        """After each row of the file."""
        self._progress.end()
        self._writing.show(done, total, f"{self.WRITTEN} written")

    def finish(self, result: EvalResult) -> int:
        """Print the result; returns the program's exit code."""
        self._progress.end()
        self._writing.end()
        if result.was_complete:
            return result.exit_code
        if result.plan.client.dry_run:
            print(DRY_RUN)
            return EXIT_VALID
        show(*self.lines(result))
        return result.exit_code

    def counted(self, result: EvalResult) -> str:
        """The numbers of answered and failed rows, and the kinds of failures."""
        kinds = by_kind(result.failure_kinds)
        counts = f"{result.samples}: {len(result.answers)} answered, {len(result.failures)} failed"
        return f"{counts} ({kinds})" if kinds else counts

    def next_command(self, result: EvalResult) -> str:
        """``12 answers are kept; to resume: COMMAND``, or to begin anew where they are unfit."""
        kept, words = counted(len(result.answers), "answer", "is"), self._words(result)
        if result.is_unfit:
            return f"{kept} kept; to begin anew: {restarting_command(words)}"
        return f"{kept} kept; to {self._resume(result)}: {resuming_command(words)}"

    def _resume(self, result: EvalResult) -> str:
        return "resume"

    def _words(self, result: EvalResult) -> Sequence[str]:
        return self._command


class EvalConsole(RowsConsole):
    """Prints a run of run_eval.py."""

    WRITTEN = "rows"

    def heading(self, plan: EvalPlan, samples: int) -> tuple[str, str]:
        """Rows of a table, with the benchmark's parameters."""
        client, skipped = plan.client, f", behind the first {plan.skip}" if plan.skip else ""
        rows = f"{counted(samples, 'row')} of {client.input_file}{skipped}"
        title = f"{client.benchmark.name}, every row once, without LoadGen: {rows}"
        return title, sampling_text(client.parameters)

    def lines(self, result: EvalResult) -> list[str]:
        """The counts, and how to score or resume."""
        answered, failed = len(result.answers), len(result.failures)
        tokens = result.tokens
        lines = [f"rows           {self.counted(result)}"]
        if answered:
            lines.append(f"tokens         {tokens}, {tokens / answered:.1f} each on average")
        lines += labelled("WARNING", result.warnings, 14)
        if result.without_text:
            without = counted(result.without_text, "answer", "has")
            lines.append(f"WARNING        {without} ids that the tokenizer does not have: no model_output")
        lines += labelled("ERROR", result.errors, 14)
        if not result.is_complete:
            left = result.samples - answered - failed
            lines.append(
                f"{counted(left, 'row', 'has')} neither an answer nor a failure: the file is not written"
            )
        if result.written:
            lines.append(f"output         {result.plan.output}")
        if result.has_truths and not result.failures and not result.errors:
            plan, client = result.plan, result.plan.client
            rows = slice(plan.skip, plan.skip + result.samples)
            scoring = table_scoring_command(
                plan.output, client.input_file, client.benchmark, client.tokenizer, rows
            )
            lines.append(f"Score it with: {scoring}")
        if result.interrupted_by:
            lines.append(f"ended by {result.interrupted_by}")
        if result.failures or result.errors or not result.written:
            lines.append(self.next_command(result))
        return lines

    def _resume(self, result: EvalResult) -> str:
        return "send the failed rows again" if result.written and result.failures else "resume"

    def _words(self, result: EvalResult) -> Sequence[str]:
        """The command with the file, whose default name has the time."""
        is_named = any(word.replace("_", "-").split("=")[0] in _OUTPUT for word in self._command)
        return self._command if is_named else (*self._command, "--output", str(result.plan.output))
