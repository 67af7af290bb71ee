"""The report on every sample that the two modes judge differently: Markdown, or HTML by the file's name."""

import html
from collections.abc import Sequence
from pathlib import Path

from harness.accuracy_log import AccuracyLog
from harness.errors import GradingError
from harness.grading.graded import Graded
from harness.grading.reading import Reader
from harness.grading.verdict import Mode
from harness.report.printable import legible, printable

_HTML_SUFFIXES = (".html", ".htm")
_TAIL_TOKENS = 300  # of the output that are shown: the answer stands at its end
_HEADER = ("qsl_idx", "dataset", "truth", "official", "strict", "end of the output")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # a page of model output runs nothing
_STYLE = "td,th{border:1px solid #999;padding:4px;vertical-align:top}pre{white-space:pre-wrap}"


def write_report(
    path: Path, graded: Sequence[Graded], log: AccuracyLog, reader: Reader, headline: str
) -> None:
    """Write the report. GradingError if the file cannot be written."""
    rows = [tuple(map(legible, _cells(sample, log, reader))) for sample in graded if sample.disagrees]
    page = _html if path.suffix.lower() in _HTML_SUFFIXES else _markdown
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(headline, rows), "utf-8", errors="replace")
    except OSError as error:
        raise GradingError(f"{path}: cannot be written ({error}); choose another --report") from error


def _cells(sample: Graded, log: AccuracyLog, reader: Reader) -> tuple[str, ...]:
    assert sample.logged is not None  # a missing sample is wrong in both modes
    said = {mode: f"{verdict.reason}: {verdict.answer or ''} {verdict.detail}".strip()
            for mode, verdict in sample.verdicts.items()}  # fmt: skip
    tail = reader.decode(log.read_at(sample.logged.offset, sample.logged.size)[-_TAIL_TOKENS:])
    facts = (str(sample.qsl_idx), sample.reference.dataset, sample.reference.truth)
    return (*facts, said[Mode.OFFICIAL], said[Mode.STRICT], tail)


def _markdown(headline: str, rows: Sequence[tuple[str, ...]]) -> str:
    lines = [
        "# Where the official and the strict rules disagree",
        "",
        headline,
        "",
        f"{len(rows)} samples.",
        "",
    ]
    for row in rows:  # text indented by four is shown as it is, HTML and Markdown in it included
        lines += [f"## {row[0]}", "", f"    {printable(row[1])}, truth {printable(row[2])}", ""]
        for name, text in zip(_HEADER[3:], row[3:], strict=True):
            lines += [f"{name}:", "", *(f"    {line}" for line in text.splitlines()), ""]
    return "\n".join(lines)


def _html(headline: str, rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _HEADER)
    body = "".join(
        f"<tr>{''.join(f'<td><pre>{html.escape(cell)}</pre></td>' for cell in row)}</tr>\n" for row in rows
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<meta http-equiv='Content-Security-Policy' content=\"{_POLICY}\">"
        "<title>Official and strict verdicts</title>"
        f"<style>{_STYLE}</style><h1>Where the official and the strict rules disagree</h1>"
        f"<p>{html.escape(headline)}</p><p>{len(rows)} samples.</p>"
        f"<table><tr>{head}</tr>\n{body}</table></html>\n"
    )
