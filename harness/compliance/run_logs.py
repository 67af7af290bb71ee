"""The logs of a compliance run beside the answers: was it the test, and was the run worth anything?"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.compliance.audit_config import AuditConfig
from harness.compliance.in_force import differences
from harness.errors import ConfigError
from harness.report.loadgen_log import LoadgenDetail, read_detail, read_summary

ACCURACY_LOG = "mlperf_log_accuracy.json"
SUMMARY, DETAIL = "mlperf_log_summary.txt", "mlperf_log_detail.txt"
RUN_RECORD = "run.json"
# Their purpose is that each sample is logged once, which the accuracy log shows for itself; earlier official
# files had other values.
_SHOWN_BY_THE_LOG = ("performance_issue_unique", "accuracy_log_sampling_target")


class _Verdict(msgspec.Struct, frozen=True):
    result: str
    reasons: list[str] = []


class _RunRecord(msgspec.Struct, frozen=True):
    """What is read of this harness's run.json."""

    deviations: list[str] = []
    verdict: _Verdict | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """``troubles`` make the run worthless, ``notes`` are what could not be confirmed.

    ``scenario`` is LoadGen's; ``deviations`` are known of runs of this harness.
    """

    scenario: str | None
    troubles: tuple[str, ...]
    notes: tuple[str, ...]
    deviations: tuple[str, ...] = ()


def read_run(log_dir: Path, detail: LoadgenDetail) -> RunFacts:
    """Everything that the folder tells of its run. Raises ConfigError for a log that is cut short."""
    record = _record(log_dir / RUN_RECORD)
    troubles = [*_summary_troubles(log_dir), *_detail_troubles(detail)]
    if record is not None and record.verdict is not None and record.verdict.result != "VALID":
        troubles.append(f"{RUN_RECORD} says {record.verdict.result}: {'; '.join(record.verdict.reasons[:3])}")
    missing = [name for name in (SUMMARY, DETAIL) if not (log_dir / name).exists()]
    notes = tuple(f"no {name}: what it would tell is not confirmed" for name in missing)
    scenario = detail.effective.get("scenario")
    return RunFacts(scenario, tuple(troubles), notes, () if record is None else tuple(record.deviations))


def read_detail_log(log_dir: Path) -> LoadgenDetail:
    """The detail log, empty where there is none. Raises ConfigError for one that is cut short."""
    path = log_dir / DETAIL
    detail = read_detail(path)
    if detail.problem and path.exists():
        raise ConfigError(f"{path}: {detail.problem}; the run did not end, run the test again")
    return detail


def require_in_force(
    detail: LoadgenDetail, audit: AuditConfig, log_dir: Path, *, exact: bool
) -> tuple[str, ...]:
    """Raise ConfigError when the settings were not those of the test; returns what is worth a note.

    ``exact`` asks for every setting; without it the log has been seen to hold each sample once.
    """
    effective: Mapping[str, Any] = detail.effective
    if not effective:
        return ()
    found = differences(audit.settings, effective)
    shown = [] if exact else [found.pop(key) for key in _SHOWN_BY_THE_LOG if key in found]
    if found:
        raise ConfigError(
            f"{log_dir / DETAIL}: the audit settings ({audit.source}) were not in force: "
            f"{'; '.join(found.values())}; run the test again with them, or name the run's own --audit-config"
        )
    return tuple(f"{line}; each sample was logged exactly once all the same" for line in shown)


def _summary_troubles(log_dir: Path) -> list[str]:
    path = log_dir / SUMMARY
    if not path.exists():
        return []
    summary = read_summary(path)
    if summary.problem:
        raise ConfigError(f"{path}: {summary.problem}; the run did not end, run the test again")
    found = []
    if not summary.result_valid:
        unmet = [name for name, met in summary.constraints.items() if not met]
        found.append(f"LoadGen says INVALID: {', '.join(unmet) or 'no constraint named'} not satisfied")
    if summary.errors:
        found.append(f"LoadGen counts {summary.errors} errors")
    return found


def _detail_troubles(detail: LoadgenDetail) -> list[str]:
    return [f"{count} x LoadGen error: {text}" for text, count in list(detail.errors.items())[:3]]


def _record(path: Path) -> _RunRecord | None:
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=_RunRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: not a run record ({error})") from error
