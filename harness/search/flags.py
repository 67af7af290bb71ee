"""The flags of ``find_peak.py search``. Imports stay light."""

import argparse
import math
import re

from harness.cli import run_flags
from harness.cli.parser import Parser

_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hours": 3600.0, "d": 86400.0}
_PARTS = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)")
_TOLERANCES = (0.001, 0.2)


def add_search(parser: Parser) -> None:
    """The budget and the precision of a search; the flags of a run."""
    group = parser.add_argument_group("search")
    run_flags.add_scenario(group)
    run_flags.add_input_file(group)
    group.add_argument(
        "--budget",
        type=duration_s,
        metavar="TIME",
        help="time limit of the complete search, such as 90m, 2h or 3600 (default: none)",
    )
    group.add_argument(
        "--tolerance",
        type=share,
        metavar="PART",
        help="half of the width of the bracket of rates at which the search ends (default: 1%%)",
    )
    group.add_argument(
        "--start-qps",
        type=rate,
        metavar="Q",
        help="rate of the first run, such as that of an earlier one (default: predicted from a ladder)",
    )
    group.add_argument(
        "--ladder-seconds",
        type=duration_s,
        metavar="S",
        help="time over which each step of the ladder is measured (default: 60)",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="resume the search in the output folder; its measurements are used",
    )
    run_flags.add_settings(parser.add_argument_group("settings"))


def duration_s(text: str) -> float:
    """Seconds of ``90m``, ``2h``, ``1h30m`` or ``3600``."""
    seconds, at, lower = 0.0, 0, text.strip().lower()
    while at < len(lower):
        part = _PARTS.match(lower, at)
        if part is None or part[2] not in _UNITS:
            raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90m, 2h or 3600")
        seconds, at = seconds + float(part[1]) * _UNITS[part[2]], part.end()
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90m, 2h or 3600")
    return seconds


def share(text: str) -> float:
    """A part of ``1%`` or ``0.01``."""
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if rest or not _TOLERANCES[0] <= value <= _TOLERANCES[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not a part from 0.1% to 20%, such as 1% or 0.01")
    return value


def rate(text: str) -> float:
    """Queries per second."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of queries per second")
    return value
