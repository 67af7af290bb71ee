"""The page of graded samples: a card for each question, folded answers, filters by data set, kind and reason.

Without JavaScript all cards are shown; the script only hides what a filter leaves out.
"""

from collections.abc import Iterable, Sequence

import msgspec

from harness.analysis.run_outcome import Status
from harness.report.html.page import Page, asset, rendered

_BYTES = 1e6


class Span(msgspec.Struct, frozen=True):
    """A part of a text."""

    text: str
    marks: tuple[str, ...] = ()
    """the rules that read their answer here: `official`, `strict`"""
    strong: bool = False
    """the answer itself"""


class Excerpt(msgspec.Struct, frozen=True):
    """A named text of an answer."""

    name: str
    spans: Sequence[Span]


class Answer(msgspec.Struct, frozen=True):
    """One graded sample."""

    qsl_idx: int
    repeat: str
    """which repeat of the question it is; "" where repeats are not known"""
    verdicts: Sequence[tuple[str, str, Status]]
    """rules, reason and status of each grade; equal grades once"""
    facts: str
    """in one line"""
    kinds: Sequence[str]
    """why it is shown"""
    difference: str
    """why the official and the strict rules differ; "" where they do not"""
    excerpts: Sequence[Excerpt]

    @property
    def reasons(self) -> list[str]:
        """The reasons of its grades."""
        return [reason for _, reason, _ in self.verdicts]


class Question(msgspec.Struct, frozen=True):
    """The samples of one question."""

    dataset: str
    name: str
    text: str
    """"" where the references have no text"""
    truth: str
    answers: Sequence[Answer]


class Filter(msgspec.Struct, frozen=True):
    """One way to choose samples; an answer names the numbers of its options."""

    name: str
    label: str
    options: Sequence[str]


def render_samples(page: Page, questions: Sequence[Question]) -> str:
    """The page's HTML. The sections of ``page`` follow the questions."""
    answers = [answer for question in questions for answer in question.answers]
    filters = (
        Filter("dataset", "data set", _distinct(question.dataset for question in questions)),
        Filter("kind", "shown because", _distinct(kind for answer in answers for kind in answer.kinds)),
        Filter("reason", "reason", _distinct(reason for answer in answers for reason in answer.reasons)),
    )
    numbers = {one.name: {text: number for number, text in enumerate(one.options)} for one in filters}
    return rendered(
        page,
        "samples.html",
        asset("samples.js"),
        asset("page.css") + asset("samples.css"),
        questions=questions,
        filters=filters,
        numbers=numbers,
        total=len(answers),
        megabytes=_characters(questions) / _BYTES,
    )


def _distinct(texts: Iterable[str]) -> list[str]:
    return sorted(set(texts))


def _characters(questions: Sequence[Question]) -> int:
    """About the size of the page."""
    return sum(
        len(question.text)
        + sum(
            len(span.text)
            for answer in question.answers
            for excerpt in answer.excerpts
            for span in excerpt.spans
        )
        for question in questions
    )
