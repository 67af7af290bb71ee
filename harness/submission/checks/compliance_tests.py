"""What is asked of TEST07, TEST09 and TEST06: there, passed, and run with their audit settings."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from harness.compliance.rules import TestName, rule_of
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES
from harness.submission.accuracy_files import VerifyText, is_complete, parse_verify
from harness.submission.checks.accuracy import check_accuracy_log
from harness.submission.checks.check_context import CheckContext, Logs, read_logs
from harness.submission.checks.issue import Issue
from harness.submission.checks.loadgen_logs import check_logs, check_sample_counts, usable
from harness.submission.checks.performance import token_bounds
from harness.submission.layout import ACCURACY, ACCURACY_LOG, DETAIL, PERFORMANCE, VERIFY_FILE

# A compliance test is no measurement: that LoadGen calls it INVALID for its latencies or early stopping is no
# failure. Its other constraints must be met.
_BINDING = ("Min duration", "Min queries")
# In all 56 published TEST09 of v6.0 the two means differ by 1.6e-4 at most in Server, whose rate of samples
# leaves out one of 6396, and by 8e-6 Offline. A tenth of a percent is six times that.
_MEAN_CROSS_CHECK = 1e-3


def tests_of(context: CheckContext) -> tuple[str, ...]:
    """Compliance tests that the benchmark needs, those that a tree has a verify file for."""
    return tuple(name for name in context.benchmark.compliance if name in VERIFY_FILE)


def check_tests(context: CheckContext, kept: Path | None) -> Iterator[Issue]:
    """All issues about the tests' folders; nobody looks at them in the open division."""
    for test in tests_of(context) if context.closed else ():
        folder = context.dir.path / test
        if not folder.is_dir():
            yield context.issue("test-missing", folder, "is missing")
            continue
        yield from _verdict(context, test)
        if test == "TEST06":
            yield from _run06(context)
        else:
            yield from _run(context, test)
            yield from check_accuracy_log(context, Path(test) / ACCURACY, kept)


def _verdict(context: CheckContext, test: str) -> Iterator[Issue]:
    path = context.dir.path / test / VERIFY_FILE[test]
    if not path.is_file():
        yield context.issue("test-missing", path, "is missing")
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if test == "TEST06":
        yield from _consistency(context, path, text)
        return
    found = parse_verify(text)
    if found.passed is not True:
        shown = "TEST FAIL" if found.passed is False else "neither TEST PASS nor TEST FAIL, or both"
        yield context.issue("test-failed", path, f"says {shown}, expected TEST PASS")
    for what in _test07(context, found) if test == "TEST07" else _test09(context, found):
        yield context.issue("test-failed", path, what)


def _consistency(context: CheckContext, path: Path, text: str) -> Iterator[Issue]:
    lines = {line.strip() for line in text.splitlines()}
    for name, good in (
        ("First token check pass", ("True", "Skipped")),
        ("EOS check pass", ("True",)),
        ("Sample length check pass", ("True",)),
    ):
        if not lines.intersection(f"{name}: {word}" for word in good):
            yield context.issue("test-failed", path, f"{name} is not {' or '.join(good)}")


def _test07(context: CheckContext, found: VerifyText) -> Iterator[str]:
    threshold = context.benchmark.compliance["TEST07"]["threshold"]
    if found.score is None or found.score < threshold:
        yield f"accuracy score is {found.score}, expected {threshold} or more"
    if found.threshold is not None and found.threshold != threshold:
        yield f"was verified against {found.threshold}, expected {threshold}"
    yield from _all_samples(context, "TEST07", found)


def _test09(context: CheckContext, found: VerifyText) -> Iterator[str]:
    low, high = token_bounds(context.benchmark) or (0.0, float("inf"))
    if found.mean_tokens is None or not low <= found.mean_tokens <= high:
        yield f"mean output tokens are {found.mean_tokens}, expected {low:.2f} to {high:.2f}"
    yield from _all_samples(context, "TEST09", found)


def _all_samples(context: CheckContext, test: str, found: VerifyText) -> Iterator[str]:
    expected = _samples(context, test)
    if found.samples is not None and found.samples != expected:
        yield f"{found.samples} samples were verified, expected {expected}"


def _samples(context: CheckContext, test: str) -> int:
    benchmark = context.benchmark
    return benchmark.datasets[str(benchmark.compliance[test].get("dataset", "performance"))].samples


def _run06(context: CheckContext) -> Iterator[Issue]:
    """The official scripts leave the accuracy log complete; LoadGen's other logs may be missing.

    A log without answers passes the official script, which then has nothing to look at.
    """
    log = context.dir.path / "TEST06" / ACCURACY / ACCURACY_LOG
    if not log.is_file():
        yield context.issue("missing-file", log, "is missing")
    elif log.stat().st_size <= EMPTY_LOG_BYTES:
        yield context.issue("test06-log", log, "has no answers")
    elif not is_complete(log):
        yield context.issue("test06-log", log, "is cut short or truncated")
    folder = Path("TEST06") / PERFORMANCE
    if (context.dir.path / folder / DETAIL).is_file():
        logs = read_logs(context, folder)
        yield from check_logs(context, logs, "PerformanceOnly")
        if usable(logs):
            yield from _audit_settings(context, "TEST06", logs)


def _run(context: CheckContext, test: str) -> Iterator[Issue]:
    logs = read_logs(context, Path(test) / PERFORMANCE)
    yield from check_logs(context, logs, "PerformanceOnly", samples=_samples(context, test))
    if not usable(logs):
        return
    for name in _BINDING:
        if logs.summary.constraints.get(name) is False:
            yield context.issue("invalid", logs.folder / DETAIL, f"{name} not satisfied")
    yield from _audit_settings(context, test, logs)
    yield from check_sample_counts(context, logs, _samples(context, test))
    if test == "TEST09":
        yield from _mean_of_summary(context, logs)


def _mean_of_summary(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    """The mean of TEST09 is that of the answers whose rates LoadGen logged."""
    path = context.dir.path / "TEST09" / VERIFY_FILE["TEST09"]
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    mean, logged = parse_verify(text).mean_tokens, logs.mean_tokens
    if mean and logged is not None and abs(logged / mean - 1) > _MEAN_CROSS_CHECK:
        what = f"mean output tokens are {mean}, LoadGen's tokens/s ÷ samples/s is {logged:.2f}"
        yield context.issue("cross-check", path, what)


def _audit_settings(context: CheckContext, test: str, logs: Logs) -> Iterator[Issue]:
    effective, audit = logs.detail.effective, rule_of(context.benchmark, cast(TestName, test)).settings
    samples = min(_samples(context, test), audit["accuracy_log_sampling_target"])
    target = logs.number("effective_accuracy_log_sampling_target")
    wrong = []
    if effective.get("accuracy_log_rng_seed") != audit["accuracy_log_rng_seed"]:
        wrong.append(f"accuracy_log_rng_seed is {effective.get('accuracy_log_rng_seed')}")
    if target is None or target < samples:
        wrong.append(f"accuracy_log_sampling_target is {target}, expected {samples} or more")
    if test != "TEST06" and effective.get("sample_concatenate_permutation") is not False:
        wrong.append("sample_concatenate_permutation is on")
    if wrong:
        yield context.issue("audit-not-in-force", logs.folder / DETAIL, ", ".join(wrong))
