#!/usr/bin/env python3
"""Show runs: ``python report.py --help``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import called
from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.report.report_options import ReportOptions


def main(argv: list[str]) -> int:
    """Parse flags, run one command, and return the exit code."""
    from harness.report.report_options import parse_options

    options = parse_options(argv)
    return exit_code_of(called("report.py"), "info", lambda: _run(options))


def _run(options: "ReportOptions") -> int:
    from harness.cli.signals import interruptible
    from harness.errors import EXIT_VALID

    with interruptible():
        # Everything heavy is imported only when there is something to show.
        from harness.report.report_command import run

        run(options)
    return EXIT_VALID


if __name__ == "__main__":
    run_main(main)
