"""The texts of ``run_batch.py run`` on stdout: the plan, the progress, time and rate."""

from collections.abc import Sequence

from harness.rows.eval_plan import EvalPlan
from harness.rows.eval_result import EvalResult
from harness.rows.rows_console import RowsConsole
from harness.text import counted, labelled


class BatchConsole(RowsConsole):
    """Prints a batch of prompts."""

    WRITTEN = "lines"

    def __init__(self, command: Sequence[str], positions: int) -> None:
        """``positions`` is the largest number of tokens in a prompt with its answer."""
        super().__init__(command)
        self._positions = positions

    def heading(self, plan: EvalPlan, samples: int) -> tuple[str, str]:
        """Prompts of a file, with the parameters of the command line."""
        parameters, client = plan.client.parameters, plan.client
        how = "greedy" if parameters.temperature == 0 else (
            f"temperature {parameters.temperature:g}, top_p {parameters.top_p:g}"
        )  # fmt: skip
        seed = "" if parameters.seed is None else f", seed {parameters.seed}"
        answers = f"{self._positions} positions for a prompt with its answer, {how}{seed}"
        return f"{client.benchmark.name}: {counted(samples, 'prompt')} of {client.input_file}", answers

    def lines(self, result: EvalResult) -> list[str]:
        """The counts, then time and rate, or how to resume."""
        lines = [f"prompts   {self.counted(result)}"]
        lines += [*labelled("WARNING", result.warnings), *labelled("ERROR", result.errors)]
        if result.failures:
            index, (kind, detail) = min(result.failures.items())
            lines.append(f"ERROR     line {index + 2} of the prompts: {kind.label}: {detail}")
        if result.written:
            lines += _times(result)
        if result.interrupted_by:
            lines.append(f"ended by {result.interrupted_by}")
        if not result.written:
            lines.append(f"{result.plan.output} is not written; {self.next_command(result)}")
        elif result.errors:
            lines.append(self.next_command(result))
        return lines


def _times(result: EvalResult) -> list[str]:
    """In the words of the engines that use these files; the trial request of each server is the warm-up."""
    lines = [f"warm up elapsed time(s): {result.warm_up_s:f}"]
    if result.elapsed_s:
        rate = result.tokens / result.elapsed_s
        lines.append(f"elapsed time(s): {result.elapsed_s:f}, achieved throughput TPS (tok/s): {rate:f}")
    if result.kept:
        kept = counted(result.kept, "answer", "is")
        lines.append(f"resumed   {kept} of earlier attempts; the time is that of all attempts")
    counts = f"{counted(result.samples, 'answer')}, {counted(result.tokens, 'token')}"
    return [*lines, f"output    {result.plan.output}: {counts}"]
