r"""MATH-500: an answer in LaTeX, equal to the true one.

Official: the last ``\boxed{}`` of the complete text, compared by prm800k's rules. Strict: the answer after
the thinking, boxed or called the answer, compared by its meaning.
"""

import re
from collections.abc import Sequence

from harness.grading.decoding.output import Output
from harness.grading.graders.grader import TaskOptions
from harness.grading.graders.math_judge import PAIR_MEMORY, AnswerPair, MathJudge
from harness.grading.graders.prm800k import plain
from harness.grading.graders.statements import READ_CHARACTERS, Stated, Values, grade_final, last_answer
from harness.grading.graders.units import is_unit
from harness.grading.sandbox.tier_probe import choose_sandbox
from harness.grading.sandbox.tiers import sandbox
from harness.grading.scoring.grade import Grade, GradingMode, Reason, Task, answered, unanswered

_BOX = r"\boxed{"
_BRACE = re.compile("[{}]")
_LONGEST_LINE = 100
# Possessive or bounded quantifiers throughout: no text may take more than linear time.
_MATHS = re.compile(
    r"\s*+(?:\$\$(.{1,500}?)\$\$|\$([^$]{1,500})\$|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\])", re.DOTALL
)
_END = re.compile(
    r"[\s.,;:!*_)\]✓∎]*+$|,?\s++(?:because|since|as)\b|\s*+[,;]\s++(?:which|where|as|so)\b|\s++(?:-|–|—)\s"  # noqa: RUF001
)
_UNIT_AFTER = re.compile(r"\s*+([A-Za-z][A-Za-z .]{0,40}?)(?:\^[23]|[²³])?[\s.!]*+$")
_WORDS = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}")
_FEW_WORDS = 3


def check_reference(value: object) -> str:
    """The true answer."""
    if not isinstance(value, str | int | float) or not str(value).strip() or value != value:
        raise ValueError("an answer as text")
    return str(value)


def prepare(truths: Sequence[str], options: TaskOptions) -> MathJudge:
    """As GraderWithTasks: choose a sandbox."""
    tier = choose_sandbox(options.allow_unsandboxed).tier
    return MathJudge(sandbox(tier, PAIR_MEMORY), options.workers)


def official(output: Output, truth: str) -> Grade | Task:
    """The grade by the published rules, or the comparison that leads to it."""
    answer = boxed(output.text)
    if answer is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    read = f"{_BOX}{answer}}}"[:READ_CHARACTERS]
    if not answer or plain(answer) == plain(truth):
        return answered(answer, bool(answer), read)
    return AnswerPair(GradingMode.OFFICIAL, answer, truth, read)


def boxed(text: str) -> str | None:
    """The content of the last box; None without a box, and where the last one is not closed."""
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
    """The grade of the answer after the thinking, or the comparison that leads to it."""
    grade = grade_final(output, truth.strip(), explicit_answer)
    if grade.correct or grade.answer is None:
        return grade
    return AnswerPair(GradingMode.STRICT, grade.answer, truth, grade.read)


def explicit_answer(final: str) -> Stated | None:
    """The content of the last boxes, or what is called the answer; else a last line of mathematics alone."""
    return last_answer(final, _Mathematics(has_box="\\boxed" in final)) or _last_line(final)


class _Mathematics(Values):
    """Answers in LaTeX, as Values. Where there are boxes, words that are called the answer are remarks."""

    PERCENT_MAY_FOLLOW = True

    def __init__(self, *, has_box: bool) -> None:
        self._has_box = has_box

    def stated(self, text: str) -> str | None:
        """As Values."""
        if maths := _MATHS.match(text):
            after = text[maths.end() :]
            unit = _UNIT_AFTER.match(after)
            if _END.match(after) or (unit and is_unit(unit[1])):
                return _inside(maths)
            return None
        written = text.strip(" \n*_`").removesuffix(".").strip(" *_`")
        is_short = "\n" not in written and len(written) <= _LONGEST_LINE
        if not written or not is_short or _MATHS.search(written):
            return None
        return written if len(_WORDS.findall(written)) <= (0 if self._has_box else _FEW_WORDS) else None

    def exactly(self, text: str) -> str | None:
        """As Values."""
        maths = _MATHS.fullmatch(text.strip())
        return _inside(maths) if maths else None

    def boxed(self, content: str) -> str:
        """As Values."""
        return content.strip()

    def several(self, values: Sequence[str]) -> str:
        """As Values."""
        return ", ".join(values)

    def is_mentioned(self, text: str) -> bool:
        """As Values."""
        return _MATHS.match(text) is not None or re.search(r"\d", text) is not None


def _last_line(final: str) -> Stated | None:
    """The last line, if it is mathematics or a number rather than a sentence."""
    line = next((line for line in reversed(final.splitlines()) if line.strip(" *_`")), "").strip(" *_`.")
    end = len(final.rstrip())
    if maths := _MATHS.fullmatch(line):
        return Stated(_inside(maths), end - len(line), end)
    is_short = len(line) <= _LONGEST_LINE and "\\boxed" not in line and not _WORDS.search(line)
    is_answer = is_short and any(char.isalnum() for char in line)
    return Stated(line, end - len(line), end) if is_answer else None


def _inside(maths: re.Match[str]) -> str | None:
    return next(filter(None, maths.groups())).strip() or None
