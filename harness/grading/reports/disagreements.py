"""The report on samples to look at: those that the modes grade differently, the wrong and the remarked ones.

Markdown, or HTML by the file's name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.files import atomic_write, not_written
from harness.grading.decoding.output_sources import Outputs
from harness.grading.evaluation.evaluate import GradedSample
from harness.grading.graders.grader import LIVECODEBENCH
from harness.grading.livecodebench.index import ProblemIndex
from harness.grading.reports.sample_texts import (
    SampleTexts,
    evidence,
    has_short_truth,
    name_of,
    question_of,
    start,
)
from harness.grading.reports.samples_report import HOW, TITLE, Heading, samples_html
from harness.grading.scoring.grade import Reason
from harness.grouping import by_key
from harness.text import counted, legible, printable

_HTML_SUFFIXES = (".html", ".htm")
_SHOWN_QUESTION = 300
_DISAGREE = "Where the official and the strict rules disagree"
_WRONG = "Wrong by all requested rules"
_REMARKED = "With remarks"


class _Entry(msgspec.Struct, frozen=True):
    """One sample."""

    qsl_idx: int
    facts: str
    """In one line."""
    texts: Sequence[tuple[str, str]]
    """Names and texts."""


class _Group(msgspec.Struct, frozen=True):
    """Samples of one data set and one reason."""

    dataset: str
    reason: str
    entries: Sequence[_Entry]


def write_report(
    path: Path,
    graded: Sequence[GradedSample],
    outputs: Outputs,
    heading: Heading,
    tests: ProblemIndex | None,
    remarks: Mapping[str, str],
) -> None:
    """Write the report. Raises ConfigError if it cannot be written.

    ``tests`` has those that programs failed, ``remarks`` the meanings of the graders' remarks.
    """
    sections, texts = _sections(graded, remarks), SampleTexts(outputs, tests)
    meanings = _meanings(sections, remarks)
    if path.suffix.lower() in _HTML_SUFFIXES:
        text = samples_html(sections, texts, heading, meanings)
    else:
        text = _markdown(sections, texts, heading, meanings)
    try:
        with atomic_write(path) as file:
            file.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise not_written(path, error, "--disagreements") from error


_Sections = Mapping[str, Sequence[GradedSample]]


def _sections(graded: Sequence[GradedSample], remarks: Mapping[str, str]) -> _Sections:
    """The samples to look at by heading; a heading without samples says that there are none."""
    shown = [sample for sample in graded if sample.has_output]
    grades = [grade for sample in graded for grade in sample.grades.values()]
    possible = (
        (_DISAGREE, len(grades) > len(graded), [one for one in shown if one.disagrees]),
        (
            _WRONG,
            any(grade.correct is not None for grade in grades),
            [one for one in shown if _is_wrong(one)],
        ),
        (_REMARKED, bool(remarks), [one for one in shown if one.remarks]),
    )
    return {title: samples for title, is_possible, samples in possible if is_possible}


def _meanings(sections: _Sections, remarks: Mapping[str, str]) -> dict[str, str]:
    """The meanings of the words that name reasons and remarks."""
    listed = [sample for samples in sections.values() for sample in samples]
    reasons = {grade.reason for sample in listed for grade in sample.grades.values()}
    return {reason.value: reason.meaning for reason in Reason if reason in reasons} | dict(remarks)


def _is_wrong(sample: GradedSample) -> bool:
    return all(grade.correct is False for grade in sample.grades.values())


def _groups(samples: Iterable[GradedSample], texts: SampleTexts) -> Iterator[_Group]:
    """By data set and reason, the most frequent first; the repeats of a question beside each other."""
    groups = by_key(((sample.reference.dataset, _why(sample)), sample) for sample in samples)
    for dataset, why in sorted(groups, key=lambda key: (key[0], -len(groups[key]), key[1])):
        part = groups[dataset, why]
        part.sort(key=lambda sample: (sample.reference.question or 0, sample.qsl_idx))
        yield _Group(legible(dataset), why, [_entry(sample, texts) for sample in part])


def _why(sample: GradedSample) -> str:
    """The reasons of its grades, or its remarks."""
    if sample.remarks:
        return ", ".join(sample.remarks)
    reasons = {mode: grade.reason for mode, grade in sample.grades.items()}
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return ", ".join(f"{mode} {reason}" for mode, reason in reasons.items())


def _entry(sample: GradedSample, texts: SampleTexts) -> _Entry:
    row = sample.reference
    is_short = has_short_truth(row)
    facts = [
        name_of(row),
        f"truth {row.truth}" if is_short and row.kind != LIVECODEBENCH else "",
        evidence(sample),
        sample.length,
    ]
    named = [
        ("question", start(question_of(row), _SHOWN_QUESTION)),
        ("truth", "" if is_short else start(row.truth)),
        *texts.grades(sample),
        ("end of the output", texts.tail(sample)),
    ]
    shown = [(name, legible(text)) for name, text in named if text.strip()]
    return _Entry(sample.qsl_idx, printable(", ".join(filter(None, facts))), shown)


def _markdown(sections: _Sections, texts: SampleTexts, heading: Heading, meanings: Mapping[str, str]) -> str:
    """Text indented by four is shown as it is, HTML and Markdown in it included."""
    found = [
        (f"{title} ({counted(len(samples), 'sample')})", list(_groups(samples, texts)))
        for title, samples in sections.items()
    ]
    lines = [f"# {TITLE}", "", f"    {printable(heading.result.line)}", "", HOW, "", "## Contents", ""]
    for title, groups in found:
        lines += [f"{title}:", "", *(f"    {printable(_place(group))}" for group in groups), ""]
    lines += ["## Reasons", "", *(f"- `{word}`: {text}" for word, text in meanings.items()), ""]
    for title, groups in found:
        lines += [f"## {title}", ""]
        for group in groups:
            lines += [
                f"### {group.reason} ({len(group.entries)})",
                "",
                f"    {printable(group.dataset)}",
                "",
                *_markdown_entries(group),
            ]
    return "\n".join(lines)


def _markdown_entries(group: _Group) -> Iterator[str]:
    for entry in group.entries:
        yield from (f"#### sample {entry.qsl_idx} (qsl_idx)", "", f"    {entry.facts}", "")
        for name, text in entry.texts:
            yield from (f"{name}:", "", *(f"    {line}" for line in text.splitlines()), "")


def _place(group: _Group) -> str:
    return f"{group.dataset}: {group.reason} ({len(group.entries)})"
