"""Whether the answers of a log belong to their references, or to the same references in another order."""

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import combinations

import msgspec
import numpy as np

from harness.grading.decoding.output import Output
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import (
    AIME,
    GPQA,
    LIVECODEBENCH,
    MATH500,
    MMLU_PRO,
    DatasetKind,
    Grader,
)
from harness.grading.scoring.grade import Grade, Task
from harness.grouping import by_key
from harness.text import counted

_INTEGER = re.compile(r"-?\d+")
_FEW = 8  # fewer answers that fit another place prove nothing: the rules or the model may be wrong
_ODD = 0.1  # the share of answers, less two deviations, that may have no place that fits them
_FLAW = 0.05  # the share of answers that have the expected shape by chance beside other references
_PART = 0.3  # the share of what is beyond chance that separates too little from too much
_DEVIATIONS = 2.0  # above what the best of all distances reaches by chance
_MOST_REPEATS = 16  # if a question has more, prompts do not distinguish questions
_MOST_LIKE = 0.9  # the chance that two answers are equal; above it all answers are the same


class AnswerShape(StrEnum):
    """What an answer looks like, whatever its question."""

    LETTER = "a letter"
    NUMBER = "a number"
    PROGRAM = "a program"


# The graders that read a shape, the one that reads more of them first.
_READERS: Mapping[AnswerShape, tuple[DatasetKind, ...]] = {
    AnswerShape.PROGRAM: (LIVECODEBENCH,),
    AnswerShape.LETTER: (MMLU_PRO, GPQA),
    AnswerShape.NUMBER: (AIME,),
}
_SHAPES = {kind: shape for shape, kinds in _READERS.items() for kind in kinds}
_ANY_TRUTH: Mapping[AnswerShape, str] = {
    AnswerShape.PROGRAM: "x",
    AnswerShape.LETTER: "A",
    AnswerShape.NUMBER: "0",
}


def expected_shape(reference: Reference) -> AnswerShape | None:
    """The shape of the true answer; None for mathematics and texts, which have many."""
    if reference.kind == MATH500 and _INTEGER.fullmatch(reference.truth):
        return AnswerShape.NUMBER
    return _SHAPES.get(reference.kind)


def shape(
    output: Output, reference: Reference, graders: Mapping[DatasetKind, Grader], strict: Grade | Task | None
) -> AnswerShape | None:
    """The shape of the answer that an output gives: the expected one if it has it, else the only one.

    ``strict``: its grade by the strict rules, where it is known. None for an output without an answer, with
    several of different shapes, or where nothing is expected.
    """
    expected = expected_shape(reference)
    if expected is None or output.strict_final is None:
        return None
    if strict is not None and reference.kind in _READERS[expected]:
        has_expected = _is(strict, expected)
    else:
        has_expected = _reads(output, expected, graders)
    if has_expected:
        return expected
    found = [one for one in AnswerShape if one is not expected and _reads(output, one, graders)]
    return found[0] if len(found) == 1 else None


def _reads(output: Output, wanted: AnswerShape, graders: Mapping[DatasetKind, Grader]) -> bool:
    """Whether the strict rules find an answer of this shape."""
    kind = next((kind for kind in _READERS[wanted] if kind in graders), None)
    return kind is not None and _is(graders[kind].strict(output, _ANY_TRUTH[wanted]), wanted)


def _is(found: Grade | Task, wanted: AnswerShape) -> bool:
    """Whether an answer was found; a task is a program."""
    if isinstance(found, Task):
        return True
    return found.answer is not None and (
        wanted is not AnswerShape.NUMBER or bool(_INTEGER.fullmatch(found.answer))
    )


class Answered(msgspec.Struct, frozen=True):
    """The answer of an output, beside its reference."""

    reference: Reference
    shape: AnswerShape | None
    answer: str | None
    correct: bool


def misplaced(rows: Sequence[Answered]) -> str | None:
    """Why the answers seem to belong to other references; None where they seem to be in order.

    ``rows``: in the order of qsl_idx. A weak model's answers are wrong in every order, and so no reason.
    """
    return next(_reasons(rows), None)


def _reasons(rows: Sequence[Answered]) -> Iterator[str]:
    yield from _by_shape(rows)
    for name, part in by_key((row.reference.dataset, row) for row in rows).items():
        questions = {row.reference.question for row in part}
        tells_questions = len(questions) > 1 and len(part) <= _MOST_REPEATS * len(questions)
        if tells_questions:
            yield from _by_truth(name, part)
        if part[0].reference.kind in (AIME, MATH500):
            yield from _by_value(name, part)
        elif tells_questions and expected_shape(part[0].reference) is AnswerShape.LETTER:
            yield from _by_repeats(name, part)


def _by_shape(rows: Sequence[Answered]) -> Iterator[str]:
    """No answer of the expected shape; or those of a shape elsewhere, while as many are there as expected."""
    pairs = [
        (row.shape, expected) for row in rows if row.shape and (expected := expected_shape(row.reference))
    ]
    counts = Counter(pairs)
    found, wanted = Counter(one for one, _ in pairs), Counter(one for _, one in pairs)
    if len(pairs) >= _FEW and sum(counts[one, one] for one in AnswerShape) < _FLAW * len(pairs):
        (one, expected), count = counts.most_common(1)[0]
        yield f"{count} of {wanted[expected]} answers are {one} where {expected} is expected"
    odd, allowed = len(pairs) - (found & wanted).total(), _ODD * len(pairs)
    if odd > allowed - 2 * math.sqrt(allowed):
        return
    for one in AnswerShape:
        inside, elsewhere = counts[one, one], found[one] - counts[one, one]
        possible, chance = min(found[one], wanted[one]), found[one] * wanted[one] / max(1, len(pairs))
        if possible - inside >= _FEW and inside - chance < _PART * (possible - chance):
            yield (
                f"where {one} is expected {inside} of {wanted[one]} answers are one, but {elsewhere} answers "
                "at other places are"
            )


def _by_truth(name: str, rows: Iterable[Answered]) -> Iterator[str]:
    """Questions whose repeats have different true answers."""
    references = [row.reference for row in rows if row.reference.question is not None]
    truths = by_key((reference.question, reference.truth) for reference in references)
    different = sum(len(set(one)) > 1 for one in truths.values())
    if different > _PART * len(truths):
        yield f"{different} of {len(truths)} questions of {name} have different true answers in their repeats"


def _by_value(name: str, rows: Iterable[Answered]) -> Iterator[str]:
    """True answers at other places: to hit one of many numbers is no chance, but to hit a digit may be."""
    known = [row for row in rows if row.answer is not None and len(row.reference.truth) > 1]
    right = sum(row.correct for row in known)
    anywhere = _common((row.answer for row in known), (row.reference.truth for row in known))
    if known and anywhere - right >= _FEW and anywhere > 0.6 * len(known) and right < 0.3 * len(known):
        yield f"of {len(known)} answers of {name} {right} are right, {anywhere} would be in another order"


def _common(one: Iterable[Hashable], other: Iterable[Hashable]) -> int:
    return (Counter(one) & Counter(other)).total()


def _by_repeats(name: str, rows: Sequence[Answered]) -> Iterator[str]:
    """Answers that agree at a regular distance, but not where the references repeat a question."""
    answers = np.array([row.answer or "" for row in rows])
    given = answers[answers != ""]
    chance = sum((count / len(given)) ** 2 for count in Counter(given.tolist()).values())
    alike = _agreement(_repeats(rows))
    if alike is None or chance > _MOST_LIKE:
        return
    distances = range(1, len(rows) // 2 + 1)
    best, distance = max(((_likeness(answers, one, chance), one) for one in distances), default=(0.0, 0))
    if best > _PART * (1 - chance) and alike - chance < _PART * best:
        yield (
            f"answers to the same question of {name} agree in {100 * alike:.0f} % of pairs, as by chance; "
            f"those that are {counted(distance, 'row')} apart in {100 * (best + chance):.0f} %"
        )


def _repeats(rows: Sequence[Answered]) -> Iterator[tuple[str, str]]:
    """Pairs of answers to the same question."""
    questions = by_key(
        (row.reference.question, row.answer)
        for row in rows
        if row.answer is not None and row.reference.question is not None
    )
    return (pair for answers in questions.values() for pair in combinations(answers, 2))


def _agreement(pairs: Iterable[tuple[str, str]]) -> float | None:
    """The share of equal pairs; None without pairs."""
    equal = [one == other for one, other in pairs]
    return sum(equal) / len(equal) if equal else None


def _likeness(answers: "np.ndarray[tuple[int], np.dtype[np.str_]]", distance: int, chance: float) -> float:
    """The agreement of answers at a distance, beyond chance; 0 where it may be chance."""
    one, other = answers[:-distance], answers[distance:]
    both = (one != "") & (other != "")
    count = int(both.sum())
    if count == 0:
        return 0.0
    beyond = float((one == other)[both].mean()) - chance
    deviations = math.sqrt(2 * math.log(len(answers))) + _DEVIATIONS
    return beyond if beyond > deviations * math.sqrt(chance * (1 - chance) / count) else 0.0
