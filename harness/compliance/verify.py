"""From the logs of a run to the verdict of a compliance test; nothing is written here."""

from dataclasses import dataclass
from pathlib import Path

from harness.compliance.audit_config import AuditConfig, shipped
from harness.compliance.rules import ComplianceRule, ComplianceVerdict, TestName
from harness.compliance.run_logs import (
    ACCURACY_LOG,
    RunFacts,
    log_file,
    read_detail_log,
    read_run,
    require_each_once,
    require_in_force,
    require_whole,
)
from harness.compliance.test06 import judge_consistency
from harness.compliance.test07 import grade_answers, require_gradable, unreadable
from harness.compliance.test09 import judge_lengths, measure
from harness.config.benchmark import Benchmark
from harness.errors import ConfigError, DatasetError, GradingError
from harness.grading.references import Reference, load_references
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES, INT64, AccuracyLog

# What is said of a log that LoadGen does not write so.
_ODD: dict[TestName, str] = {
    "TEST06": "the log has {what}; the official script needs an array, and -d int64 for int64",
    "TEST07": "the log has {what}, which the official evaluator misreads: this is its verdict",
    "TEST09": "the log has {what}; the official script counts words of 4 bytes, two for each int64",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be verified. ``references`` are TEST07's; ``own`` marks a run that was just made here.

    ``official`` asks for the official number of samples and a run without deviations. ``scenario`` is
    LoadGen's, for logs that do not name it; ``samples`` is the dataset's size where it is known.
    """

    benchmark: Benchmark
    rule: ComplianceRule
    audit: AuditConfig
    log_dir: Path
    references: Path | None
    official: bool
    own: bool = False
    scenario: str | None = None
    samples: int | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """``troubles`` are of the run itself: with any of them there is no verdict to be had."""

    verdict: ComplianceVerdict
    troubles: tuple[str, ...]
    notes: tuple[str, ...]
    samples: int
    deviations: tuple[str, ...]


def verify(question: Question) -> Verification:
    """Raises HarnessError for logs that are not a whole run of the test."""
    log_dir = question.log_dir
    path = log_file(log_dir, ACCURACY_LOG)
    if not path.is_file():
        raise ConfigError(f"--log-dir {log_dir}: no {ACCURACY_LOG}; pass the folder of LoadGen's logs")
    detail = read_detail_log(log_dir)
    facts = read_run(log_dir, detail)
    _require_official(question, facts)
    references = load_answers(question)
    log = _open(path)
    samples = _samples(question, log, references)
    audit = question.audit if question.official else question.audit.scaled_to(samples)
    exact = question.own or question.rule.test == "TEST06"
    notes = require_in_force(detail, audit, log_dir, exact=exact)
    verdict = _verdict(question, log, references, facts)
    if log.is_odd:
        notes += (_ODD[question.rule.test].format(what=_what(log)),)
        if question.rule.test == "TEST07":
            verdict = _as_official(question, log, references)
    if question.official:
        notes += question.audit.differences(shipped(question.rule))
    return Verification(verdict, facts.troubles, (*facts.notes, *notes), samples, facts.deviations)


def _open(path: Path) -> AccuracyLog:
    if path.stat().st_size <= EMPTY_LOG_BYTES:
        raise GradingError(
            f"{path}: no answer was logged; the test's audit settings were not in force, run the test again"
        )
    return AccuracyLog(path)


def _what(log: AccuracyLog) -> str:
    kinds = [] if log.is_array else ["JSON lines, and no array"]
    return " and ".join([*kinds, *(["token ids of int64"] if log.width == INT64 else [])])


def _as_official(
    question: Question, log: AccuracyLog, references: tuple[Reference, ...]
) -> ComplianceVerdict:
    """The verdict of the official script: it reads an array, and all ids as int32."""
    if not log.is_array:
        return unreadable()
    rule, thresholds = question.rule, dict(question.audit.thresholds)
    return grade_answers(log.as_int32(), references, question.benchmark, rule, thresholds)


def load_answers(question: Question) -> tuple[Reference, ...]:
    """TEST07's references, none for other tests. Raises ConfigError, DatasetError and GradingError."""
    if question.rule.test != "TEST07":
        return ()
    if question.references is None:
        raise ConfigError("TEST07 scores answers; pass --reference-data, the compliance dataset")
    references = load_references(question.references)
    require_gradable(references)
    wanted = question.rule.dataset.samples
    if question.official and len(references) != wanted:
        raise DatasetError(
            f"{question.references}: {len(references)} references, TEST07 has {wanted} "
            f"({question.rule.dataset.file}); --non-official allows others"
        )
    return references


def _require_official(question: Question, facts: RunFacts) -> None:
    if question.official and facts.deviations:
        raise ConfigError(
            f"{question.log_dir}: the run deviates from the rules ({facts.deviations[0]}); "
            "run it without deviations, or add --non-official"
        )


def _samples(question: Question, log: AccuracyLog, references: tuple[Reference, ...]) -> int:
    """How many the log holds, all of them as they must be. TEST06 logs some of them, at random."""
    if question.rule.test == "TEST06":
        return len(require_whole(log))
    expected = question.samples or len(references) or None
    return require_each_once(log, question.rule.dataset.samples if question.official else expected)


def _verdict(
    question: Question, log: AccuracyLog, references: tuple[Reference, ...], facts: RunFacts
) -> ComplianceVerdict:
    rule, thresholds = question.rule, dict(question.audit.thresholds)
    if rule.test == "TEST07":
        return grade_answers(log, references, question.benchmark, rule, thresholds)
    if rule.test == "TEST09":
        return judge_lengths(measure(log), thresholds)
    scenario = facts.scenario or question.scenario
    if scenario is None:
        raise ConfigError(
            "TEST06 checks first tokens in all scenarios but Offline, and no log names it; pass --scenario"
        )
    return judge_consistency(log, scenario, rule.eos_token_ids)
