"""The report on samples to look at: those that the modes grade differently, the wrong and the remarked ones.

Markdown, or HTML by the file's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.files import atomic_write, explained_write
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
from harness.report.html.page import PAGE_BEGIN
from harness.text import counted, legible, printable

_HTML_SUFFIXES = (".html", ".htm")
_SHOWN_QUESTION = 300
_DISAGREE = "Where the official and the strict rules disagree"
_WRONG = "Wrong by all requested rules"
_REMARKED = "With remarks"


def begin_of(path: Path) -> bytes:
    """The first bytes of a report of this name."""
    return PAGE_BEGIN if _is_html(path) else f"# {TITLE}\n".encode()


def _is_html(path: Path) -> bool:
    return path.suffix.lower() in _HTML_SUFFIXES


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
    if _is_html(path):
        text = samples_html(sections, texts, heading, meanings)
    else:
        text = _markdown(sections, texts, heading, meanings)
    with explained_write(path, "--disagreements"), atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))


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


_Groups = Mapping[tuple[str, str], Sequence[GradedSample]]


def _groups(samples: Sequence[GradedSample]) -> _Groups:
    """By data set and reason, the most frequent first; the repeats of a question beside each other."""
    ordered = sorted(samples, key=lambda sample: (sample.reference.question or 0, sample.qsl_idx))
    groups = by_key(((sample.reference.dataset, _why(sample)), sample) for sample in ordered)
    return {key: groups[key] for key in sorted(groups, key=lambda key: (key[0], -len(groups[key]), key[1]))}


def _why(sample: GradedSample) -> str:
    """The reasons of its grades, or its remarks."""
    if sample.remarks:
        return ", ".join(sample.remarks)
    reasons = {mode: grade.reason for mode, grade in sample.grades.items()}
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return ", ".join(f"{mode} {reason}" for mode, reason in reasons.items())


def _entry(sample: GradedSample, texts: SampleTexts) -> Iterator[str]:
    """The lines of one sample."""
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
    yield from (f"#### sample {sample.qsl_idx} (qsl_idx)", "")
    yield from (f"    {printable(', '.join(filter(None, facts)))}", "")
    for name, text in named:
        if text.strip():
            yield from (f"{name}:", "", *(f"    {line}" for line in legible(text).splitlines()), "")


def _markdown(sections: _Sections, texts: SampleTexts, heading: Heading, meanings: Mapping[str, str]) -> str:
    """Text indented by four is shown as it is, HTML and Markdown in it included."""
    found = {
        f"{title} ({counted(len(samples), 'sample')})": _groups(samples)
        for title, samples in sections.items()
    }
    lines = [f"# {TITLE}", "", f"    {printable(heading.result.line)}", "", HOW, "", "## Contents", ""]
    for title, groups in found.items():
        places = (f"{legible(dataset)}: {why} ({len(part)})" for (dataset, why), part in groups.items())
        lines += [f"{title}:", "", *(f"    {printable(place)}" for place in places), ""]
    lines += ["## Reasons", "", *(f"- `{word}`: {text}" for word, text in meanings.items()), ""]
    for title, groups in found.items():
        lines += [f"## {title}", ""]
        for (dataset, why), part in groups.items():
            lines += [f"### {why} ({len(part)})", "", f"    {printable(legible(dataset))}", ""]
            lines += [line for sample in part for line in _entry(sample, texts)]
    return "\n".join(lines)
