"""The outcomes of all runs below some folders, as ``report.py list`` and the overview show them."""

from collections.abc import Sequence
from pathlib import Path

from harness.analysis.run_outcome import ComplianceOutcome, RunOutcome, result_folder
from harness.cli.door import called
from harness.errors import ConfigError
from harness.files import RUN_RECORD
from harness.record.accuracy_result import AccuracyResult
from harness.record.resume import ATTEMPT
from harness.record.run_record import RunRecord


def read_outcomes(folders: Sequence[Path]) -> list[RunOutcome]:
    """Every run at or below the folders, in order of their start; whatever the layout of the folders.

    Earlier attempts of a resumed run are parts of it and not listed. Raises ConfigError where there is none.
    """
    found: dict[Path, RunOutcome] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; pass the folder of runs, such as their --results")
        for path in sorted(folder.rglob(RUN_RECORD)):
            if not path.parent.name.startswith(ATTEMPT):
                found[path.parent] = read_outcome(path.parent)
    if not found:
        raise ConfigError(
            f"{', '.join(map(str, folders))}: no {RUN_RECORD} there, so no run of this harness; "
            f"{called('report.py')} show reads the logs of others"
        )
    return sorted(found.values(), key=lambda one: one.record.started.isoformat() if one.record else "")


def read_outcome(folder: Path) -> RunOutcome:
    """The outcome of the run in a folder. A damaged file counts as none: the other runs are still shown."""
    try:
        record = RunRecord.read(folder / RUN_RECORD)
    except (ConfigError, OSError):
        return RunOutcome(folder, None)
    return outcome_of(folder, record)


def outcome_of(folder: Path, record: RunRecord) -> RunOutcome:
    """The same for a record that has been read."""
    return RunOutcome(folder, record, _score(folder, record), _compliance(folder, record))


def _score(folder: Path, record: RunRecord) -> AccuracyResult | None:
    if record.plan.audit is not None:
        return None  # the score of TEST07 is in its verification
    try:
        return AccuracyResult.read(folder)
    except ConfigError:
        return None


def _compliance(folder: Path, record: RunRecord) -> ComplianceOutcome | None:
    audit = record.plan.audit
    if audit is None:
        return None
    # Graders come with the tests, which only such runs need.
    from harness.compliance.verified import read_verdict

    verified = result_folder(folder)
    return read_verdict(record.plan.client.benchmark, audit, verified)
