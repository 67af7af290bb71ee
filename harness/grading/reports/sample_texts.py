"""Texts of a graded sample for people: its question, what was found and where, how a program failed."""

from collections.abc import Iterator

from harness.grading.decoding.output_sources import Outputs
from harness.grading.evaluation.evaluate import GradedSample
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import LIVECODEBENCH
from harness.grading.livecodebench.index import ProblemIndex
from harness.grading.scoring.grade import FailedTest, Grade, GradingMode
from harness.grouping import by_key
from harness.text import printable

_TAIL_TOKENS = 300  # the part of an output that is shown: the answer stands at its end
_SHOWN = 600  # characters of a test's input, of what is expected and of what came, of an answer
_LINE = 100  # characters that are shown in one line
_SHORT = 60  # a true answer that fits into a heading
_OVERLAP = 80  # characters of a program's end that show where it ends in an output
_AROUND = 200  # characters on each side of what was read, where it is not at the end
_USER, _END = "<|start|>user<|message|>", "<|end|>"  # around the question in gpt-oss's prompts


def has_short_truth(row: Reference) -> bool:
    """Whether the true answer fits into a heading. That of a program is the name of its problem."""
    return len(row.truth) <= _SHORT and "\n" not in row.truth


class SampleTexts:
    """Texts of samples; a program that was shown already is named by its sample."""

    def __init__(self, outputs: Outputs, tests: ProblemIndex | None) -> None:
        self._outputs, self._tests = outputs, tests
        self._programs: dict[str, int] = {}

    def grades(self, sample: GradedSample) -> Iterator[tuple[str, str]]:
        """What was found by the rules of each mode, equal grades once."""
        for grade, modes in distinct_grades(sample):
            names = " and ".join(modes)
            rules = f"{names} rules"
            yield rules, grade.reason + (f": {grade.detail}" if grade.detail else "")
            if grade.answer is not None and sample.reference.kind == LIVECODEBENCH:
                yield f"program by the {rules}", self._program(grade.answer, sample.qsl_idx)
            elif grade.answer is not None:
                yield f"answer by the {rules}", start(grade.answer)
                yield "read from", start(grade.read)
            if grade.failed and self._tests:
                yield from _failing_test(grade.failed, sample.reference.truth, self._tests)

    def _program(self, code: str, qsl_idx: int) -> str:
        first = self._programs.setdefault(code, qsl_idx)
        return code if first == qsl_idx else f"the same program as in sample {first}"

    def tail(self, sample: GradedSample) -> str:
        """The end of its output, of a program what follows it; "" where it is the answer."""
        text = self._outputs.text(sample.place, slice(-_TAIL_TOKENS, None))
        for grade in sample.grades.values():
            code = grade.answer if sample.reference.kind == LIVECODEBENCH else None
            if code and (end := text.rfind(code[-_OVERLAP:])) >= 0:
                return f"[the program] {text[end + len(code[-_OVERLAP:]) :]}"
            if grade.answer == text.strip():
                return ""  # it is shown already
        return text

    def around(self, sample: GradedSample, text: str) -> str:
        """The part of its output around the last place of ``text``; "" where it is nowhere."""
        output = self._outputs.text(sample.place)
        if (place := place_of(output, text)) is None:
            return ""
        begin, end = place
        return output[max(begin - _AROUND, 0) : end + _AROUND]


def place_of(text: str, read: str) -> tuple[int, int] | None:
    """Where the text that was read stands last, with the asterisks around it.

    gpt-oss's official rules read a text without the asterisks of its bold letters.
    """
    if (begin := text.rfind(read)) >= 0:
        return begin, begin + len(read)
    plain, sought = text.replace("*", ""), read.replace("*", "")
    if not sought or (begin := plain.rfind(sought)) < 0:
        return None
    edges = [-1, *(at for at, letter in enumerate(text) if letter != "*"), len(text)]
    return edges[begin] + 1, edges[begin + len(sought) + 1]


def distinct_grades(sample: GradedSample) -> list[tuple[Grade, list[GradingMode]]]:
    """Its grades with their rules, equal grades once."""
    alike = by_key(
        ((grade.reason, grade.answer, grade.detail, grade.read), mode)
        for mode, grade in sample.grades.items()
    )
    return [(sample.grades[modes[0]], modes) for modes in alike.values()]


def question_of(row: Reference) -> str:
    """The prompt, of gpt-oss's template what the user asks."""
    _, mark, text = (row.prompt or "").rpartition(_USER)
    return (text.partition(_END)[0] if mark else text).strip()


def evidence(sample: GradedSample) -> str:
    """What was answered, or how the program failed, in one line."""
    if sample.reference.kind == LIVECODEBENCH:
        found = {mode: f"fails {grade.detail}" for mode, grade in sample.grades.items() if grade.failed}
    else:
        found = {
            mode: f"answer {grade.answer}"
            for mode, grade in sample.grades.items()
            if grade.answer is not None and grade.correct is not None
        }
    if len(found) == len(sample.grades) and len(set(found.values())) == 1:
        return printable(next(iter(found.values())), _LINE)
    return printable(", ".join(f"{mode} {text}" for mode, text in found.items()), _LINE)


def name_of(row: Reference) -> str:
    """The question, as far as the references name it, and which repeat of it this is."""
    repeat = "" if row.repeat is None else f", repeat {row.repeat + 1}"
    if row.kind == LIVECODEBENCH:
        return f"problem {row.truth}{repeat}"
    return "" if row.question is None else f"question {row.question + 1}{repeat}"


def _failing_test(failed: FailedTest, question_id: str, tests: ProblemIndex) -> Iterator[tuple[str, str]]:
    test, name = tests.test(question_id, failed.number), f"failing test {failed.number + 1}"
    yield f"{name}, input", start(test.input)
    yield f"{name}, expected", start(test.expected)
    yield f"{name}, printed or returned", start(failed.output)


def start(text: str, most: int = _SHOWN) -> str:
    """The start of a text, with its length where more follows."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text)} characters)"
