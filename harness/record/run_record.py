"""run.json: what was run, on what, and what it proved. docs/reference/run_json.md describes its fields."""

import dataclasses
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import numpy as np

from harness.files import replacing
from harness.loadgen_logs.summary_and_detail import LoadgenSummary
from harness.record.verdict import Verdict
from harness.report.client_overhead import ClientLoad
from harness.report.statistics import Distribution, Statistics

SCHEMA = 1

Json = str | int | float | bool | list["Json"] | dict[str, "Json"] | None


@dataclass(frozen=True, slots=True)
class ClockPair:
    """One moment on two clocks: ties the CLOCK_MONOTONIC times of requests.parquet to UTC."""

    utc: datetime
    monotonic_ns: int


def read_clocks() -> ClockPair:
    """Both clocks now; UTC is read between two readings of the other, whose middle counts."""
    before = time.monotonic_ns()
    utc = datetime.now(UTC)
    return ClockPair(utc, (before + time.monotonic_ns()) // 2)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The fields of run.json in their order. Written before the first query and again at the end.

    ``plan``, ``provenance``, ``servers``: dataclasses or mappings of plain values, times in UTC.
    ``verdict`` and what follows ``ended`` stay None while the run lasts: a file that has no verdict belongs
    to a run that is going on or was killed.
    """

    plan: object
    provenance: object
    servers: Sequence[object]
    started: datetime
    clock: ClockPair | None = None  # read at the start
    deviations: Sequence[str] = ()
    ended: datetime | None = None
    verdict: Verdict | None = None
    statistics: Statistics | None = None
    unanswered: int | None = None  # queries that LoadGen issued and that have no outcome
    failure_examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    loadgen: LoadgenSummary | None = None
    settings_in_force: Mapping[str, object] | None = None  # as LoadGen's detail log has them
    client_cpu_s: float | None = None  # CPU time of LoadGen's process and the workers during the test
    client_load: ClientLoad | None = None  # how busy our own processes were
    client_share: Distribution | None = None  # what our own processes added to each token report
    schedule_lag_mean_ns: float | None = None  # LoadGen's scheduled time to its call of our callback
    doubts: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def write_run_record(path: Path, record: RunRecord) -> None:
    """Write run.json; a reader finds the old file or the new one, never a part."""
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    write_json(path, {"schema": SCHEMA, **fields})


def write_json(path: Path, value: object) -> None:
    """Write strict JSON atomically and durably; the umask counts, and others never get to write."""
    text = json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=True) + "\n"
    with replacing(path) as file:
        file.write(text.encode("ascii"))


def plain(value: object) -> Json:
    """``value`` in JSON's own types: a number that is not finite becomes null, an unknown type raises."""
    match value:
        case None | bool() | str() if not isinstance(value, Enum):
            return value
        case Enum():
            return value.name.lower()
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            return float(value) if math.isfinite(value) else None
        case np.bool_():
            return bool(value)
        case Path():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat()
    return _plain_container(value)


def _plain_container(value: object) -> Json:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, frozenset | set):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    raise TypeError(f"run record: got a {type(value).__name__}, expected plain values or dataclasses of them")


def _key(key: object) -> str:
    """Numbers as people write them: percentile 99.0 is "99", 99.9 is "99.9"."""
    return f"{key:g}" if isinstance(key, float) else str(plain(key))
