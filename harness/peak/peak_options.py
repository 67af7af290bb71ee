"""The options of find_peak.py's commands and its command line. Imports stay light for ``--help``."""

import argparse
import math
from pathlib import Path

from harness.cli.door import called
from harness.cli.durations import duration
from harness.cli.flags import Command, add_commands, flag, options, read
from harness.cli.parser import SIGNAL_CODES, Parser, built_once
from harness.config.other_flags import ELSEWHERE, EVERY_REPLICA, SYNONYMS
from harness.config.run_options import (
    FAILURES,
    GENERATION,
    SERVER,
    SETTINGS,
    ClientOptions,
    mlperf_conf_flag,
    parsed,
    restart_flag,
    results_flag,
    resume_flag,
    scenario_flag,
    user_conf_flag,
)
from harness.config.scenario import Scenario

_TOLERANCES = (0.001, 0.2)
_RUN = ("output_dir", "dry_run", "log_level")
_SERVER = tuple(name for name in SERVER if name != "min_replicas")
_CODES = (
    "Exit codes: 0 done, 2 usage, config or dataset, 3 server, 4 failed requests or ended early, "
    f"{SIGNAL_CODES}."
)
_LADDER_GROUPS = {
    "steps": ("scenario", "benchmark", "round", "input_file", "concurrency", "seconds"),
    "generation": GENERATION,
    "server": tuple(name for name in _SERVER if name != "max_concurrency"),
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
    "server": _SERVER,
    "deadlines and failures": FAILURES,
    "run": ("output_dir", "metrics_port", "dry_run", "log_level"),
}


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
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of queries per second, above 0")
    return value


def concurrencies(text: str) -> tuple[int, ...]:
    """Numbers of requests in flight, such as ``1,8,64``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 1,8,64") from None


@options
class PeakOptions(ClientOptions):
    """What both commands have in common."""

    output_dir: Path | None = results_flag("logs are written to DIR/peak/<scenario>/")


@options
class LadderOptions(PeakOptions):
    """``ladder``. ``concurrency`` empty: steps that follow from what the servers report."""

    scenario: Scenario = scenario_flag(Scenario.SERVER, (Scenario.SERVER, Scenario.INTERACTIVE))
    concurrency: tuple[int, ...] = flag(
        "requests in flight of each step, ascending, over all replicas (default: doubled up to what the "
        "servers run at once)",
        default=(),
        type=concurrencies,
        metavar="N,N,...",
    )
    seconds: float = flag(
        "time over which each step is measured, after its filling (default: %(default)gs)",
        default=60.0,
        type=duration,
        metavar="TIME",
    )


@options
class SearchOptions(PeakOptions):
    """``search``. Times in seconds; ``tolerance`` is a share of the rate."""

    scenario: Scenario = scenario_flag(
        Scenario.SERVER,
        (Scenario.OFFLINE, Scenario.SERVER, Scenario.INTERACTIVE),
        others="; single-stream has no rate to search for, as each query waits for the end of the one before "
        "it: ./mlperf run --scenario single-stream measures it",
    )
    budget: float | None = flag(
        "time limit of the complete search, such as 90m, 2h or 3600 (default: none)",
        default=None,
        type=duration,
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
        "time over which each step of the ladder is measured (default: %(default)gs)",
        default=60.0,
        type=duration,
        metavar="TIME",
    )
    resume: bool = resume_flag("search")
    restart: bool = restart_flag("search")
    mlperf_conf: Path | None = mlperf_conf_flag()
    user_conf: Path = user_conf_flag()


_COMMANDS: dict[str, tuple[type[LadderOptions | SearchOptions], dict[str, tuple[str, ...]], str]] = {
    "ladder": (
        LadderOptions,
        _LADDER_GROUPS,
        "Fixed numbers of requests in flight, without LoadGen: not an MLPerf result.",
    ),
    "search": (
        SearchOptions,
        _SEARCH_GROUPS,
        "The highest target_qps that passes, by runs of official length; for offline by one short run.",
    ),
}


@built_once
def build_parser() -> Parser:
    """All flags of both commands."""
    parser = Parser(
        prog=called("find_peak.py"),
        description="Find the load that servers can carry under a scenario's latency limits.",
        epilog=_CODES,
    )
    words = {"synonyms": SYNONYMS, "elsewhere": ELSEWHERE | EVERY_REPLICA, "epilog": _CODES}
    commands = {
        name: Command(kind, groups, text, words | {"prog": called("find_peak.py", name)})
        for name, (kind, groups, text) in _COMMANDS.items()
    }
    add_commands(parser, commands)
    return parser


def parse_options(argv: list[str]) -> LadderOptions | SearchOptions:
    """Parse the flags of one command; argparse exits with code 2 and one line on wrong usage."""
    given = parsed(build_parser(), argv)
    return read(_COMMANDS[given["command"]][0], given)
