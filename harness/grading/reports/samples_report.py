"""The page of samples to look at: grouped by question, with the span that was read as the answer."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.analysis.run_outcome import STATUS_OF, Status
from harness.analysis.run_outcome import number as figure
from harness.grading.evaluation.evaluate import GradedSample
from harness.grading.evaluation.pass_criteria import TargetResult
from harness.grading.graders.grader import LIVECODEBENCH
from harness.grading.reports.sample_texts import (
    SampleTexts,
    distinct_grades,
    evidence,
    has_short_truth,
    name_of,
    place_of,
    question_of,
    start,
)
from harness.grading.scoring.grade import Grade, Reason
from harness.grouping import by_key
from harness.report.html.page import Badge, Page, PageTable, Section, Tile
from harness.report.html.samples_page import Answer, Excerpt, Question, Span, render_samples
from harness.text import legible, printable, utc

TITLE, HOW = "Samples to look at", "A sample is named by its index in the dataset (qsl_idx)."
_QUESTION = 20_000  # characters of a question that are shown
_LINE = 60  # characters of an answer that the heading shows


class Heading(msgspec.Struct, frozen=True):
    """What the report is about."""

    benchmark: str
    log: Path
    result: TargetResult
    graded: datetime = msgspec.field(default_factory=lambda: datetime.now(UTC))


def samples_html(
    sections: Mapping[str, Sequence[GradedSample]],
    texts: SampleTexts,
    heading: Heading,
    meanings: Mapping[str, str],
) -> str:
    """The page of the samples of all sections, each sample once."""
    kinds = by_key((sample.qsl_idx, title) for title, found in sections.items() for sample in found)
    samples = {sample.qsl_idx: sample for found in sections.values() for sample in found}
    counts = {title: len(found) for title, found in sections.items()}
    return render_samples(_page(heading, counts, meanings), list(_questions(samples, kinds, texts)))


def _page(heading: Heading, counts: Mapping[str, int], meanings: Mapping[str, str]) -> Page:
    result = heading.result
    met = result.is_met
    words = list(meanings.items())
    return Page(
        title=f"{TITLE}: {heading.benchmark}",
        subtitle=f"{printable(str(heading.log))}, graded {utc(heading.graded)}",
        badges=(Badge("SCORE PASS" if met else "SCORE FAIL", "good" if met else "bad"),),
        reasons=(result.line,),
        figures=(*_metrics(result), *(Tile(f"{count:,}", title) for title, count in counts.items())),
        sections=[Section("reasons", "Reasons", tables=[PageTable(("word", "meaning"), words)])],
        footer=HOW,
    )


def _metrics(result: TargetResult) -> Iterator[Tile]:
    """The failed metrics first."""
    for metric in sorted(result.metrics, key=lambda one: one.is_met):
        word = "PASS" if metric.is_met else "FAIL"
        high = metric.value > metric.highest
        bound = f"at most {figure(metric.highest)}" if high else f"target {figure(metric.lowest)}"
        yield Tile(f"{figure(metric.value)} {word}", f"{metric.name}, {bound}", STATUS_OF[metric.is_met])


def _questions(
    samples: Mapping[int, GradedSample], kinds: Mapping[int, Sequence[str]], texts: SampleTexts
) -> Iterator[Question]:
    """Questions of one data set beside each other, those on which the modes disagree first."""
    groups: dict[tuple[str, int], list[GradedSample]] = {}
    for sample in samples.values():
        row = sample.reference
        number = -1 - sample.qsl_idx if row.question is None else row.question
        groups.setdefault((row.dataset, number), []).append(sample)

    def place(key: tuple[str, int]) -> tuple[bool, str, int]:
        return not any(one.disagrees for one in groups[key]), key[0], abs(key[1])

    for key in sorted(groups, key=place):
        found = sorted(groups[key], key=lambda sample: sample.qsl_idx)
        row = found[0].reference
        short = has_short_truth(row) and row.kind != LIVECODEBENCH
        yield Question(
            dataset=legible(row.dataset),
            name=printable(name_of(row).partition(", repeat")[0]),
            text=legible(start(question_of(row), _QUESTION)),
            truth=printable(row.truth) if short else "",
            answers=[_answer(sample, kinds[sample.qsl_idx], texts) for sample in found],
        )


def _answer(sample: GradedSample, kinds: Sequence[str], texts: SampleTexts) -> Answer:
    row, logged = sample.reference, sample.logged
    assert logged is not None  # samples with an output only
    verdicts = list(_verdicts(sample))
    verdicts += [("remark", remark, "plain") for remark in sample.remarks or ()]
    ending = "ended by the token limit" if logged.truncated else "ended by itself"
    return Answer(
        qsl_idx=sample.qsl_idx,
        repeat="" if row.repeat is None else f"repeat {row.repeat + 1}",
        verdicts=verdicts,
        facts=", ".join(filter(None, (evidence(sample), sample.length, ending))),
        kinds=kinds,
        difference=_difference(sample) if sample.disagrees else "",
        excerpts=list(_excerpts(sample, texts)),
    )


def _verdicts(sample: GradedSample) -> Iterator[tuple[str, str, Status]]:
    """Reason and status of the grades; of equal ones with the names of both rules."""
    modes = by_key(
        ((grade.reason.value, STATUS_OF[grade.correct]), mode) for mode, grade in sample.grades.items()
    )
    for (reason, status), names in modes.items():
        yield " and ".join(names), reason, status


def _difference(sample: GradedSample) -> str:
    """What each mode reads, or why it reads no answer."""
    return printable("; ".join(f"{mode} rules: {_reading(grade)}" for mode, grade in sample.grades.items()))


def _reading(grade: Grade) -> str:
    if grade.answer is None:
        return f"no answer ({grade.reason}): {grade.reason.meaning.rstrip('.')}"
    detail = f", {grade.detail}" if grade.detail else ""
    if "\n" in grade.answer:
        return f"{grade.reason}{detail}"
    read = "the answer" if grade.reason in (Reason.CORRECT, Reason.WRONG) else f"({grade.reason})"
    return f"{read} {grade.answer!r} is {'right' if grade.correct else 'wrong'}{detail}"


def _excerpts(sample: GradedSample, texts: SampleTexts) -> Iterator[Excerpt]:
    """The true answer where it is long, what was found, and where in the output."""
    row = sample.reference
    if not has_short_truth(row):
        yield _plain("truth", start(row.truth))
    grades = distinct_grades(sample)
    bare = {f"{' and '.join(modes)} rules" for grade, modes in grades if not grade.detail}
    for name, text in texts.grades(sample):
        if name not in bare and not _is_said(name, text) and text.strip():
            yield _plain(name, text)
    tail, readings = texts.tail(sample), _readings(sample)
    for modes, read, answer in readings:
        if place_of(tail, read) is None and (around := texts.around(sample, read)):
            yield Excerpt(
                f"where the {' and '.join(modes)} rules read", spans_of(around, [(modes, read, answer)])
            )
    if tail.strip():
        yield Excerpt("end of the output", spans_of(tail, readings))


def _is_said(name: str, text: str) -> bool:
    """Whether the heading has the answer, or a mark the place."""
    return name == "read from" or (name.startswith("answer") and len(text) <= _LINE and "\n" not in text)


def _plain(name: str, text: str) -> Excerpt:
    return Excerpt(name, (Span(legible(text)),))


_Reading = tuple[Sequence[str], str, str]  # rules, the text that they read, the answer in it


def _readings(sample: GradedSample) -> list[_Reading]:
    """The texts that answers were read from; programs are shown whole, and not marked."""
    if sample.reference.kind == LIVECODEBENCH:
        return []
    return [
        (tuple(modes), read, grade.answer)
        for grade, modes in distinct_grades(sample)
        if grade.answer is not None and (read := grade.read or grade.answer).strip()
    ]


def spans_of(text: str, readings: Sequence[_Reading]) -> list[Span]:
    """The text in parts, of which those that were read are marked with the rules that did."""
    places = []  # begin, end, rules; of an answer no rules
    for modes, read, answer in readings:
        if (place := place_of(text, read)) is None:
            continue
        begin, end = place
        places.append((begin, end, tuple(modes)))
        found = list(re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", text[begin:end]))
        if len(found) == 1 and answer != read:  # else it is not known which one was read
            places.append((begin + found[0].start(), begin + found[0].end(), ()))
    edges = sorted({0, len(text), *(edge for begin, end, _ in places for edge in (begin, end))})
    spans = []
    for begin, end in itertools.pairwise(edges):
        over = [modes for first, last, modes in places if first <= begin and end <= last]
        marks = tuple(sorted({mode for modes in over for mode in modes}))
        spans.append(Span(legible(text[begin:end]), marks, strong=() in over))
    return spans
