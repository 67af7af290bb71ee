#!/usr/bin/env python3
"""Send every row of a dataset to a server, without LoadGen: ``python run_eval.py --help``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import called
from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.rows.eval_options import EvalOptions


def main(argv: list[str]) -> int:
    """Parse flags, run, and return the exit code."""
    from harness.rows.eval_options import parse_options

    options = parse_options(argv)
    return exit_code_of(called("run_eval.py"), options.log_level, lambda: _run(options))


def _run(options: "EvalOptions") -> int:
    # Everything heavy is imported only when there is something to run.
    from harness.rows.eval_plan import resolve_eval_plan
    from harness.rows.eval_result import OutputTable
    from harness.rows.rows_console import EvalConsole
    from sut.rows.run_rows import run_rows
    from sut.supervisor.metrics_port import metrics_port

    console = EvalConsole(sys.argv)
    plan = resolve_eval_plan(options)
    with metrics_port(options.metrics_port) as on_line:
        result = run_rows(plan, OutputTable(plan), console, on_line)
    return console.finish(result)


if __name__ == "__main__":
    run_main(main)
