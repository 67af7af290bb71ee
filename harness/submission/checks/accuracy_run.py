"""Checks of an accuracy run, of accuracy.txt and of a truncated accuracy log."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

from harness.config.benchmark import MOST_PERCENT, MetricRule
from harness.config.loadgen_settings import ACCURACY_MODE
from harness.files import ACCURACY, ACCURACY_LOG, ACCURACY_TEXT, sha256_of
from harness.grading.reports.scorecard import warnings_in
from harness.grading.scoring.grade import EXACT_MATCH
from harness.submission.checks.context import CheckContext, Logs, read_logs
from harness.submission.checks.issue import Issue
from harness.submission.checks.loadgen_logs import check_logs, check_sample_counts, usable
from harness.submission.tree.accuracy_files import AccuracyText, ends_match, read_accuracy_text
from harness.submission.tree.cost import Cost
from harness.text import counted

_SHA256_DIGITS = 64
_SCORE_AGAIN = "score the full log again, that writes the line"
_FINAL_SCORE = re.compile(r"^FINAL SCORE: (\d+\.\d+)% \((\d+\.\d+)/(\d+\.\d+)\)", re.MULTILINE)
_HALF = 0.005  # half of the last digit of a number with two decimals
_ROUNDED = 0.006  # one score with three decimals and with two differs by less


def check_accuracy(context: CheckContext) -> Iterator[Issue]:
    """All issues of ``accuracy/``."""
    logs = read_logs(context, ACCURACY)
    yield from check_logs(context, logs, ACCURACY_MODE)
    if usable(logs):
        yield from _samples(context, logs)
    yield from _text(context)
    yield from check_accuracy_log(context, ACCURACY)


def check_accuracy_log(context: CheckContext, folder: Path) -> Iterator[Issue]:
    """The truncated log of an accuracy run or a compliance test, and the hash of the full one."""
    log, text = context.dir.path / folder / ACCURACY_LOG, context.dir.path / folder / ACCURACY_TEXT
    most = context.rules.files.accuracy_log_bytes
    if not log.is_file():
        yield context.missing(log)
    elif (size := log.stat().st_size) > most:
        yield context.issue("not-truncated", log, f"has {size} bytes, expected {most} or less")
    if not text.is_file():
        yield context.missing(text)
        return
    found = read_accuracy_text(text)
    # Those of a rehearsal are about its sample data.
    for warning in () if context.dir.is_rehearsal else warnings_in(found.text):
        yield context.issue("accuracy", text, warning, is_warning=True)
    hashes = found.hashes
    if not hashes and not context.closed:
        return
    if len(hashes) != 1 or len(hashes[0]) != _SHA256_DIGITS:
        what = f"has a hash of {len(hashes[0])} digits" if len(hashes) == 1 else f"has {len(hashes)} hashes"
        yield context.issue("hash", text, f"{what}, expected one of {_SHA256_DIGITS} digits")
    elif context.kept is not None:
        yield from _against_full(context, log, context.kept / folder / ACCURACY_LOG, hashes[0])


def _against_full(context: CheckContext, log: Path, full: Path, expected: str) -> Iterator[Issue]:
    if not log.is_file() or not full.is_file():
        return
    if (found := sha256_of(full)) != expected:
        text = f"accuracy.txt has hash={expected[:12]}…, the sha256 of the full log is {found[:12]}…"
        yield context.issue("hash", log, text)
    if not ends_match(log, full, context.rules.files.shown_bytes):
        yield context.issue("not-truncated", log, "is not the truncated form of the full log")


def _samples(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    """Older LoadGen versions do not log the count of accuracy samples."""
    expected = context.benchmark.dataset(accuracy=True).samples
    settings = [name for name in ("effective_accuracy_sample_count",) if name in logs.detail.values]
    yield from check_sample_counts(context, logs, expected, *settings)


def _text(context: CheckContext) -> Iterator[Issue]:
    path, metrics = context.dir.path / ACCURACY / ACCURACY_TEXT, context.benchmark.accuracy
    if not path.is_file() or not metrics:
        return
    found, expected = read_accuracy_text(path, metrics), context.benchmark.dataset(accuracy=True).samples
    if context.closed:
        for metric, rule in metrics.items():
            yield from _bounded(context, path, metric, found, rule)
        for what in _contradictions(found):
            yield context.issue("cross-check", path, what)
    if found.samples is not None and found.samples != expected:
        text = f"{counted(found.samples, 'sample', 'was')} evaluated, expected {expected}"
        yield context.issue("sample-count", path, text)


def _contradictions(found: AccuracyText) -> Iterator[str]:
    """Scores of one metric that differ; the evaluator of gpt-oss-120b prints its score three times."""
    for metric, scores in found.scores.items():
        numbers = dict.fromkeys(score for score in scores if score is not None)
        if len(numbers) > 1:
            yield f"{metric} is {' and '.join(map(str, numbers))}, expected one score"
    score = found.score(EXACT_MATCH)
    if score is None:
        return
    for percent, points, most in _FINAL_SCORE.findall(found.text):
        least, largest = (
            100 * (float(points) + half) / max(float(most) - half, 0.01) for half in (-_HALF, _HALF)
        )
        if abs(float(percent) - score) > _ROUNDED or not least - _HALF <= score <= largest + _HALF:
            yield f"{EXACT_MATCH} is {score}, the report above it has {percent} % ({points}/{most})"


def _bounded(
    context: CheckContext, path: Path, metric: str, found: AccuracyText, rule: MetricRule
) -> Iterator[Issue]:
    """Every printed score must be within the bounds; without a lower bound the metric may be missing."""
    low, high = rule.bounds
    scores = found.scores.get(metric, ())
    if None in scores or (not scores and low):
        wrong = "is no number" if scores else "is missing"
        text = f"{metric!r} {wrong}, expected a line with '{metric}': NUMBER, one blank before the number"
        yield Issue("accuracy", context.dir.relative(path), text, remedy=_SCORE_AGAIN, cost=Cost.MINUTES)
    for score in scores:
        if score is None or (low <= score <= high and rule.is_possible(score)):
            continue
        most = MOST_PERCENT if not rule.is_possible(score) else high
        limit = f"{low:.4f} or more" if most == math.inf else f"{low:.4f} to {most:.4f}"
        yield context.issue("accuracy", path, f"{metric} is {score}, expected {limit}")
