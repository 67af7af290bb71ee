"""What is asked of an accuracy run, of accuracy.txt and of a truncated accuracy log."""

import math
from collections.abc import Iterator
from pathlib import Path

from harness.submission.accuracy_text import AccuracyText, parse_accuracy
from harness.submission.checks.check_context import Logs, Subject, read_logs
from harness.submission.checks.issue import Complaint
from harness.submission.checks.loadgen_logs import check_logs, check_sample_counts, usable
from harness.submission.layout import ACCURACY, ACCURACY_LOG, ACCURACY_TEXT
from harness.submission.staging import digest, ends_match

_SHA256_DIGITS = 64


def check_accuracy(subject: Subject, kept: Path | None) -> Iterator[Complaint]:
    """All complaints about ``accuracy/``; ``kept`` is the scenario's folder of full logs, if there is one."""
    logs = read_logs(subject, ACCURACY)
    yield from check_logs(subject, logs, "AccuracyOnly")
    if usable(logs):
        yield from _samples(subject, logs)
    yield from _text(subject)
    yield from check_accuracy_log(subject, ACCURACY, kept)


def check_accuracy_log(subject: Subject, folder: Path, kept: Path | None) -> Iterator[Complaint]:
    """The truncated log of an accuracy run or a compliance test, and the hash of the full one."""
    log, text = subject.place.path / folder / ACCURACY_LOG, subject.place.path / folder / ACCURACY_TEXT
    most = subject.rules.files.accuracy_log_bytes
    if not log.is_file():
        yield subject.complaint("missing-file", log, "is missing")
    elif (size := log.stat().st_size) > most:
        yield subject.complaint("not-truncated", log, f"has {size} bytes, expected {most} or less")
    if not text.is_file():
        yield subject.complaint("missing-file", text, "is missing")
        return
    hashes = _read(subject, text).hashes
    if len(hashes) != 1 or len(hashes[0]) != _SHA256_DIGITS:
        yield subject.complaint(
            "hash", text, f"{len(hashes)} hash lines, expected one of {_SHA256_DIGITS} digits"
        )
    elif kept is not None and (kept / folder / ACCURACY_LOG).is_file() and log.is_file():
        yield from _against_full(subject, log, kept / folder / ACCURACY_LOG, hashes[0])


def _against_full(subject: Subject, log: Path, full: Path, expected: str) -> Iterator[Complaint]:
    found = digest(full)
    if found != expected:
        text = f"accuracy.txt says hash={expected[:12]}…, the full log's is {found[:12]}…"
        yield subject.complaint("hash", log, text)
    if not ends_match(log, full, subject.rules.files.shown_bytes):
        yield subject.complaint("not-truncated", log, "is not made of the ends of the full log")


def _samples(subject: Subject, logs: Logs) -> Iterator[Complaint]:
    """Older LoadGens do not log their count of accuracy samples."""
    expected = subject.benchmark.dataset(accuracy=True).samples
    settings = [name for name in ("effective_accuracy_sample_count",) if name in logs.values]
    yield from check_sample_counts(subject, logs, expected, *settings)


def _read(subject: Subject, path: Path) -> AccuracyText:
    rule = subject.benchmark.accuracy
    metrics = (*rule.reference, *rule.bounds) if rule else ()
    return parse_accuracy(path.read_text(encoding="utf-8", errors="replace"), metrics)


def _text(subject: Subject) -> Iterator[Complaint]:
    path, rule = subject.place.path / ACCURACY / ACCURACY_TEXT, subject.benchmark.accuracy
    if not path.is_file() or rule is None:
        return
    found, expected = _read(subject, path), subject.benchmark.dataset(accuracy=True).samples
    if subject.closed:
        for metric, target in rule.targets.items():
            yield from _bounded(subject, path, metric, found, (target, math.inf))
        for metric, bounds in rule.bounds.items():
            yield from _bounded(subject, path, metric, found, bounds)
    if found.samples is not None and found.samples != expected:
        text = f"{found.samples} samples were evaluated, expected {expected}"
        yield subject.complaint("sample-count", path, text)


def _bounded(
    subject: Subject, path: Path, metric: str, found: AccuracyText, bounds: tuple[float, float]
) -> Iterator[Complaint]:
    """Every score that is printed counts. Without a lower bound none need be printed."""
    low, high = bounds
    scores = found.scores.get(metric, ())
    if not scores and low:
        text = f"no {metric!r} in it, expected a line with '{metric}': NUMBER, one blank before the number"
        yield subject.complaint("accuracy", path, text)
    for score in scores:
        if score is None or not low <= score <= high:
            limit = f"{low:.4f} or more" if high == math.inf else f"{low:.4f} to {high:.4f}"
            yield subject.complaint("accuracy", path, f"{metric} is {score}, expected {limit}")
