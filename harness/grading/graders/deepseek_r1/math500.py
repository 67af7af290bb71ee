r"""MATH-500: an answer in LaTeX, equal to the true one.

Official: the last ``\boxed{}`` of the complete text, compared by prm800k's rules. Strict: the answer behind
the thinking, boxed or called so, compared by what it means.
"""

import re
from collections.abc import Sequence

from harness.grading.decoding.output import Output
from harness.grading.grade import BOTH_MODES, Grade, Mode, Reason, Task, answered, unanswered
from harness.grading.graders import deepseek_r1
from harness.grading.graders.deepseek_r1.judge import PAIR_MEMORY, Judge, Pair
from harness.grading.graders.deepseek_r1.prm800k import plain
from harness.grading.livecodebench.runner import usable_cores
from harness.grading.options import EvaluationOptions
from harness.grading.sandbox.probe import choose_sandbox
from harness.grading.sandbox.tiers import sandbox

METRICS = deepseek_r1.METRICS
FIRST_ENTRY_COUNTS = deepseek_r1.FIRST_ENTRY_COUNTS
MISSING_ARE_WRONG = deepseek_r1.MISSING_ARE_WRONG
MODES = BOTH_MODES
NAMES_QUESTION = False

_BOX = r"\boxed{"
_BRACE = re.compile("[{}]")
# Possessive or bounded quantifiers throughout: no text may take more than linear time.
_ANY_BOX = re.compile(r"\\(?:boxed|fbox)\s*+{")
# "x = \boxed{1} or \boxed{2}": the boxes are one list.
_BETWEEN_BOXES = re.compile(
    r"[\s$,;]*+(?:\\text\s*+{\s*+)?+(?:,|;|and|or)(?:\s*+})?+[\s$]*+(?:[A-Za-z]\w?+\s*+=)?+[\s$]*+"
    r"|\s*+\$?+\s*+,\s*+\$?+\s*+"
)
_LEAD = re.compile(
    r"(?<![A-Za-z])(?:answer|result|solution)(?:\s++(?:to|for|of)\b[^.:\n]{0,80}?)?[*_`\s]*+"
    r"(?:\b(?:is|are|equals)\b|[:=\uff1a])[*_`:\s]*+(?:(?:therefore|thus|exactly|simply|indeed)\b[*_`:\s]*+)?+",
    re.IGNORECASE,
)
_MATHS = re.compile(
    r"\$\$(.{1,500}?)\$\$|\$([^$]{1,500})\$|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]", re.DOTALL
)
_SENTENCE = re.compile(r"[^\n]{1,300}?(?=\.(?:\s|$)|\*\*|\n|$)")
_WORDS = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}")


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
    """The grade of the answer behind the thinking, or the comparison that leads to it."""
    if output.strict_final is None:
        return unanswered(output.defect or Reason.NO_FINAL)
    answer = explicit_answer(output.strict_final)
    if answer is None:
        return unanswered(output.defect or Reason.NO_ANSWER)
    if answer == truth.strip():
        return answered(answer, True)
    return Pair(Mode.STRICT, answer, truth)


def explicit_answer(final: str) -> str | None:
    """The last boxes' content, else what is called the answer, else a last line of mathematics alone."""
    return _last_boxes(final) or _stated(final) or _last_line(final)


def _last_boxes(final: str) -> str | None:
    """The content of the last closed box, after those that make a list with it."""
    found: list[tuple[int, int, str]] = []
    opened = [match.end() for match in _ANY_BOX.finditer(final)]
    ends = _closing(final, opened)
    for start in opened:
        if (
            start in ends
            and (not found or start > found[-1][1])
            and (text := final[start : ends[start]].strip())
        ):
            found.append((start, ends[start], text))
    if not found:
        return None
    texts = [found[-1][2]]
    for (_, end, text), (start, _, _) in zip(found[-2::-1], found[:0:-1], strict=True):
        if not _BETWEEN_BOXES.fullmatch(_ANY_BOX.sub("", final[end + 1 : start])):
            break
        texts.insert(0, text)
    return ", ".join(texts)


def _closing(text: str, starts: Sequence[int]) -> dict[int, int]:
    """The end of the group that begins at each place, for closed ones."""
    places, wanted, ends = [], set(starts), {}
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            places.append(brace.end())
        elif places and (opened := places.pop()) in wanted:
            ends[opened] = brace.start()
    return ends


def _stated(final: str) -> str | None:
    last = None
    for last in _LEAD.finditer(final):  # noqa: B007 - the last one is wanted
        pass
    if last is None:
        return None
    if maths := _MATHS.match(final, last.end()):
        return _inside(maths)
    sentence = _SENTENCE.match(final, last.end())
    return sentence[0].strip("*_` ") or None if sentence else None


def _last_line(final: str) -> str | None:
    """The last line, where it is mathematics or a number and no sentence."""
    line = next((line for line in reversed(final.splitlines()) if line.strip(" *_`")), "").strip(" *_`.")
    if maths := _MATHS.fullmatch(line):
        return _inside(maths)
    is_short = len(line) <= 100 and not _ANY_BOX.search(line) and not _WORDS.search(line)
    return line if is_short and any(char.isalnum() for char in line) else None


def _inside(maths: re.Match[str]) -> str | None:
    return next(filter(None, maths.groups())).strip() or None
