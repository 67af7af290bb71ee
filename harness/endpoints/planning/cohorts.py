"""Cohorts of publication, two a month: 2026-10-C0, 2026-10-C1, 2026-11-C0."""

import re
from datetime import date, timedelta

from harness.errors import ConfigError

_WEDNESDAY = 2  # of date.weekday
_COHORT = re.compile(r"(\d{4})-(0[1-9]|1[0-2])-C([01])", re.ASCII)


def cohort_number(name: str) -> int:
    """The position of a cohort; that of the next one is larger by 1. Raises ConfigError."""
    found = _COHORT.fullmatch(name)
    if found is None:
        raise ConfigError(f"{name[:40]!r} is no cohort, expected one such as 2026-10-C1")
    year, month, half = map(int, found.groups())
    return (year * 12 + month - 1) * 2 + half


def publication(number: int) -> date:
    """The day of the cohort at a position: a month's first or third Wednesday (submission rules, 4.2)."""
    months, half = divmod(number, 2)
    first = date(months // 12, months % 12 + 1, 1)
    return first + timedelta(days=(_WEDNESDAY - first.weekday()) % 7 + 14 * half)


def cohort_name(number: int) -> str:
    """The cohort at a position."""
    months, half = divmod(number, 2)
    year, month = divmod(months, 12)
    return f"{year:04d}-{month + 1:02d}-C{half}"
