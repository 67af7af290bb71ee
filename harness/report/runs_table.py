"""A table of all runs below some folders."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from harness.errors import ConfigError
from harness.files import RUN_RECORD
from harness.loadgen_logs.summary_and_detail import LoadgenSummary
from harness.record.accuracy_result import score_line
from harness.record.run_record import RunRecord

COLUMNS = ("folder", "run", "result", "figure", "TTFT p99", "TPOT p99", "failed", "started", "harness")
_RATES = ("Completed tokens per second", "Tokens per second", "Completed samples per second")


def results(folders: Sequence[Path]) -> list[tuple[str, ...]]:
    """A row of COLUMNS for each run, in order of their start. Raises ConfigError where there is none."""
    found: dict[Path, RunRecord | None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder; pass the --output-dir of runs")
        found |= {path.parent: _record(path) for path in sorted(folder.rglob(RUN_RECORD))}
    if not found:
        raise ConfigError(f"{', '.join(map(str, folders))}: no {RUN_RECORD} there, so no run of this harness")
    rows = [(record, _row(path, record)) for path, record in found.items()]
    rows.sort(key=lambda pair: "" if pair[0] is None else pair[0].started.isoformat())
    return [row for _, row in rows]


def as_json(rows: Sequence[Sequence[str]]) -> str:
    """An object for each row."""
    return json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows], indent=2)


def write_csv(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Write the table. Raises OSError."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


def _record(path: Path) -> RunRecord | None:
    """None for a file that cannot be read: the other runs are still shown."""
    try:
        return RunRecord.read(path)
    except (ConfigError, OSError):
        return None


def _row(folder: Path, record: RunRecord | None) -> tuple[str, ...]:
    if record is None:
        return (str(folder), "-", f"damaged {RUN_RECORD}", "-", "-", "-", "-", "-", "-")
    plan, stats, git = record.plan, record.statistics, record.provenance.git
    limits = record.limits_ns
    return (
        str(folder),
        plan.title,
        _result(record),
        score_line(folder) or _figure(record.loadgen),
        *(_part(record.loadgen, name, limits.get(name)) for name in ("TTFT", "TPOT")),
        "-" if stats is None else str(stats.failed),
        f"{record.started:%Y-%m-%d %H:%M}",
        "-" if git is None else git.commit[:9] + ("+" if git.dirty else ""),
    )


def _result(record: RunRecord) -> str:
    result = "not ended" if record.verdict is None else record.verdict.result
    return f"{result}, NOT OFFICIAL" if record.deviations else result


def _figure(summary: LoadgenSummary | None) -> str:
    """LoadGen's figure: tokens a second, or the p90 of SingleStream."""
    if summary is None:
        return "-"
    for name in _RATES:
        if (value := summary.figures.get(name)) is not None:
            return f"{value:.2f} {'tokens' if 'tokens' in name.lower() else 'samples'}/s"
    p90 = summary.percentile_ns("latency", "90.00")
    return "-" if p90 is None else f"p90 {p90 / 1e6:.1f} ms"


def _part(summary: LoadgenSummary | None, name: str, limit_ns: int | None) -> str:
    """The p99 as a part of its limit."""
    p99 = None if summary is None else summary.percentile_ns(name)
    return "-" if p99 is None or not limit_ns else f"{p99 / limit_ns:.1%}"
