"""What run.json says of a run; it is kept beside the tree, never inside."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.compliance.submission.complaint import Complaint
from harness.compliance.submission.evidence import Subject
from harness.compliance.submission.tree import ACCURACY, PERFORMANCE

RUN_RECORD = "run.json"


def read_record(path: Path) -> dict[str, Any] | None:
    """The record, None where there is none or it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def check_records(subject: Subject, kept: Path | None) -> Iterator[Complaint]:
    """Deviations and verdicts of the ordinary runs; ``kept`` is the scenario's folder of kept files."""
    if kept is None:
        return
    for folder in (PERFORMANCE, ACCURACY):
        record = read_record(kept / folder / RUN_RECORD)
        if record is None:
            continue
        yield from _verdict(subject, folder, record)
        if subject.closed:
            for deviation in record.get("deviations") or ():
                yield subject.complaint("deviations", folder, str(deviation))


def _verdict(subject: Subject, folder: Path, record: dict[str, Any]) -> Iterator[Complaint]:
    verdict = record.get("verdict") or {}
    result = verdict.get("result")
    if result != "VALID":
        reasons = "; ".join(map(str, verdict.get("reasons") or ())) or "the run did not end"
        yield subject.complaint("run-verdict", folder, f"run.json says {result}: {reasons}")
