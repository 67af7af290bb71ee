"""The report on samples to look at: those that the modes grade differently, and the wrong ones.

Markdown, or HTML by the file's name.
"""

import html
from collections.abc import Sequence
from pathlib import Path

from harness.errors import GradingError
from harness.grading.evaluate import GradedSample
from harness.grading.grade import FailedTest, Mode
from harness.grading.livecodebench.index import ProblemIndex
from harness.grading.outputs import Outputs
from harness.text import legible, printable

_HTML_SUFFIXES = (".html", ".htm")
_TAIL_TOKENS = 300  # of the output that are shown: the answer stands at its end
_SHOWN_OF_TEST = 600  # characters of its input, of what is expected and of what came
_HEADER = ("qsl_idx", "dataset", "truth", "official", "strict", "failing test", "end of the output")
_TITLE = "Samples to look at"
_DISAGREE, _WRONG = (
    "Where the official and the strict rules disagree",
    "Wrong by all requested rules",
)
_REMARKED = "With remarks"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # a page of model output runs nothing
_STYLE = "td,th{border:1px solid #999;padding:4px;vertical-align:top}pre{white-space:pre-wrap}"


Row = tuple[str, ...]
Section = tuple[str, Sequence[Row]]


def write_report(
    path: Path,
    graded: Sequence[GradedSample],
    outputs: Outputs,
    headline: str,
    tests: ProblemIndex | None = None,
) -> None:
    """Write the report; ``tests`` has those that programs failed. GradingError if it cannot be written."""
    wrong = [
        sample
        for sample in graded
        if sample.logged and all(grade.correct is False for grade in sample.grades.values())
    ]
    wrong.sort(key=lambda sample: (sample.reference.dataset, *_reasons(sample), sample.qsl_idx))
    disagreeing = [sample for sample in graded if sample.disagrees]
    listed = [(_DISAGREE, disagreeing), (_WRONG, wrong)]
    if remarked := sorted((sample for sample in graded if sample.remarks), key=lambda one: one.remarks or ()):
        listed.append((_REMARKED, remarked))
    sections = [
        (title, [tuple(map(legible, _cells(sample, outputs, tests))) for sample in samples])
        for title, samples in listed
    ]
    page = _html if path.suffix.lower() in _HTML_SUFFIXES else _markdown
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(headline, sections), "utf-8", errors="replace")
    except OSError as error:
        raise GradingError(f"{path}: cannot be written ({error}); choose another --disagreements") from error


def _reasons(sample: GradedSample) -> list[str]:
    return [grade.reason for grade in sample.grades.values()]


def _cells(sample: GradedSample, outputs: Outputs, tests: ProblemIndex | None) -> Row:
    assert sample.logged is not None  # a missing sample has nothing to show
    remarks = f" ({', '.join(sample.remarks)})" if sample.remarks else ""
    shown_grades = {mode: f"{grade.reason}{remarks}: {grade.answer or ''} {grade.detail}".strip()
            for mode, grade in sample.grades.items()}  # fmt: skip
    tail = outputs.text(sample.logged.offset, sample.logged.size, slice(-_TAIL_TOKENS, None))
    facts = (str(sample.qsl_idx), sample.reference.dataset, sample.reference.truth)
    failed = next((grade.failed for grade in sample.grades.values() if grade.failed), None)
    shown = _failing_test(failed, sample.reference.truth, tests) if failed and tests else ""
    return (*facts, *(shown_grades.get(mode, "") for mode in Mode), shown, tail)


def _failing_test(failed: FailedTest, question_id: str, tests: ProblemIndex) -> str:
    test = tests.test(question_id, failed.number)
    parts = {"input": test.input, "expected": test.expected, "printed or returned": failed.output}
    lines = [f"{name}:\n{_start(text)}" for name, text in parts.items()]
    return "\n".join([f"test {failed.number + 1}", *lines])


def _start(text: str) -> str:
    return text if len(text) <= _SHOWN_OF_TEST else f"{text[:_SHOWN_OF_TEST]} ... ({len(text)} characters)"


def _markdown(headline: str, sections: Sequence[Section]) -> str:
    lines = [f"# {_TITLE}", "", headline, ""]
    for title, rows in sections:
        lines += [f"## {title}", "", f"{len(rows)} samples.", ""]
        for row in rows:  # text indented by four is shown as it is, HTML and Markdown in it included
            lines += [f"### {row[0]}", "", f"    {printable(row[1])}, truth {printable(row[2])}", ""]
            for name, text in zip(_HEADER[3:], row[3:], strict=True):
                if text:
                    lines += [f"{name}:", "", *(f"    {line}" for line in text.splitlines()), ""]
    return "\n".join(lines)


def _html(headline: str, sections: Sequence[Section]) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<meta http-equiv='Content-Security-Policy' content=\"{_POLICY}\">"
        f"<title>{_TITLE}</title><style>{_STYLE}</style><h1>{_TITLE}</h1><p>{html.escape(headline)}</p>"
        f"{''.join(_html_section(title, rows) for title, rows in sections)}</html>\n"
    )


def _html_section(title: str, rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _HEADER)
    body = "".join(
        f"<tr>{''.join(f'<td><pre>{html.escape(cell)}</pre></td>' for cell in row)}</tr>\n" for row in rows
    )
    return f"<h3>{title}</h3><p>{len(rows)} samples.</p><table><tr>{head}</tr>\n{body}</table>"
