"""The table of many runs: on a terminal, as CSV, and as JSON with numbers."""

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.analysis.run_outcome import RunOutcome, metric_text, result_folder
from harness.files import atomic_write
from harness.text import aligned

_HEADER = ("run", "verdict", "score or rate", "p99, of its limit", "started (UTC)")
_MS = 1e6


def table_lines(outcomes: Sequence[RunOutcome], roots: Sequence[Path]) -> Iterator[str]:
    """The lines of the table.

    Runs are named relative to a single root, and with their benchmark where there are several. No name is
    cut: what differs may be its begin, its end or between, and other commands of `report` take it.
    """
    several = len({one.record.plan.client.benchmark.name for one in outcomes if one.record is not None}) > 1
    return aligned([_HEADER, *(_row(one, _name(one, roots, several)) for one in outcomes)])


def _row(one: RunOutcome, name: str) -> tuple[str, ...]:
    if one.record is None:
        return (name, "DAMAGED run.json", "-", "-", "-")
    parts = ", ".join(f"{name} {part:.1%}" for name, part in one.p99_parts.items())
    return (
        name,
        one.verdict.text + one.mark,
        _short_figure(one),
        parts or "-",
        f"{one.record.started:%m-%d %H:%M}",
    )


def _short_figure(one: RunOutcome) -> str:
    """Without the name of a score's only metric."""
    return metric_text(one.metrics[0][1]) if len(one.metrics) == 1 else one.figure


def _name(one: RunOutcome, roots: Sequence[Path], several: bool) -> str:
    """The folder, with the benchmark where there are several and the folder does not name it."""
    folder = result_folder(one.folder)
    if len(roots) == 1 and folder != roots[0]:
        folder = Path(os.path.relpath(folder, roots[0]))
    benchmark = "" if one.record is None else one.record.plan.client.benchmark.name
    return f"{folder} ({benchmark})" if several and benchmark not in folder.parts else str(folder)


# How the files of a table begin: with the first field of every run.
CSV_BEGIN, JSON_BEGIN = b"folder,", b'[\n  {\n    "folder": '


def as_json(outcomes: Sequence[RunOutcome]) -> str:
    """An object for each run; the names of numbers end with their unit."""
    return json.dumps([json_fields(one) for one in outcomes], indent=2, allow_nan=False)


def write_csv(path: Path, outcomes: Sequence[RunOutcome]) -> None:
    """Write the fields of the JSON but the nested ones; lists are joined. Raises OSError."""
    rows = [{name: _flat(value) for name, value in json_fields(one).items()} for one in outcomes]
    names = list(dict.fromkeys(name for row in rows for name in row if name != "score_metrics"))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, extrasaction="ignore", restval="")
    writer.writeheader()
    writer.writerows(rows)
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def _flat(value: Any) -> Any:
    return "; ".join(map(str, value)) if isinstance(value, list) else value


def json_fields(one: RunOutcome) -> dict[str, Any]:
    """The fields of a run as JSON has them; null for what a run does not have."""
    record = one.record
    known = {"folder": str(one.folder), "verdict": one.verdict.text, "passed": one.passed}
    if record is None:
        return {**known, "result": None}
    plan, stats, git = record.plan, record.statistics, record.provenance.git
    return {
        **known,
        "benchmark": plan.client.benchmark.name,
        "scenario": plan.scenario.value,
        "mode": plan.mode,
        "result": None if record.verdict is None else record.verdict.result,
        "reasons": [] if record.verdict is None else list(record.verdict.reasons),
        "official": one.official,
        "deviations": list(record.deviations),
        "warnings": list(record.warnings),
        **_score_fields(one),
        **_compliance_fields(one),
        **_loadgen_fields(one),
        "queries": None if stats is None else stats.queries,
        "failed": None if stats is None else stats.failed,
        "started": record.started.isoformat(),
        "duration_s": record.lasted_s,
        "harness_commit": None if git is None else git.commit,
        "harness_dirty": None if git is None else git.dirty,
    }


def _score_fields(one: RunOutcome) -> dict[str, Any]:
    """The metric that decides, and all of them."""
    name, metric = one.metrics[0] if one.metrics else (None, None)
    return {
        "score_met": None if one.score is None else one.score.target.met,
        "score_metric": name,
        "score": None if metric is None else metric.value,
        "score_target": None if metric is None else metric.lowest,
        "score_metrics": msgspec.to_builtins(dict(one.metrics)),
    }


def _compliance_fields(one: RunOutcome) -> dict[str, Any]:
    found = one.compliance
    return {
        "compliance_test": None if found is None else found.test,
        "compliance_passed": None if found is None else found.passed,
    }


def _loadgen_fields(one: RunOutcome) -> dict[str, Any]:
    """LoadGen's figures."""
    assert one.record is not None
    summary, limits = one.record.loadgen, one.record.limits_ns
    fields: dict[str, Any] = {
        "tokens_per_s": None if summary is None else summary.tokens_per_s,
        "samples_per_s": None if summary is None else summary.samples_per_s,
        "latency_p90_ms": _ms(None if summary is None else summary.percentile_ns("latency", "90.00")),
    }
    for name in ("TTFT", "TPOT"):
        low = name.lower()
        fields[f"{low}_p99_ms"] = _ms(None if summary is None else summary.percentile_ns(name))
        fields[f"{low}_limit_ms"] = _ms(limits.get(name))
        fields[f"{low}_p99_part_of_limit"] = one.p99_parts.get(name)
    return fields


def _ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _MS
