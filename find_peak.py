#!/usr/bin/env python3
"""Find how much load servers carry under latency limits: ``python find_peak.py --help``."""

from typing import TYPE_CHECKING

from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.peak.options import LadderOptions


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run one command, and return the exit code."""
    from harness.peak.cli import parse_options

    options = parse_options(argv)
    return exit_code_of("find_peak.py", options.log_level, lambda: _run(options))


def _run(options: "LadderOptions") -> int:
    # Everything heavy is imported only when there is something to run.
    from harness.pages.ladder_page import write_ladder_page
    from harness.peak.console import LadderConsole
    from harness.peak.plan import resolve_ladder_plan
    from sut.peak.ladder import climb

    console = LadderConsole()
    plan = resolve_ladder_plan(options)
    ladder = climb(plan, console)
    if not plan.run.dry_run:
        write_ladder_page(plan.run.log_dir, ladder)
    return console.finish(ladder, plan)


if __name__ == "__main__":
    run_main(main)
