"""The report on samples to look at: those that the modes grade differently, and the wrong ones.

Markdown, or HTML by the file's name. Both show the same sections, and the same entries in the same order.
"""

import html
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import GradingError
from harness.grading.decoding.output_sources import Outputs
from harness.grading.evaluation.evaluate import GradedSample
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import LIVECODEBENCH
from harness.grading.livecodebench.index import ProblemIndex
from harness.grading.scoring.grade import FailedTest, Grade, GradingMode, Reason
from harness.text import counted, legible, printable

_HTML_SUFFIXES = (".html", ".htm")
_TAIL_TOKENS = 300  # the part of an output that is shown: the answer stands at its end
_SHOWN = 600  # characters of a test's input, of what is expected and of what came, of an answer
_SHOWN_QUESTION = 300
_LINE = 100  # characters that are shown in one line
_SHORT = 60  # a true answer that fits into a heading
_OVERLAP = 80  # characters of a program's end that show where it ends in an output
_USER, _END = "<|start|>user<|message|>", "<|end|>"  # around the question in gpt-oss's prompts
_TITLE = "Samples to look at"
_DISAGREE = "Where the official and the strict rules disagree"
_WRONG = "Wrong by all requested rules"
_REMARKED = "With remarks"
_HOW = "A sample is named by its index in the dataset (qsl_idx)."
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # a page of model output runs nothing
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:70em;margin:1.5em auto;padding:0 1em}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;padding:.4em .6em;margin:.2em 0 .8em}"
    "details{border:1px solid #ccc;margin:.3em 0;padding:.3em .6em}summary{cursor:pointer}"
    "dt{font-weight:bold}dd{margin:0 0 0 1em}h3{margin-top:2em}"
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One sample."""

    qsl_idx: int
    facts: str
    """In one line."""
    texts: Sequence[tuple[str, str]]
    """Names and texts."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Samples of one data set and one reason."""

    section: str
    dataset: str
    reason: str
    entries: Sequence[_Entry]

    @property
    def anchor(self) -> str:
        return f"s{self.entries[0].qsl_idx}"


@dataclass(frozen=True, slots=True)
class _Page:
    """The content of the report."""

    headline: str
    counts: Mapping[str, int]
    """The number of samples by section."""
    meanings: Mapping[str, str]
    """The meanings of the words that name reasons and remarks."""
    groups: Sequence[_Group]


def write_report(
    path: Path,
    graded: Sequence[GradedSample],
    outputs: Outputs,
    headline: str,
    tests: ProblemIndex | None = None,
    remarks: Mapping[str, str] | None = None,
) -> None:
    """Write the report. GradingError if it cannot be written.

    ``tests`` has those that programs failed, ``remarks`` the meanings of the graders' remarks.
    """
    page = _page(graded, outputs, headline, tests, remarks or {})
    text = (_html if path.suffix.lower() in _HTML_SUFFIXES else _markdown)(page)
    try:
        path.write_text(text, "utf-8", errors="replace")
    except OSError as error:
        raise GradingError(f"{path}: cannot be written ({error}); choose another --disagreements") from error


def _page(
    graded: Sequence[GradedSample],
    outputs: Outputs,
    headline: str,
    tests: ProblemIndex | None,
    remarks: Mapping[str, str],
) -> _Page:
    shown = [sample for sample in graded if sample.has_output]
    grades = [grade for sample in graded for grade in sample.grades.values()]
    possible = (  # a heading without samples says that there are none
        (_DISAGREE, len(grades) > len(graded), [one for one in shown if one.disagrees]),
        (
            _WRONG,
            any(grade.correct is not None for grade in grades),
            [one for one in shown if _is_wrong(one)],
        ),
        (_REMARKED, bool(remarks), [one for one in shown if one.remarks]),
    )
    sections = {title: samples for title, is_possible, samples in possible if is_possible}
    texts = _Texts(outputs, tests)
    listed = [sample for samples in sections.values() for sample in samples]
    reasons = {grade.reason for sample in listed for grade in sample.grades.values()}
    meanings = {reason.value: reason.meaning for reason in Reason if reason in reasons}
    groups = [group for title, samples in sections.items() for group in _groups(title, samples, texts)]
    counts = {title: len(samples) for title, samples in sections.items()}
    return _Page(headline, counts, {**meanings, **remarks}, groups)


def _is_wrong(sample: GradedSample) -> bool:
    return all(grade.correct is False for grade in sample.grades.values())


def _groups(section: str, samples: Iterable[GradedSample], texts: "_Texts") -> Iterator[_Group]:
    """By data set and reason, the most frequent first; the repeats of a question beside each other."""
    keys = {sample.qsl_idx: (sample.reference.dataset, _why(sample)) for sample in samples}
    counts = Counter(keys.values())
    for dataset, why in sorted(counts, key=lambda key: (key[0], -counts[key], key[1])):
        part = [sample for sample in samples if keys[sample.qsl_idx] == (dataset, why)]
        part.sort(key=lambda sample: (sample.reference.question or 0, sample.qsl_idx))
        yield _Group(section, legible(dataset), why, [texts.entry(sample) for sample in part])


def _why(sample: GradedSample) -> str:
    """The reasons of its grades, or its remarks."""
    if sample.remarks:
        return ", ".join(sample.remarks)
    reasons = {mode: grade.reason for mode, grade in sample.grades.items()}
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return ", ".join(f"{mode} {reason}" for mode, reason in reasons.items())


class _Texts:
    """Makes the entries; a program that was shown already is named by its sample."""

    def __init__(self, outputs: Outputs, tests: ProblemIndex | None) -> None:
        self._outputs, self._tests = outputs, tests
        self._programs: dict[str, int] = {}

    def entry(self, sample: GradedSample) -> _Entry:
        row = sample.reference
        is_short = len(row.truth) <= _SHORT and "\n" not in row.truth
        facts = [
            _name(row),
            f"truth {row.truth}" if is_short and row.kind != LIVECODEBENCH else "",
            _evidence(sample),
            sample.length,
        ]
        texts = [
            ("question", _start(_question(row), _SHOWN_QUESTION)),
            ("truth", "" if is_short else _start(row.truth)),
            *self._grades(sample),
            ("end of the output", self._tail(sample)),
        ]
        shown = [(name, legible(text)) for name, text in texts if text.strip()]
        return _Entry(sample.qsl_idx, printable(", ".join(filter(None, facts))), shown)

    def _grades(self, sample: GradedSample) -> Iterator[tuple[str, str]]:
        """What was found by the rules of each mode, equal grades once."""
        found: list[tuple[Grade, list[GradingMode]]] = []
        for mode, grade in sample.grades.items():
            same = next((modes for one, modes in found if _is_same(one, grade)), None)
            if same is None:
                found.append((grade, [mode]))
            else:
                same.append(mode)
        for grade, modes in found:
            names = " and ".join(modes)
            rules = f"{names} rules"
            yield rules, grade.reason + (f": {grade.detail}" if grade.detail else "")
            if grade.answer is not None and sample.reference.kind == LIVECODEBENCH:
                yield f"program by the {rules}", self._program(grade.answer, sample.qsl_idx)
            elif grade.answer is not None:
                yield f"answer by the {rules}", _start(grade.answer)
                yield "read from", _start(grade.read)
            if grade.failed and self._tests:
                yield from _failing_test(grade.failed, sample.reference.truth, self._tests)

    def _program(self, code: str, qsl_idx: int) -> str:
        first = self._programs.setdefault(code, qsl_idx)
        return code if first == qsl_idx else f"the same program as in sample {first}"

    def _tail(self, sample: GradedSample) -> str:
        assert sample.logged is not None  # samples with an output only
        text = self._outputs.text(sample.logged.offset, sample.logged.size, slice(-_TAIL_TOKENS, None))
        for grade in sample.grades.values():
            code = grade.answer if sample.reference.kind == LIVECODEBENCH else None
            if code and (end := text.rfind(code[-_OVERLAP:])) >= 0:
                return f"[the program] {text[end + len(code[-_OVERLAP:]) :]}"
            if grade.answer == text.strip():
                return ""  # it is shown already
        return text


def _question(row: Reference) -> str:
    """The prompt, of gpt-oss's template what the user asks."""
    _, mark, text = (row.prompt or "").rpartition(_USER)
    return (text.partition(_END)[0] if mark else text).strip()


def _evidence(sample: GradedSample) -> str:
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


def _name(row: Reference) -> str:
    """The question, as far as the references name it, and which repeat of it this is."""
    repeat = "" if row.repeat is None else f", repeat {row.repeat + 1}"
    if row.kind == LIVECODEBENCH:
        return f"problem {row.truth}{repeat}"
    return "" if row.question is None else f"question {row.question + 1}{repeat}"


def _is_same(one: Grade, other: Grade) -> bool:
    return (one.reason, one.answer, one.detail, one.read) == (
        other.reason,
        other.answer,
        other.detail,
        other.read,
    )


def _failing_test(failed: FailedTest, question_id: str, tests: ProblemIndex) -> Iterator[tuple[str, str]]:
    test, name = tests.test(question_id, failed.number), f"failing test {failed.number + 1}"
    yield f"{name}, input", _start(test.input)
    yield f"{name}, expected", _start(test.expected)
    yield f"{name}, printed or returned", _start(failed.output)


def _start(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]} ... ({len(text)} characters)"


def _markdown(page: _Page) -> str:
    """Text indented by four is shown as it is, HTML and Markdown in it included."""
    lines = [f"# {_TITLE}", "", f"    {page.headline}", "", _HOW, "", "## Contents", ""]
    for title, groups in _sections(page):
        lines += [f"{title}:", "", *(f"    {printable(_place(group))}" for group in groups), ""]
    lines += ["## Reasons", "", *(f"- `{word}`: {text}" for word, text in page.meanings.items()), ""]
    for title, groups in _sections(page):
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


def _sections(page: _Page) -> Iterator[tuple[str, list[_Group]]]:
    """The sections' headings with their groups, the empty ones too."""
    for title, count in page.counts.items():
        yield f"{title} ({counted(count, 'sample')})", [one for one in page.groups if one.section == title]


def _html(page: _Page) -> str:
    meanings = "".join(
        f"<dt><code>{html.escape(word)}</code></dt><dd>{html.escape(text)}</dd>"
        for word, text in page.meanings.items()
    )
    contents = "".join(
        f"<li>{title}<ul>{''.join(map(_html_link, groups))}</ul></li>" for title, groups in _sections(page)
    )
    sections = "".join(
        f"<h2>{title}</h2>{''.join(map(_html_group, groups))}" for title, groups in _sections(page)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<meta http-equiv='Content-Security-Policy' content=\"{_POLICY}\">"
        f"<title>{_TITLE}</title><style>{_STYLE}</style><h1>{_TITLE}</h1><p>{html.escape(page.headline)}</p>"
        f"<p>{_HOW}</p><h2>Contents</h2><ul>{contents}</ul>"
        f"<h2>Reasons</h2><dl>{meanings}</dl>{sections}</html>\n"
    )


def _html_link(group: _Group) -> str:
    return f"<li><a href='#{group.anchor}'>{html.escape(_place(group))}</a></li>"


def _html_group(group: _Group) -> str:
    entries = "".join(map(_html_entry, group.entries))
    return f"<h3 id='{group.anchor}'>{html.escape(_place(group))}</h3>\n{entries}"


def _html_entry(entry: _Entry) -> str:
    texts = "".join(
        f"<dt>{html.escape(name)}</dt><dd><{tag}>{html.escape(text)}</{tag}></dd>"
        for name, text in entry.texts
        for tag in ["pre" if "\n" in text or len(text) > _LINE else "code"]
    )
    title = f"<strong>sample {entry.qsl_idx}</strong> (qsl_idx): {html.escape(entry.facts)}"
    return f"<details><summary>{title}</summary><dl>{texts}</dl></details>\n"
