"""The logs of a compliance run, except for its answers: the settings in effect, and whether it is usable."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from harness.config.audit_config import AuditConfig, effective_differences
from harness.errors import ConfigError, GradingError
from harness.files import ACCURACY, ACCURACY_LOG, COMPLIANCE_RUN, DETAIL, PERFORMANCE, RUN_RECORD, SUMMARY
from harness.loadgen_logs.accuracy_log import AccuracyLog
from harness.loadgen_logs.summary_and_detail import LoadgenDetail, LoadgenSummary, read_detail, read_summary
from harness.record.resume import other_log
from harness.record.run_record import RunRecord
from harness.text import counted, first_few

_LISTED = 5


def require_complete(log: AccuracyLog) -> npt.NDArray[np.int64]:
    """The sample index of every entry, in the order of the log. Raises GradingError for a log that is cut."""
    indexes = np.fromiter((entry.qsl_idx for entry in log), np.int64)
    if log.cut is not None:
        raise GradingError(
            f"{log.path}: cut short at byte {log.cut.offset} after {counted(len(indexes), 'entry')} "
            f"({log.cut.reason}); verify the complete log, or run the test again"
        )
    return indexes


def require_each_once(log: AccuracyLog, expected: int | None) -> int:
    """Require every index from 0 to ``expected`` - 1 exactly once, and return their number.

    None stands for the number of entries. Raises GradingError with the numbers of missing, repeated and
    unknown samples.
    """
    indexes = require_complete(log)
    wanted = len(indexes) if expected is None else expected
    known = indexes[(indexes >= 0) & (indexes < wanted)]
    counts = np.bincount(known, minlength=wanted)
    found = [
        _listed(np.flatnonzero(counts == 0), f"of {wanted} samples missing"),
        _listed(np.flatnonzero(counts > 1), "logged more than once"),
        _listed(np.unique(indexes[(indexes < 0) | (indexes >= wanted)]), f"beyond 0..{wanted - 1}"),
    ]
    if any(found):
        raise GradingError(
            f"{log.path}: {', '.join(filter(None, found))}; the test needs each sample exactly once: "
            "check that the audit settings were in effect and the dataset is the test's"
        )
    return wanted


def _listed(indexes: npt.NDArray[np.int64], what: str) -> str:
    if not len(indexes):
        return ""
    return f"{len(indexes)} {what} (qsl_idx {first_few(indexes, _LISTED)})"


def other_lengths(log: AccuracyLog, detail: LoadgenDetail) -> str | None:
    """A line where the answers are not those whose rates LoadGen logged; None where the logs lack either."""
    counts = [entry.token_count for entry in log]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or detail.has_mean_tokens(mean := sum(known) / len(known)):
        return None
    return (
        f"its answers have {mean:.3f} tokens on average, expected {detail.mean_tokens:.3f}, the tokens/s ÷ "
        f"samples/s of {DETAIL}: the two logs are of different runs"
    )


def require_same_run(log: AccuracyLog, detail: LoadgenDetail) -> None:
    """Raise GradingError where the answers are not those of the detail log's run."""
    if what := other_lengths(log, detail):
        raise GradingError(f"{log.path}: {what}; pass the logs of one run, or run the test again")


# A run leaves its logs side by side; a verified folder, here or in a submission, has them in these folders.
_PLACES = {ACCURACY_LOG: ACCURACY, SUMMARY: PERFORMANCE, DETAIL: PERFORMANCE}
# These settings make LoadGen log each sample once, which the accuracy log itself shows; earlier official
# files had other values.
_SHOWN_BY_THE_LOG = ("performance_issue_unique", "accuracy_log_sampling_target")


class RunFindings(msgspec.Struct, frozen=True):
    """What the logs of a run say of it."""

    scenario: str | None
    """LoadGen's name"""
    errors: tuple[str, ...]
    """they make the run unusable"""
    warnings: tuple[str, ...]
    """they do not"""
    record: RunRecord | None = None
    """None for a run of another harness"""

    @property
    def deviations(self) -> tuple[str, ...]:
        """Those of this harness's own runs."""
        return () if self.record is None else self.record.deviations


def logs_in(folder: Path) -> Path:
    """The folder of a test's logs: the run beside the verified files, if it exists."""
    own = folder / COMPLIANCE_RUN
    return own if not (folder / ACCURACY_LOG).exists() and (own / ACCURACY_LOG).exists() else folder


def log_file(log_dir: Path, name: str) -> Path:
    """A log of a run's folder, or of a verified folder; the file may be missing."""
    path = log_dir / name
    verified = log_dir / _PLACES[name] / name if name in _PLACES else path
    return verified if not path.exists() and verified.exists() else path


def read_run(log_dir: Path, detail: LoadgenDetail, benchmark: str, test: str) -> RunFindings:
    """Read what the logs in a folder say of their run.

    Raises ConfigError for a log that is cut short, and for a record of another benchmark or test.
    """
    summary, path = _summary(log_dir), log_dir / RUN_RECORD
    missing = [name for name in (SUMMARY, DETAIL) if not log_file(log_dir, name).exists()]
    warnings = [f"no {name}: what only this file can show is not confirmed" for name in missing]
    errors = []
    if summary is not None and not summary.result_valid:
        warnings.append(summary.invalid_line)  # a test judges the answers, not their speed
    if summary is not None and summary.errors:
        errors.append(f"LoadGen counts {counted(summary.errors, 'error')}")
    errors += [f"{count} x LoadGen error: {text}" for text, count in list(detail.errors.items())[:3]]
    scenario = detail.effective.get("scenario")
    if not path.exists():  # another harness: the official scripts take its word, and so the verdict stands
        return RunFindings(scenario, (), (*warnings, *errors))
    record = RunRecord.read(path)
    if (named := record.plan.client.benchmark.name) != benchmark:
        raise ConfigError(
            f"{path}: names the benchmark {named}, but --benchmark is {benchmark}; pass --benchmark {named}"
        )
    if (audit := record.plan.audit) is not None and audit.test != test:
        raise ConfigError(f"{path}: a run of {audit.test}, expected {test}; pass the folder of its run")
    if other := other_log(log_file(log_dir, ACCURACY_LOG), record):
        errors.append(other)
    return RunFindings(scenario, (*errors, *_record_errors(record)), tuple(warnings), record)


def read_detail_log(log_dir: Path) -> LoadgenDetail:
    """The detail log, empty where there is none. Raises ConfigError for one that is cut short."""
    path = log_file(log_dir, DETAIL)
    detail = read_detail(path)
    if detail.problem and path.exists():
        raise ConfigError(f"{path}: {detail.problem}; the run did not end, run the test again")
    return detail


def require_effective(
    detail: LoadgenDetail, audit: AuditConfig, log_dir: Path, *, exact: bool
) -> tuple[str, ...]:
    """Raise ConfigError when the settings in effect were not those of the test; returns warnings.

    ``exact`` requires every setting; without it the log itself shows each sample once.
    """
    effective: Mapping[str, Any] = detail.effective
    if not effective:
        return ()
    found = effective_differences(audit.settings, effective)
    shown = [] if exact else [found.pop(key) for key in _SHOWN_BY_THE_LOG if key in found]
    if found:
        raise ConfigError(
            f"{log_file(log_dir, DETAIL)}: the audit settings ({audit.source}) were not in effect: "
            f"{'; '.join(found.values())}; run the test again with them, or name the run's own --audit-config"
        )
    return tuple(f"{line}; the log still has each sample exactly once" for line in shown)


def _summary(log_dir: Path) -> LoadgenSummary | None:
    path = log_file(log_dir, SUMMARY)
    if not path.exists():
        return None
    summary = read_summary(path)
    if summary.problem:
        raise ConfigError(f"{path}: {summary.problem}; the run did not end, run the test again")
    return summary


def _record_errors(record: RunRecord) -> list[str]:
    verdict = record.verdict
    if verdict is None:
        return [f"{RUN_RECORD} has no verdict: the run was killed or still runs"]
    if verdict.result == "VALID" or verdict.complete:
        return []
    return [f"{RUN_RECORD} has the result {verdict.result}: {first_few(verdict.reasons, 3, '; ')}"]
