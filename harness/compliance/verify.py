"""From the logs of a run to the verdict of a compliance test. Nothing is written here."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from harness.compliance.base import PASS_DATASET, ComplianceTest, JudgedRun, TestResult
from harness.compliance.run_logs import (
    RunFindings,
    log_file,
    read_detail_log,
    read_run,
    require_complete,
    require_each_once,
    require_effective,
    require_same_run,
)
from harness.config.audit_config import AuditConfig
from harness.config.benchmark import Benchmark
from harness.config.official_data import fetching
from harness.errors import ConfigError, DatasetError, GradingError
from harness.files import ACCURACY_LOG
from harness.grading.evaluation.references import Reference, load_references
from harness.grading.evaluation.run_dataset import other_dataset
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES, INT64, AccuracyLog


class VerifyRequest(msgspec.Struct, frozen=True):
    """The logs to verify."""

    benchmark: Benchmark
    test: ComplianceTest
    audit: AuditConfig
    log_dir: Path
    references: Path | None
    """the answer file of a test that scores answers"""
    official: bool
    """require the official number of samples and a run without deviations"""
    own: bool = False
    """the run was just made here"""
    scenario: str | None = None
    """LoadGen's name, for logs that do not have it"""
    samples: int | None = None
    """the size of the dataset where it is known"""


class VerifyResult(msgspec.Struct, frozen=True):
    """The verdict of a test, and what else the logs show."""

    result: TestResult
    errors: tuple[str, ...]
    """errors of the run itself: with any of them the test has no verdict"""
    warnings: tuple[str, ...]
    samples: int
    """samples in the log"""
    deviations: tuple[str, ...]


def verify(request: VerifyRequest) -> VerifyResult:
    """Verify a run's logs. Raises HarnessError for logs that are not a complete run of the test."""
    log_dir, test = request.log_dir, request.test
    path = log_file(log_dir, ACCURACY_LOG)
    if not path.is_file():
        raise ConfigError(f"--log-dir {log_dir}: no {ACCURACY_LOG}; pass the folder of LoadGen's logs")
    detail = read_detail_log(log_dir)
    facts = read_run(log_dir, detail, request.benchmark.name, test.name)
    _require_official(request, facts)
    references = load_answers(request)
    if references and request.references is not None and facts.record is not None:
        other = other_dataset(facts.record, request.references, request.benchmark)
        if other:
            raise GradingError(other)
    with _named(path):
        log = _open(path)
        samples = _samples(request, log, references)
        audit = request.audit if request.official else request.audit.scaled_to(samples)
        exact = request.own or not test.every_sample
        warnings = require_effective(detail, audit, log_dir, exact=exact)
        if test.every_sample:
            require_same_run(log, detail)
        scenario = facts.scenario or request.scenario
        result = test.judge(log, JudgedRun(request.benchmark, audit.thresholds, references, scenario))
    warnings += result.warnings
    if log.is_odd:
        warnings += (test.unusual_log.format(form=_form(log)),)
    if request.official:
        warnings += request.audit.differences(test.official_audit)
    return VerifyResult(result, facts.errors, (*facts.warnings, *warnings), samples, facts.deviations)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Add the path to an error of the log that lacks it: a test has several logs."""
    try:
        yield
    except GradingError as error:
        if str(path) in str(error):
            raise
        raise GradingError(f"{path}: {error}") from error


def _open(path: Path) -> AccuracyLog:
    if path.stat().st_size <= EMPTY_LOG_BYTES:
        raise GradingError(
            f"{path}: no answer was logged; the test's audit settings were not in effect, run the test again"
        )
    return AccuracyLog(path)


def _form(log: AccuracyLog) -> str:
    kinds = [] if log.is_array else ["JSON lines, and no array"]
    return " and ".join([*kinds, *(["token ids of int64"] if log.width == INT64 else [])])


def load_answers(request: VerifyRequest) -> tuple[Reference, ...]:
    """The references of a test that scores answers, else none.

    Raises ConfigError, DatasetError and GradingError.
    """
    test = request.test
    if not test.needs_references:
        return ()
    if request.references is None:
        raise ConfigError(
            f"{test.name} scores answers, and its dataset is not here; pass --reference-data, the compliance "
            f"dataset, or run {fetching(request.benchmark.name)}"
        )
    references = load_references(request.references, request.benchmark, PASS_DATASET)
    test.require_references(references)
    wanted = test.dataset.samples
    if request.official and len(references) != wanted:
        raise DatasetError(
            f"{request.references}: {len(references)} references, {test.name} has {wanted} "
            f"({test.dataset.file}); --rehearsal allows others"
        )
    return references


def _require_official(request: VerifyRequest, facts: RunFindings) -> None:
    if request.official and facts.deviations:
        raise ConfigError(
            f"{request.log_dir}: the run deviates from the rules ({facts.deviations[0]}); "
            "run it without deviations, or add --rehearsal"
        )


def _samples(request: VerifyRequest, log: AccuracyLog, references: tuple[Reference, ...]) -> int:
    """The number of samples in the log, each of them as the test requires."""
    if not request.test.every_sample:
        return len(require_complete(log))
    expected = request.samples or len(references) or None
    return require_each_once(log, request.test.dataset.samples if request.official else expected)
