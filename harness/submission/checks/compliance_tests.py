"""What is asked of TEST07, TEST09 and TEST06: there, passed, and run with their audit settings."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from harness.compliance.rules import TestName, rule_of
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES
from harness.submission.accuracy_text import VerifyText, parse_verify
from harness.submission.checks.accuracy import check_accuracy_log
from harness.submission.checks.check_context import Logs, Subject, read_logs
from harness.submission.checks.issue import Complaint
from harness.submission.checks.loadgen_logs import check_logs, check_sample_counts, usable
from harness.submission.checks.performance import token_bounds
from harness.submission.layout import ACCURACY, ACCURACY_LOG, DETAIL, PERFORMANCE, VERIFY_FILE
from harness.submission.staging import is_whole

# A compliance test is no measurement: that LoadGen calls it INVALID for its latencies or early stopping is no
# failure. Its other constraints must be met.
_BINDING = ("Min duration", "Min queries")
# In all 56 published TEST09 of v6.0 the two means differ by 1.6e-4 at most in Server, whose rate of samples
# leaves out one of 6396, and by 8e-6 Offline. A tenth of a percent is six times that.
_MEAN_CROSS_CHECK = 1e-3


def tests_of(subject: Subject) -> tuple[str, ...]:
    """Compliance tests that the benchmark needs, those that a tree has a verify file for."""
    return tuple(name for name in subject.benchmark.compliance if name in VERIFY_FILE)


def check_tests(subject: Subject, kept: Path | None) -> Iterator[Complaint]:
    """All complaints about the tests' folders; nobody looks at them in the open division."""
    for test in tests_of(subject) if subject.closed else ():
        folder = subject.place.path / test
        if not folder.is_dir():
            yield subject.complaint("test-missing", folder, "is missing")
            continue
        yield from _verdict(subject, test)
        if test == "TEST06":
            yield from _run06(subject)
        else:
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
    lines = {line.strip() for line in text.splitlines()}
    for name, good in (
        ("First token check pass", ("True", "Skipped")),
        ("EOS check pass", ("True",)),
        ("Sample length check pass", ("True",)),
    ):
        if not lines.intersection(f"{name}: {word}" for word in good):
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


def _run06(subject: Subject) -> Iterator[Complaint]:
    """The official scripts leave the accuracy log complete; LoadGen's other logs may be missing.

    A log without answers passes the official script, which then has nothing to look at.
    """
    log = subject.place.path / "TEST06" / ACCURACY / ACCURACY_LOG
    if not log.is_file():
        yield subject.complaint("missing-file", log, "is missing")
    elif log.stat().st_size <= EMPTY_LOG_BYTES:
        yield subject.complaint("test06-log", log, "has no answers")
    elif not is_whole(log):
        yield subject.complaint("test06-log", log, "is cut short or truncated")
    folder = Path("TEST06") / PERFORMANCE
    if (subject.place.path / folder / DETAIL).is_file():
        logs = read_logs(subject, folder)
        yield from check_logs(subject, logs, "PerformanceOnly")
        if usable(logs):
            yield from _audit_settings(subject, "TEST06", logs)


def _run(subject: Subject, test: str) -> Iterator[Complaint]:
    logs = read_logs(subject, Path(test) / PERFORMANCE)
    yield from check_logs(subject, logs, "PerformanceOnly", samples=_samples(subject, test))
    if not usable(logs):
        return
    for name in _BINDING:
        if logs.summary.constraints.get(name) is False:
            yield subject.complaint("invalid", logs.folder / DETAIL, f"{name} not satisfied")
    yield from _audit_settings(subject, test, logs)
    yield from check_sample_counts(subject, logs, _samples(subject, test))
    if test == "TEST09":
        yield from _mean_of_summary(subject, logs)


def _mean_of_summary(subject: Subject, logs: Logs) -> Iterator[Complaint]:
    """The mean of TEST09 is that of the answers whose rates LoadGen logged."""
    path = subject.place.path / "TEST09" / VERIFY_FILE["TEST09"]
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    mean, logged = parse_verify(text).mean_tokens, logs.mean_tokens
    if mean and logged is not None and abs(logged / mean - 1) > _MEAN_CROSS_CHECK:
        what = f"mean output tokens are {mean}, LoadGen's tokens/s ÷ samples/s is {logged:.2f}"
        yield subject.complaint("cross-check", path, what)


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
