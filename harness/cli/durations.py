"""Durations as people type them. Imports stay light, since the flags of every program use them."""

import argparse
import math
import re

EXPECTED = "a time above 0, such as 90, 90s, 30m, 1h or 1h30m (a bare number: seconds)"
_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hours": 3600.0, "d": 86400.0}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)", re.ASCII)


def seconds_of(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``30m``, ``1.5h``, ``1h 30m``. Raises ValueError."""
    seconds, at, lower = 0.0, 0, text.strip().lower()
    while at < len(lower):
        part = _PART.match(lower, at)
        if part is None or part[2] not in _UNITS:
            raise ValueError(f"{text!r} is not {EXPECTED}")
        seconds, at = seconds + float(part[1]) * _UNITS[part[2]], part.end()
    if not 0 < seconds < math.inf:
        raise ValueError(f"{text!r} is not {EXPECTED}")
    return seconds


def duration(text: str) -> float:
    """The type of a flag's value, in seconds."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
