"""accuracy.txt and the truncated accuracy log: how they are read and written."""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from harness.arrays import MOST_DIGITS

GAP = b"\n\n...\n\n"  # stands between the two ends of a truncated log

_HASH = re.compile(r"^hash=(\w+)$", re.MULTILINE)
# The evaluators of gpt-oss-120b, deepseek-r1 and llama3.1-8b print it so.
_TOTAL = re.compile(
    r"^Total samples(?: evaluated)?: (\d+)[ \t\r]*$|'(?:num-samples|gen_num)': (\d+)(?=[,}])", re.MULTILINE
)


class AccuracyText(msgspec.Struct, frozen=True):
    """Figures of accuracy.txt."""

    scores: dict[str, tuple[float | None, ...]]
    """all printed scores of each metric; None for a malformed one"""
    samples: int | None
    """the smallest number of samples that it names"""
    hashes: tuple[str, ...]
    """the sha256 of the full log, once if the file is right"""
    text: str
    """all of it"""

    def score(self, metric: str) -> float | None:
        """The last score of a metric."""
        return self.scores[metric][-1] if metric in self.scores else None


def read_accuracy_text(path: Path, metrics: Iterable[str] = ()) -> AccuracyText:
    """As ``parse_accuracy``; bytes that are not UTF-8 are another check's. Raises OSError."""
    return parse_accuracy(path.read_text(encoding="utf-8", errors="replace"), metrics)


def parse_accuracy(text: str, metrics: Iterable[str]) -> AccuracyText:
    """Read accuracy.txt with the official checker's patterns: line by line, one blank before the number.

    Only ROUGE scores may have several blanks and a quote before the number.
    """
    scores: dict[str, tuple[float | None, ...]] = {}
    for metric in metrics:
        before = r"\s+'?" if metric.startswith("rouge") else r"\s"
        pattern = re.compile(rf".*'{re.escape(metric)}':{before}([\d.]+(?:,\d+)?)")
        found = tuple(_float(match[1]) for line in text.split("\n") if (match := pattern.match(line)))
        if found:
            scores[metric] = found
    totals = [int((line or figure)[:MOST_DIGITS]) for line, figure in _TOTAL.findall(text)]
    return AccuracyText(scores, min(totals, default=None), tuple(_HASH.findall(text)), text)


def _float(digits: str) -> float | None:
    return float(digits) if re.fullmatch(r"\d+\.?\d*|\.\d+", digits) else None


def without_hash(text: str) -> str:
    """The text without its hash lines."""
    return _HASH.sub("", text).rstrip() + "\n"


def truncated(path: Path, shown_bytes: int) -> bytes:
    """The two ends of a log, as it is submitted; a log shorter than ``shown_bytes`` stays complete."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size < shown_bytes:
            return file.read()
        head = file.read(shown_bytes)
        file.seek(size - shown_bytes)
        return head + GAP + file.read(shown_bytes)


def ends_match(submitted: Path, full: Path, shown_bytes: int) -> bool:
    """Whether ``submitted`` is the truncated form of ``full``."""
    return submitted.read_bytes() == truncated(full, shown_bytes)
