"""What is asked of a result with power measurements: its files. The measurements are not looked at."""

from collections.abc import Iterator
from pathlib import Path

from harness.submission.checks.check_context import Subject
from harness.submission.checks.issue import Complaint
from harness.submission.layout import PERFORMANCE

_POWER, _RANGING = Path("performance/power"), Path("performance/ranging")


def check_power(subject: Subject) -> Iterator[Complaint]:
    """Without a folder ``performance/power`` there is nothing to ask."""
    if not (subject.place.path / _POWER).exists():
        return
    rule = subject.rules.power
    for folder, expected in ((PERFORMANCE, rule.run), (_RANGING, rule.run), (_POWER, rule.power)):
        path = subject.place.path / folder
        names = {entry.name for entry in path.iterdir() if entry.is_file()} if path.is_dir() else set()
        if missing := [name for name in expected if name not in names]:
            yield subject.complaint("power", folder, f"missing: {', '.join(missing)}")
        if more := sorted(names.difference(expected, rule.optional)):
            yield subject.complaint("power", folder, f"not expected there: {', '.join(more)}")
    text = "power measurements are not checked here, only that their files are there"
    yield subject.complaint("power", _POWER, text, note=True)
