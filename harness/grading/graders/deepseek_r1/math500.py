r"""MATH-500: an answer in LaTeX, equal to the true one.

Official: the last ``\boxed{}`` of the complete text, compared by prm800k's rules.
"""

import re
from collections.abc import Sequence

from harness.grading.grade import BOTH_MODES, Grade, Mode, Reason, Task, answered, unanswered
from harness.grading.graders import deepseek_r1
from harness.grading.graders.deepseek_r1.judge import PAIR_MEMORY, Judge, Pair
from harness.grading.graders.deepseek_r1.prm800k import plain
from harness.grading.livecodebench.runner import usable_cores
from harness.grading.options import EvaluationOptions
from harness.grading.output import Output
from harness.grading.sandbox.probe import choose_sandbox
from harness.grading.sandbox.tiers import sandbox

METRICS = deepseek_r1.METRICS
FIRST_ENTRY_COUNTS = deepseek_r1.FIRST_ENTRY_COUNTS
MISSING_ARE_WRONG = deepseek_r1.MISSING_ARE_WRONG
MODES = BOTH_MODES
NAMES_QUESTION = False

_BOX = r"\boxed{"
_BRACE = re.compile("[{}]")


def check_reference(value: object) -> str:
    """The true answer."""
    if not isinstance(value, str | int | float) or not str(value).strip() or value != value:
        raise ValueError("an answer as text")
    return str(value)


def prepare(truths: Sequence[str], options: EvaluationOptions) -> Judge:
    """As BatchGrader: choose a sandbox."""
    tier = choose_sandbox(options.allow_unsandboxed).tier
    return Judge(sandbox(tier, PAIR_MEMORY), options.num_lcb_workers or usable_cores())


def official(output: Output, truth: str) -> Grade | Task:
    """The grade by the published rules, or the comparison that leads to it."""
    answer = boxed(output.text)
    if answer is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    if not answer or plain(answer) == plain(truth):
        return answered(answer, bool(answer))
    return Pair(Mode.OFFICIAL, answer, truth)


def boxed(text: str) -> str | None:
    """What is in the last box; None without a box, and where the last one is not closed."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    start += len(_BOX)
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[start : brace.start()].strip()
    return None


def strict(output: Output, truth: str) -> Grade | Task:
    """The grade of the answer behind the thinking, or the comparison that leads to it."""
    if output.strict_final is None:
        return unanswered(output.defect or Reason.NO_FINAL)
    answer = boxed(output.strict_final)
    if not answer:
        return unanswered(output.defect or Reason.NO_ANSWER)
    return Pair(Mode.OFFICIAL, answer, truth)
