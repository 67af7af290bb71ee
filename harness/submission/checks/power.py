"""Checks of the files of power measurements. What was measured is for MLCommons's power checker."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from harness.files import PERFORMANCE
from harness.json_files import read_fields
from harness.loadgen_logs.summary_and_detail import CLOCK_FORMAT
from harness.submission.checks.context import CheckContext, read_logs
from harness.submission.checks.issue import Issue
from harness.submission.tree.system_description import POWER_FIELD, nameplate_of

_POWER, _RANGING = Path("performance/power"), Path("performance/ranging")
_SAMPLES = "spl.txt"  # the power meter writes it


def check_power(context: CheckContext) -> Iterator[Issue]:
    """The files of a result with power measurements, if it has any; the measurements are not checked."""
    if not (context.dir.path / _POWER).exists():
        for path in (_RANGING, PERFORMANCE / _SAMPLES):
            if (context.dir.path / path).exists():
                text = f"is there, but {_POWER.as_posix()} is not"
                yield context.issue("power", path, text)
        return
    rule = context.rules.power
    for folder, expected in ((PERFORMANCE, rule.run), (_RANGING, rule.run), (_POWER, rule.power)):
        path = context.dir.path / folder
        names = {entry.name for entry in path.iterdir() if entry.is_file()} if path.is_dir() else set()
        if missing := [name for name in expected if name not in names]:
            yield context.issue("power", folder, f"missing: {', '.join(missing)}")
        if more := sorted(names.difference(expected, rule.optional)):
            yield context.issue("power", folder, f"not expected: {', '.join(more)}")
    yield from _power_contents(context)
    text = "power measurements are not checked, only their files: run MLCommons's power checker"
    fields = read_fields(context.dir.system_file)
    stated = not isinstance(fields, str) and POWER_FIELD in fields
    if not stated and not nameplate_of(context.dir.system_file).is_file():
        text += f"; the design power is missing: no {POWER_FIELD} and no list of power supplies in systems/"
    yield context.issue("power", _POWER, text, is_warning=True)


def _power_contents(context: CheckContext) -> Iterator[Issue]:
    """Each file has its form, and the power meter has a sample of the run."""
    for name in context.rules.power.power:
        path = context.dir.path / _POWER / name
        if path.is_file() and path.suffix == ".json" and isinstance(fields := read_fields(path), str):
            yield context.issue("malformed", path, fields)
        elif path.is_file() and not path.read_bytes().strip():
            yield context.issue("power", path, "is empty")
    path, logs = context.dir.path / PERFORMANCE / _SAMPLES, read_logs(context, PERFORMANCE)
    begin, end = logs.detail.clock
    if path.is_file() and begin is not None and end is not None:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if not any(begin < when < end and watts > 0 for when, watts in _watts(lines)):
            yield context.issue("power", path, "has no sample between power_begin and power_end of the run")


def _watts(lines: list[str]) -> Iterator[tuple[datetime, float]]:
    """Time and power of each sample: ``Time,<time>,Watts,<number>,...``."""
    for line in lines:
        cells = line.split(",")
        try:
            if cells[0] == "Time":
                yield datetime.strptime(cells[1], CLOCK_FORMAT), float(cells[3])
        except (ValueError, IndexError):
            continue
