#!/usr/bin/env python3
"""Run an MLPerf Inference LLM benchmark: plan, run, report."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import called
from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.config.run_options import RunOptions


def main(argv: list[str]) -> int:
    """Parse flags, run, and return the exit code."""
    from harness.config.run_options import parse_options

    options = parse_options(argv)
    return exit_code_of(called("run_mlperf.py"), options.log_level, lambda: _run(options))


def _run(options: "RunOptions") -> int:
    # Everything heavy is imported only when there is something to run, and nothing later: an update of the
    # checkout meanwhile would mix two versions.
    from harness.config.run_plan import resolve_plan
    from harness.report.run_console import RunConsole
    from harness.report.run_report import write_report_of
    from sut.run import run
    from sut.supervisor.metrics_port import metrics_port

    console = RunConsole()
    plan = resolve_plan(options)
    with metrics_port(options.metrics_port) as on_line:
        record = run(
            plan,
            on_earlier=console.earlier,
            on_plan=console.plan,
            on_progress=console.progress,
            on_line=on_line,
        )
    exit_code = console.finish(record)
    if options.report and not options.dry_run and not console.is_complete:
        write_report_of(record)
    return exit_code


if __name__ == "__main__":
    run_main(main)
