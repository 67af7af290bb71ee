"""The grade of one output: right or wrong, the answer that was found, and why; and the graded sample."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness.grading.references import Reference


class Mode(StrEnum):
    """Official: the published rules, their mistakes included. Strict: what the output really answers."""

    OFFICIAL = "official"
    STRICT = "strict"


class Reason(StrEnum):
    """Why a verdict is what it is; "no answer" is not "wrong"."""

    CORRECT = "correct"
    WRONG = "wrong"
    EMPTY = "empty"  # the output has no token, or nothing but white space
    LOOPING = "looping"  # the token limit ended it while it repeated itself
    TRUNCATED = "truncated"  # the token limit ended it before there was an answer
    NO_FINAL = "no_final"  # the output ended by itself and never opened its final channel
    NO_ANSWER = "no_answer"  # nothing in the graded part reads as an answer
    MISSING = "missing"  # the log has no entry for this sample
    TIMEOUT = "timeout"
    RUNTIME_ERROR = "runtime_error"
    OUTPUT_LIMIT = "output_limit"
    MEMORY_LIMIT = "memory_limit"
    THREAD_LIMIT = "thread_limit"
    FILE_LIMIT = "file_limit"
    KILLED = "killed"
    SANDBOX_LOST = "sandbox_lost"  # twice without a result: the machine's trouble, not known to be the code's


# The sandbox's, which the official runner does not have.
SANDBOX_LIMITS = (Reason.MEMORY_LIMIT, Reason.OUTPUT_LIMIT, Reason.THREAD_LIMIT, Reason.FILE_LIMIT)


@dataclass(frozen=True, slots=True)
class FailedTest:
    """The first test that a program failed, from 0, and the start of what it printed or returned there."""

    number: int
    output: str


@dataclass(frozen=True, slots=True)
class Grade:
    """``answer`` is the extracted one (None: none found); ``detail`` is one line of evidence."""

    correct: bool
    answer: str | None
    reason: Reason
    detail: str = ""
    raced: bool = False  # a program that passed and failed on the same tests
    failed: FailedTest | None = None  # of a program


def answered(answer: str, correct: bool) -> Grade:
    """The verdict on an answer that was found."""
    return Grade(correct, answer, Reason.CORRECT if correct else Reason.WRONG)


def unanswered(reason: Reason) -> Grade:
    """The verdict where there is no answer to compare."""
    return Grade(False, None, reason)


@dataclass(frozen=True, slots=True)
class Logged:
    """A sample's entry in the log: ``tokens`` is the OSL; offset and size locate the entry, in bytes.

    ``defect`` is EMPTY, LOOPING, TRUNCATED, or None for an output that ended by itself.
    """

    seq_id: int
    tokens: int
    defect: Reason | None
    has_final: bool
    offset: int
    size: int

    @property
    def truncated(self) -> bool:
        """Whether the token limit ended it."""
        return self.defect in (Reason.TRUNCATED, Reason.LOOPING)


@dataclass(frozen=True, slots=True)
class GradedSample:
    """``logged`` is None for a sample that the log lacks. ``grades`` has the modes that were asked for."""

    qsl_idx: int
    reference: Reference
    logged: Logged | None
    grades: Mapping[Mode, Grade]

    @property
    def disagrees(self) -> bool:
        """Whether the two modes differ on right or wrong."""
        return len({grade.correct for grade in self.grades.values()}) > 1


def absent(qsl_idx: int, reference: Reference, modes: tuple[Mode, ...]) -> GradedSample:
    """A sample without an entry: wrong in every mode."""
    return GradedSample(qsl_idx, reference, None, dict.fromkeys(modes, unanswered(Reason.MISSING)))
