"""What a grader says of one output: right or not, which answer it saw, and why."""

from dataclasses import dataclass
from enum import StrEnum


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
class Verdict:
    """``answer`` is the extracted one (None: none found); ``detail`` is one line of evidence."""

    correct: bool
    answer: str | None
    reason: Reason
    detail: str = ""
    raced: bool = False  # a program that passed and failed on the same tests
    failed: FailedTest | None = None  # of a program


def judged(answer: str, correct: bool) -> Verdict:
    """The verdict on an answer that was found."""
    return Verdict(correct, answer, Reason.CORRECT if correct else Reason.WRONG)


def unanswered(reason: Reason) -> Verdict:
    """The verdict where there is no answer to compare."""
    return Verdict(False, None, reason)
