"""A reference in another order than the log: noticed, and never where a model is merely weak.

30 questions of AIME 8 times, 60 of GPQA 5 times, 160 programs 3 times.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from harness.grading.decoding.harmony import HarmonyText
from harness.grading.evaluation.answer_order import Answered, AnswerShape, misplaced, shape
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import AIME, GPQA, LIVECODEBENCH, DatasetKind
from harness.grading.graders.grader_sets import graders_of
from harness.grading.scoring.grade import Grade

GRADERS = graders_of("gpt-oss-120b").by_kind
SIZES = ((AIME, 30, 8), (GPQA, 60, 5), (LIVECODEBENCH, 160, 3))
CODE = "```python\nclass Solution:\n    def f(self, A):\n        return 5\n```"
RIGHT = {AIME: 0.9, GPQA: 0.75, LIVECODEBENCH: 0.6}  # about what gpt-oss-120b has

Rows = Sequence[Reference]


def references(question_first: bool) -> list[Reference]:
    """The repeats of a question one after another, or the questions in their order again and again."""
    rng, rows = random.Random(1), []
    for kind, number, repeats in SIZES:
        truths = [
            str(rng.randrange(1000)) if kind == AIME else rng.choice("ABCD") if kind == GPQA else f"q{one}"
            for one in range(number)
        ]
        pairs = [(one, repeat) for one in range(number) for repeat in range(repeats)]
        pairs.sort(key=lambda pair: pair if question_first else pair[::-1])
        first = 1000 * len(rows)
        rows += [Reference(kind, kind, truths[one], repeat, first + one) for one, repeat in pairs]
    return rows


def final(text: str) -> HarmonyText:
    return HarmonyText(f"<|channel|>final<|message|>{text}<|return|>")


def said(row: Reference, rng: random.Random, right: float) -> str:
    is_right = rng.random() < right
    if row.kind == AIME:
        return rf"So it is $\boxed{{{row.truth if is_right else rng.randrange(1000)}}}$."
    if row.kind == GPQA:
        return f"**Answer:** {row.truth if is_right else rng.choice('ABCD')}"
    return f"Here it is:\n\n{CODE}"


def of_model(rows: Rows, share: float = 1.0) -> list[str]:
    rng = random.Random(2)
    return [said(row, rng, share * RIGHT[row.kind]) if rng.random() < 0.95 else "Hm." for row in rows]


@cache
def answered(text: str, kind: DatasetKind, truth: str) -> tuple[AnswerShape | None, str | None, bool]:
    """The shape of an output's answer, the answer, and whether it is right."""
    row, output = Reference(kind, kind, truth, 0), final(text)
    strict = GRADERS[kind].strict(output, truth)
    form = shape(output, row, GRADERS, strict)
    return (form, strict.answer, bool(strict.correct)) if isinstance(strict, Grade) else (form, text, False)


def reason(texts: Sequence[str], rows: Rows) -> str | None:
    """What is said of these outputs beside these references."""
    pairs = zip(texts, rows, strict=True)
    return misplaced([Answered(row, *answered(text, row.kind, row.truth)) for text, row in pairs])


def permuted(rows: Rows, kinds: Sequence[str] = (AIME, GPQA, LIVECODEBENCH)) -> list[Reference]:
    """The rows of these data sets in another order."""
    order = [index for index, row in enumerate(rows) if row.kind in kinds]
    places = random.Random(3).sample(order, len(order))
    moved = dict(zip(order, places, strict=True))
    return [rows[moved.get(index, index)] for index in range(len(rows))]


def in_sequence(*kinds: str) -> Callable[[Rows], list[Reference]]:
    return lambda rows: [row for kind in kinds for row in rows if row.kind == kind]


ORDERS = {
    "all permuted": permuted,
    "AIME permuted": lambda rows: permuted(rows, [AIME]),
    "GPQA permuted": lambda rows: permuted(rows, [GPQA]),
    "letters where numbers are expected": in_sequence(GPQA, AIME, LIVECODEBENCH),
    "programs first": in_sequence(LIVECODEBENCH, AIME, GPQA),
    "programs where letters are expected": in_sequence(AIME, LIVECODEBENCH, GPQA),
    "in turn": in_sequence(GPQA, LIVECODEBENCH, AIME),
    "reversed": lambda rows: rows[::-1],
    "shifted": lambda rows: [*rows[300:], *rows[:300]],
    "other repeats": lambda rows: references(rows[1].question != rows[0].question),
}


@pytest.mark.parametrize("question_first", [True, False])
@pytest.mark.parametrize("name", ORDERS)
def test_another_order_is_noticed(name: str, question_first: bool):
    rows = references(question_first)
    assert reason(of_model(rows), ORDERS[name](rows)) is not None


@pytest.mark.parametrize("question_first", [True, False])
def test_truths_that_were_permuted_alone_are_noticed(question_first: bool):
    """The questions stand where they stood, so their repeats have different true answers."""
    rows = references(question_first)
    others = permuted(rows, [GPQA])
    mixed = [
        Reference(row.dataset, row.kind, other.truth, row.repeat, row.question)
        for row, other in zip(rows, others, strict=True)
    ]
    found = reason(of_model(rows), mixed)
    assert found is not None and "different true answers in their repeats" in found


def test_a_reference_of_other_questions_is_noticed():
    rows = references(True)
    letters, programs = ([row for row in rows if row.kind == kind] for kind in (GPQA, LIVECODEBENCH))
    found = reason(of_model(letters)[:200], programs[:200])
    assert found is not None and "are a letter where a program is expected" in found


def words(rng: random.Random) -> str:
    vocabulary = [
        "the",
        "answer",
        "is",
        "A",
        "12",
        "so",
        "=",
        "\\boxed{",
        "}",
        "B",
        "```",
        "\n",
        "python",
        "7",
    ]
    return " ".join(rng.choices(vocabulary, k=60))


def anything(rng: random.Random) -> str:
    return rng.choice(["Answer: B", r"\boxed{17}", CODE])


def one_kind(kind: str, text: str) -> Callable[[Rows], list[str]]:
    return lambda rows: [
        text if row.kind == kind else good for row, good in zip(rows, of_model(rows), strict=True)
    ]


def each(answer: Callable[[random.Random], str]) -> Callable[[Rows], list[str]]:
    def texts(rows: Rows) -> list[str]:
        rng = random.Random(4)
        return [answer(rng) for _ in rows]

    return texts


def same_for_a_question(rows: Rows) -> list[str]:
    """As a weak model at temperature 0."""
    return [said(row, random.Random(row.question), 0.1) for row in rows]


HONEST = {
    "a good model": of_model,
    "a weak model": lambda rows: of_model(rows, 0.1),
    "a weak model at temperature 0": same_for_a_question,
    "random letters": each(lambda rng: f"Answer: {rng.choice('ABCD')}"),
    "the same letter": each(lambda rng: "Answer: A"),
    "empty": each(lambda rng: ""),
    "random words": each(words),
    "an answer of any kind": each(anything),
    "no letter at all": one_kind(GPQA, "I do not know."),
    "letters for AIME": one_kind(AIME, "Answer: C"),
    "zero for AIME": one_kind(AIME, r"\boxed{0}"),
    "programs for GPQA": one_kind(GPQA, CODE),
    "no programs": one_kind(LIVECODEBENCH, "I do not know."),
}


def test_prompts_that_do_not_tell_questions_apart_prove_nothing():
    rows = references(True)
    same = [Reference(row.dataset, row.kind, row.truth, index, 7) for index, row in enumerate(rows)]
    unknown = [Reference(row.dataset, row.kind, row.truth, None) for row in rows]
    texts = of_model(rows)
    assert (reason(texts, same), reason(texts, unknown)) == (None, None)


@pytest.mark.engine
@pytest.mark.parametrize("question_first", [True, False])
@pytest.mark.parametrize("name", HONEST)
def test_no_honest_log_is_suspected(name: str, question_first: bool):
    rows = references(question_first)
    assert reason(HONEST[name](rows), rows) is None


def row(kind: DatasetKind, truth: str, answer: str | None, question: int | None = None) -> Answered:
    """An answer that is a letter, a number or none."""
    form = None if answer is None else AnswerShape.LETTER if answer.isalpha() else AnswerShape.NUMBER
    return Answered(Reference(kind, kind, truth, 0, question), form, answer, answer == truth)


@pytest.mark.parametrize(
    ("letters", "programs", "noticed"),
    [(8, 0, True), (7, 0, False), (96, 4, True), (95, 5, False)],
)
def test_how_many_answers_of_another_shape_are_noticed(letters: int, programs: int, noticed: bool):
    """From eight answers on, where fewer than 5 % are programs, as expected."""
    expected = Reference(LIVECODEBENCH, LIVECODEBENCH, "q", 0)
    forms = [AnswerShape.LETTER] * letters + [AnswerShape.PROGRAM] * programs
    found = misplaced([Answered(expected, form, None, False) for form in forms])
    assert (found is not None) is noticed


@pytest.mark.parametrize(("swapped", "noticed"), [(8, True), (7, False)])
def test_how_many_letters_and_programs_in_each_others_places_are_noticed(swapped: int, noticed: bool):
    """Eight letters, among many right answers: fewer may be a model's mistakes."""
    places = ((LIVECODEBENCH, "q", AnswerShape.LETTER), (GPQA, "A", AnswerShape.PROGRAM))
    rows = [row(AIME, "12", "12")] * 40
    rows += [
        Answered(Reference(kind, kind, truth, 0), form, None, False) for kind, truth, form in places
    ] * swapped
    assert (misplaced(rows) is not None) is noticed


@pytest.mark.parametrize(
    ("right", "elsewhere", "others", "noticed"),
    [
        (0, 8, 0, True),
        (0, 7, 0, False),  # too few
        (0, 13, 7, True),
        (0, 12, 8, False),  # 60 % would be right in another order
        (5, 14, 1, True),
        (6, 14, 0, False),  # 30 % are right
    ],
)
def test_how_many_numbers_at_other_places_are_noticed(right, elsewhere, others, noticed):
    rows = [row(AIME, f"1{number}", f"1{number}") for number in range(right)]
    rows += [row(AIME, f"2{number}", f"2{(number + 1) % elsewhere}") for number in range(elsewhere)]
    rows += [row(AIME, f"3{number}", f"4{number}") for number in range(others)]
    assert (misplaced(rows) is not None) is noticed


def test_digits_at_other_places_may_be_chance():
    rows = [row(AIME, str(number % 10), str((number + 1) % 10)) for number in range(40)]
    assert misplaced(rows) is None


@pytest.mark.parametrize(("different", "noticed"), [(3, False), (4, True)])
def test_how_many_questions_may_have_different_true_answers(different: int, noticed: bool):
    """Of ten, 30 %: the same question may stand in a data set twice."""
    rows = [row(GPQA, "A", None, question) for question in range(10)]
    rows += [row(GPQA, "B" if question < different else "A", None, question) for question in range(10)]
    assert (misplaced(rows) is not None) is noticed
