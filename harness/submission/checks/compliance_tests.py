"""Checks of a submission's compliance tests: present, passed, and run with their audit settings."""

from collections.abc import Iterator
from pathlib import Path

from harness.compliance.base import ComplianceTest
from harness.compliance.eos_check import judge_consistency
from harness.compliance.run_logs import other_lengths
from harness.config.loadgen_settings import PERFORMANCE_MODE
from harness.errors import GradingError
from harness.files import ACCURACY, ACCURACY_LOG, DETAIL, PERFORMANCE
from harness.loadgen_logs.accuracy_log import AccuracyLog
from harness.loadgen_logs.integrity import is_complete
from harness.submission.checks.accuracy_run import check_accuracy_log
from harness.submission.checks.context import CheckContext, Logs, read_logs
from harness.submission.checks.issue import Issue
from harness.submission.checks.loadgen_logs import check_logs, check_sample_counts, logged, usable
from harness.text import counted

# A compliance test is not a measurement: it may be INVALID for its latencies or early stopping. Its other
# constraints must be met.
_BINDING = ("Min duration", "Min queries")


def check_tests(context: CheckContext) -> Iterator[Issue]:
    """All issues of the tests' folders; the open division needs no tests."""
    for test in context.tests if context.closed else ():
        folder = context.dir.path / test.name
        if not folder.is_dir():
            yield context.missing(folder, "test-missing")
            continue
        yield from _verify_file(context, test)
        if test.every_sample:
            yield from _run(context, test)
            yield from check_accuracy_log(context, Path(test.name) / ACCURACY)
        else:
            yield from _run_of_random_samples(context, test)


def _verify_file(context: CheckContext, test: ComplianceTest) -> Iterator[Issue]:
    path, text = _verify_path(context, test), context.read_verified(test)
    if text is None:
        yield context.missing(path, "test-missing")
        return
    for what in test.recheck(text, context.scenario.loadgen):
        yield context.issue("test-failed", path, what)


def _verify_path(context: CheckContext, test: ComplianceTest) -> Path:
    return context.dir.path / test.name / test.verify_file


def _run_of_random_samples(context: CheckContext, test: ComplianceTest) -> Iterator[Issue]:
    """The official scripts leave the accuracy log complete; LoadGen's other logs may be missing.

    The official script passes a log without answers, because it has nothing to verify.
    """
    log = context.dir.path / test.name / ACCURACY / ACCURACY_LOG
    answers = test.fewest_answers
    if not log.is_file():
        yield context.missing(log)
    elif not is_complete(log):
        yield context.issue("test06-log", log, "is cut short or truncated")
    elif (found := log.read_bytes().count(b"{")) < answers:
        yield context.issue("test06-log", log, f"has {counted(found, 'answer')}, expected {answers} or more")
    else:
        yield from _verified_again(context, test, log)
    folder = Path(test.name) / PERFORMANCE
    if (context.dir.path / folder / DETAIL).is_file():
        logs = read_logs(context, folder)
        yield from check_logs(context, logs, PERFORMANCE_MODE)
        if usable(logs):
            yield from _audit_settings(context, test, logs)


def _verified_again(context: CheckContext, test: ComplianceTest, log: Path) -> Iterator[Issue]:
    """A verification file that a reviewer would not get from the complete log beside it.

    Ends of sequence do not count: MLCommons's script looks for those of another model unless it is told.
    """
    scenario, text = context.scenario.loadgen, context.read_verified(test)
    try:
        judged = judge_consistency(AccuracyLog(log), scenario, eos_token_ids=())
    except GradingError as error:
        what = str(error).removeprefix(f"{log}: ")
        yield context.issue("test06-log", log, f"cannot be verified: {what}")
        return
    if text is not None and not judged.passed and not list(test.recheck(text, scenario)):
        what = f"is a pass, the accuracy log beside it none: {judged.summary}"
        yield context.issue("cross-check", _verify_path(context, test), what)


def _run(context: CheckContext, test: ComplianceTest) -> Iterator[Issue]:
    logs, samples = read_logs(context, Path(test.name) / PERFORMANCE), test.dataset.samples
    yield from check_logs(context, logs, PERFORMANCE_MODE, samples=samples)
    if not usable(logs):
        return
    for name in _BINDING:
        if logs.summary.constraints.get(name) is False:
            yield context.issue("invalid", logs.folder / DETAIL, f"{name} not satisfied")
    yield from _audit_settings(context, test, logs)
    yield from check_sample_counts(context, logs, samples)
    if what := test.cross_check(context.read_verified(test) or "", logs.detail):
        yield context.issue("cross-check", _verify_path(context, test), what)
    if what := _full_log(context, test, logs):
        yield context.issue("cross-check", Path(test.name) / ACCURACY / ACCURACY_LOG, what)


def _full_log(context: CheckContext, test: ComplianceTest, logs: Logs) -> str | None:
    """A line where the full log, if it was kept, is of another run; one that is no log is not compared."""
    full = None if context.kept is None else context.kept / test.name / ACCURACY / ACCURACY_LOG
    if full is None or not full.is_file():
        return None
    try:
        return other_lengths(AccuracyLog(full), logs.detail)
    except GradingError:
        return None


def _audit_settings(context: CheckContext, test: ComplianceTest, logs: Logs) -> Iterator[Issue]:
    effective, audit, samples = logs.detail.effective, test.audit, test.fewest_answers
    target = logs.detail.number("effective_accuracy_log_sampling_target")
    wrong = []
    if effective.get("accuracy_log_rng_seed") != audit.get("accuracy_log_rng_seed", 0):
        wrong.append(f"accuracy_log_rng_seed is {logged(effective.get('accuracy_log_rng_seed'))}")
    if target is None or target < samples:
        wrong.append(f"accuracy_log_sampling_target is {logged(target)}, expected {samples} or more")
    if test.every_sample and effective.get("sample_concatenate_permutation") is not False:
        wrong.append("sample_concatenate_permutation is on")
    if wrong:
        yield context.issue("audit-not-in-force", logs.folder / DETAIL, ", ".join(wrong))
