"""The grade of one output: its scores, and where there is one, right or wrong with its reason."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, StrEnum
from types import MappingProxyType

import msgspec

Progress = Callable[[int, int, str], None]  # done, total, what


class GradingMode(StrEnum):
    """Official: the published rules, their mistakes included. Strict: what the output really answers."""

    OFFICIAL = "official"
    STRICT = "strict"


BOTH_MODES: Sequence[GradingMode] = tuple(GradingMode)


_OWN_LIMIT = "a limit of our sandbox alone"


class Reason(StrEnum):
    """The reason of a grade; "no answer" is not "wrong"."""

    meaning: str
    """One sentence for a reader of a report."""

    CORRECT = "correct", "The answer is right."
    WRONG = "wrong", "There is an answer, and it is not the true one; a program failed a test."
    SCORED = "scored", "A text metric, which is neither right nor wrong."
    EMPTY = "empty", "The output has no token, or no text but white space."
    LOOPING = "looping", "The token limit ended the output while it repeated itself; it gives no answer."
    TRUNCATED = "truncated", "The token limit ended the output before it gave an answer."
    NO_FINAL = (
        "no_final",
        "The output ended by itself and has no final part (gpt-oss: the final channel; DeepSeek: the text "
        "after its thoughts).",
    )
    NO_ANSWER = "no_answer", "The output ended by itself, and nothing in the part that is read is an answer."
    MISSING = "missing", "The log has no entry for the sample, or its row of the table has no output."
    TIMEOUT = "timeout", "The program, or the comparison of a MATH-500 answer, took too long."
    RUNTIME_ERROR = "runtime_error", "The program ended with an error."
    OUTPUT_LIMIT = "output_limit", f"The program printed too much: {_OWN_LIMIT}."
    MEMORY_LIMIT = "memory_limit", f"The program needed too much memory: {_OWN_LIMIT}."
    THREAD_LIMIT = "thread_limit", f"The program started too many threads: {_OWN_LIMIT}."
    FILE_LIMIT = "file_limit", f"The program opened too many files: {_OWN_LIMIT}."
    KILLED = "killed", "A signal ended the process of the program."
    SANDBOX_LOST = (
        "sandbox_lost",
        "The program gave no result twice, or was killed for want of memory: a failure of the machine, "
        "perhaps not of the program.",
    )

    def __new__(cls, word: str, meaning: str) -> "Reason":
        """A row of the table."""
        reason = str.__new__(cls, word)
        reason._value_, reason.meaning = word, meaning
        return reason


# Limits of the sandbox, which the official runner does not have.
SANDBOX_LIMITS = (Reason.MEMORY_LIMIT, Reason.OUTPUT_LIMIT, Reason.THREAD_LIMIT, Reason.FILE_LIMIT)


class Total(Enum):
    """The ways in which the scores of all samples become the value of a metric."""

    PERCENT = "100 times the mean; the repeats of a data set count as one sample"
    SUM = "the sum"
    PERCENT_OF_LOGGED = "the mean of 100 times the scores; every sample counts once"
    TOKENS = "the mean number of token ids that the log has for a sample"
    ENTRIES = "the number of samples that the log has"


class AccuracyMetric(msgspec.Struct, frozen=True):
    """A metric: how it is computed from the scores, and how its official evaluator prints it."""

    total: Total
    decimals: int | None
    """Printed ones; None: every digit that distinguishes a value from its neighbours, as Python prints it."""
    quoted: bool = False
    """Whether it is printed in quotes, without zeros at the end: that evaluator rounds before it prints."""


EXACT_MATCH = "exact_match"
# The metrics of graders whose grades are right or wrong.
RIGHT_OR_WRONG: Mapping[str, AccuracyMetric] = MappingProxyType(
    {EXACT_MATCH: AccuracyMetric(Total.PERCENT, 3)}
)
# The same for an evaluator that takes means over the log, as deepseek-r1's does.
OF_LOGGED: Mapping[str, AccuracyMetric] = MappingProxyType(
    {
        EXACT_MATCH: AccuracyMetric(Total.PERCENT_OF_LOGGED, None),
        "tokens_per_sample": AccuracyMetric(Total.TOKENS, None),
        "num-samples": AccuracyMetric(Total.ENTRIES, 0),
    }
)
RIGHT: Mapping[str, float] = MappingProxyType({EXACT_MATCH: 1.0})
WRONG: Mapping[str, float] = MappingProxyType({EXACT_MATCH: 0.0})


class FailedTest(msgspec.Struct, frozen=True):
    """The first test that a program failed."""

    number: int
    """Counted from 0."""
    output: str
    """The start of what the program printed or returned."""


class Grade(msgspec.Struct, frozen=True):
    """The grade of one output by the rules of one mode."""

    scores: Mapping[str, float]
    """The scores by metric."""
    correct: bool | None
    """Right or wrong; None for a text metric, which is neither."""
    answer: str | None
    """The answer that was found in the output; None: none."""
    reason: Reason
    detail: str = ""
    """One line of evidence."""
    raced: bool = False
    """Whether a program both passed and failed on the same tests."""
    starved: bool = False
    """Whether a program ran out of time because other programs had the processors."""
    failed: FailedTest | None = None
    """The first test that a program failed."""
    read: str = ""
    """The text of the output that the answer was taken from; empty: not recorded."""


class Task(msgspec.Struct, frozen=True):
    """Work for a task runner, which grades once the log is read. Equal tasks are graded once."""


def answered(answer: str, correct: bool, read: str = "") -> Grade:
    """The grade of an answer that was found; ``read`` is the field of Grade."""
    reason = Reason.CORRECT if correct else Reason.WRONG
    return Grade(RIGHT if correct else WRONG, correct, answer, reason, read=read)


def unanswered(reason: Reason) -> Grade:
    """The grade where there is no answer to compare."""
    return Grade(WRONG, False, None, reason)


def scored(scores: Mapping[str, float], text: str) -> Grade:
    """The grade of a text metric; ``text`` is the part of the output that was compared."""
    return Grade(scores, None, text, Reason.SCORED)
