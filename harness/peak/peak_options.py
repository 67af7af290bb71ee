"""The options of find_peak.py's commands and its command line. Imports stay light for ``--help``."""

import argparse
import math
import re
from pathlib import Path

from harness.cli.flags import add_groups, flag, options, read
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.choices import DEFAULT_OUTPUT
from harness.config.run_options import (
    FAILURES,
    GENERATION,
    SERVER,
    SETTINGS,
    SYNONYMS,
    ClientOptions,
    mlperf_conf_flag,
    parsed,
    restart_flag,
    scenario_flag,
    user_conf_flag,
)
from harness.config.scenario import Scenario

_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hours": 3600.0, "d": 86400.0}
_PARTS = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)")
_TOLERANCES = (0.001, 0.2)
_RUN = ("output_dir", "dry_run", "log_level")
_LADDER_GROUPS = {
    "steps": ("scenario", "benchmark", "round", "input_file", "concurrency", "seconds"),
    "generation": GENERATION,
    "server": tuple(name for name in SERVER if name != "max_concurrency"),
    "deadlines and failures": FAILURES,
    "run": _RUN,
}
_SEARCH_GROUPS = {
    "search": (
        "scenario",
        "benchmark",
        "round",
        "input_file",
        "budget",
        "tolerance",
        "start_qps",
        "ladder_seconds",
        "resume",
        "restart",
    ),
    "settings": SETTINGS,
    "server": SERVER,
    "deadlines and failures": FAILURES,
    "run": _RUN,
}


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


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 64,128,256") from None


@options
class PeakOptions(ClientOptions):
    """What both commands have in common."""

    output_dir: Path | None = flag(
        f"logs are written to DIR/peak/<scenario>/ (default: {DEFAULT_OUTPUT})", default=None, metavar="DIR"
    )


@options
class LadderOptions(PeakOptions):
    """``ladder``. ``concurrency`` empty: steps that follow from what the servers report."""

    scenario: Scenario = scenario_flag(Scenario.SERVER, (Scenario.SERVER, Scenario.INTERACTIVE))
    concurrency: tuple[int, ...] = flag(
        "requests in flight of each step, ascending, over all replicas (default: doubled up to what the "
        "servers run at once)",
        default=(),
        type=_numbers,
        metavar="N,N,...",
    )
    seconds: float = flag(
        "time over which each step is measured, after its filling (default: %(default)g)",
        default=60.0,
        type=duration_s,
        metavar="S",
    )


@options
class SearchOptions(PeakOptions):
    """``search``. Times in seconds; ``tolerance`` is a share of the rate."""

    scenario: Scenario = scenario_flag(Scenario.SERVER)
    budget: float | None = flag(
        "time limit of the complete search, such as 90m, 2h or 3600 (default: none)",
        default=None,
        type=duration_s,
        metavar="TIME",
    )
    tolerance: float = flag(
        "half of the width of the bracket of rates at which the search ends (default: 1%%)",
        default=0.01,
        type=share,
        metavar="PART",
    )
    start_qps: float | None = flag(
        "rate of the first run, such as that of an earlier one (default: predicted from a ladder)",
        default=None,
        type=rate,
        metavar="Q",
    )
    ladder_seconds: float = flag(
        "time over which each step of the ladder is measured (default: 60)",
        default=60.0,
        type=duration_s,
        metavar="S",
    )
    resume: bool = flag(
        "fail where the output folder holds no search with the same settings; without the flag such a search "
        "is continued, too, and any other begins anew",
        default=False,
    )
    restart: bool = restart_flag("search")
    mlperf_conf: Path | None = mlperf_conf_flag()
    user_conf: Path = user_conf_flag()


def build_parser() -> Parser:
    """All flags of both commands."""
    parser = Parser(
        prog="find_peak.py",
        description="Find the load that servers can carry under a scenario's latency limits.",
        epilog="Exit codes: 0 done, 2 usage, config or dataset, 3 server, 4 failed requests or ended early, "
        f"{SIGNAL_CODES}.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ladder = commands.add_parser(
        "ladder",
        synonyms={"--dataset-path": SYNONYMS["--dataset-path"]},
        help="fixed numbers of requests in flight, without LoadGen: not an MLPerf result",
    )
    add_groups(ladder, LadderOptions, _LADDER_GROUPS)
    search = commands.add_parser(
        "search",
        synonyms=SYNONYMS,
        help="the highest target_qps that passes, by runs of official length",
    )
    add_groups(search, SearchOptions, _SEARCH_GROUPS)
    return parser


def parse_options(argv: list[str] | None = None) -> LadderOptions | SearchOptions:
    """Parse the flags of one command; argparse exits with code 2 and one line on wrong usage."""
    given = parsed(build_parser(), argv)
    if given["command"] == "search":
        return read(SearchOptions, given)
    return read(LadderOptions, given)
