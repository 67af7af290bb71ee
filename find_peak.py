#!/usr/bin/env python3
"""Find how much load servers carry under latency limits: ``python find_peak.py --help``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import called
from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.peak.peak_options import LadderOptions, SearchOptions


def main(argv: list[str]) -> int:
    """Parse flags, run one command, and return the exit code."""
    from harness.peak.peak_options import SearchOptions, parse_options

    options = parse_options(argv)
    name = called("find_peak.py", "search" if isinstance(options, SearchOptions) else "ladder")
    return exit_code_of(name, options.log_level, lambda: _run(options))


def _run(options: "LadderOptions | SearchOptions") -> int:
    # Everything heavy is imported only when there is something to run.
    from harness.peak.peak_options import LadderOptions

    return _climb(options) if isinstance(options, LadderOptions) else _search(options)


def _search(options: "SearchOptions") -> int:
    from harness.config.scenario import Scenario
    from harness.peak.search.search_console import SearchConsole
    from harness.peak.search.search_page import write_peak_page
    from harness.report.run_report import write_report_of
    from sut.peak.offline import find_offline_rate
    from sut.peak.search import find_peak
    from sut.supervisor.metrics_port import metrics_port

    console = SearchConsole(write_report_of)
    with metrics_port(options.metrics_port) as on_line:
        if options.scenario is Scenario.OFFLINE:
            return console.finish_offline(find_offline_rate(options, console, on_line))
        searched = find_peak(options, console, on_line)
    if searched is None:
        return console.checked()
    exit_code = console.finish(searched.folder, searched.state)
    write_peak_page(searched.folder, searched.state)
    if searched.error is not None:
        raise searched.error
    return exit_code


def _climb(options: "LadderOptions") -> int:
    from harness.peak.ladder.ladder_console import LadderConsole
    from harness.peak.ladder.ladder_page import write_ladder_page
    from harness.peak.ladder.ladder_plan import resolve_ladder_plan
    from sut.peak.ladder import climb

    console = LadderConsole()
    plan = resolve_ladder_plan(options)
    ladder = climb(plan, console)
    if not plan.client.dry_run:
        write_ladder_page(plan.client.log_dir, ladder)
    return console.finish(ladder, plan)


if __name__ == "__main__":
    run_main(main)
