"""What is asked of TEST07, TEST09 and TEST06: there, passed, and run with their audit settings."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from harness.compliance.rules import TestName, rule_of
from harness.compliance.submission.accuracy_text import VerifyText, parse_verify
from harness.compliance.submission.check_accuracy import check_accuracy_log
from harness.compliance.submission.check_common import check_logs, check_sample_counts, usable
from harness.compliance.submission.check_performance import token_bounds
from harness.compliance.submission.complaint import Complaint
from harness.compliance.submission.evidence import Logs, Subject, read_logs
from harness.compliance.submission.tree import ACCURACY, DETAIL, PERFORMANCE, VERIFY_FILE

# A compliance test is no measurement: that LoadGen calls it INVALID for its latencies or early stopping is no
# failure. Its other constraints must be met.
_BINDING = ("Min duration", "Min queries")


def tests_of(subject: Subject) -> tuple[str, ...]:
    """Compliance tests that the benchmark needs, those that a tree has a verify file for."""
    return tuple(name for name in subject.benchmark.compliance if name in VERIFY_FILE)


def check_tests(subject: Subject, kept: Path | None) -> Iterator[Complaint]:
    """All complaints about the tests' folders; the open division needs none."""
    for test in tests_of(subject):
        folder = subject.place.path / test
        if not folder.is_dir():
            if subject.closed:
                yield subject.complaint("test-missing", folder, "is missing")
            continue
        yield from _verdict(subject, test)
        yield from _run(subject, test)
        yield from check_accuracy_log(subject, Path(test) / ACCURACY, kept)


def _verdict(subject: Subject, test: str) -> Iterator[Complaint]:
    path = subject.place.path / test / VERIFY_FILE[test]
    if not path.is_file():
        yield subject.complaint("test-missing", path, "is missing")
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if test == "TEST06":
        yield from _consistency(subject, path, text)
        return
    found = parse_verify(text)
    if found.passed is not True:
        shown = "TEST FAIL" if found.passed is False else "neither TEST PASS nor TEST FAIL, or both"
        yield subject.complaint("test-failed", path, f"says {shown}, expected TEST PASS")
    for what in _test07(subject, found) if test == "TEST07" else _test09(subject, found):
        yield subject.complaint("test-failed", path, what)


def _consistency(subject: Subject, path: Path, text: str) -> Iterator[Complaint]:
    for name, good in (
        ("First token check pass", ("True", "Skipped")),
        ("EOS check pass", ("True",)),
        ("Sample length check pass", ("True",)),
    ):
        if not any(f"{name}: {word}" in text for word in good):
            yield subject.complaint("test-failed", path, f"{name} is not {' or '.join(good)}")


def _test07(subject: Subject, found: VerifyText) -> Iterator[str]:
    threshold = subject.benchmark.compliance["TEST07"]["threshold"]
    if found.score is None or found.score < threshold:
        yield f"accuracy score is {found.score}, expected {threshold} or more"
    if found.threshold is not None and found.threshold != threshold:
        yield f"was verified against {found.threshold}, expected {threshold}"
    yield from _all_samples(subject, "TEST07", found)


def _test09(subject: Subject, found: VerifyText) -> Iterator[str]:
    low, high = token_bounds(subject.benchmark) or (0.0, float("inf"))
    if found.mean_tokens is None or not low <= found.mean_tokens <= high:
        yield f"mean output tokens are {found.mean_tokens}, expected {low:.2f} to {high:.2f}"
    yield from _all_samples(subject, "TEST09", found)


def _all_samples(subject: Subject, test: str, found: VerifyText) -> Iterator[str]:
    expected = _samples(subject, test)
    if found.samples is not None and found.samples != expected:
        yield f"{found.samples} samples were verified, expected {expected}"


def _samples(subject: Subject, test: str) -> int:
    benchmark = subject.benchmark
    return benchmark.datasets[str(benchmark.compliance[test].get("dataset", "performance"))].samples


def _run(subject: Subject, test: str) -> Iterator[Complaint]:
    logs = read_logs(subject, Path(test) / PERFORMANCE)
    yield from check_logs(subject, logs, "PerformanceOnly")
    if not usable(logs):
        return
    for name in _BINDING:
        if logs.summary.constraints.get(name) is False:
            yield subject.complaint("invalid", logs.folder / DETAIL, f"{name} not satisfied")
    yield from _audit_settings(subject, test, logs)
    yield from _coverage(subject, test, logs)


def _audit_settings(subject: Subject, test: str, logs: Logs) -> Iterator[Complaint]:
    effective, audit = logs.detail.effective, rule_of(subject.benchmark, cast(TestName, test)).settings
    samples = min(_samples(subject, test), audit["accuracy_log_sampling_target"])
    target = logs.number("effective_accuracy_log_sampling_target")
    wrong = []
    if effective.get("accuracy_log_rng_seed") != audit["accuracy_log_rng_seed"]:
        wrong.append(f"accuracy_log_rng_seed is {effective.get('accuracy_log_rng_seed')}")
    if target is None or target < samples:
        wrong.append(f"accuracy_log_sampling_target is {target}, expected {samples} or more")
    if test != "TEST06" and effective.get("sample_concatenate_permutation") is not False:
        wrong.append("sample_concatenate_permutation is on")
    if wrong:
        yield subject.complaint("audit-not-in-force", logs.folder / DETAIL, ", ".join(wrong))


def _coverage(subject: Subject, test: str, logs: Logs) -> Iterator[Complaint]:
    if test == "TEST06":
        return
    yield from check_sample_counts(subject, logs, _samples(subject, test))
