#!/usr/bin/env python3
"""Make and check an MLPerf submission folder: ``python prepare_submission.py --help``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import called
from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.submission.submission_options import SubmissionOptions


def main(argv: list[str]) -> int:
    """Parse flags, run one command, and return the exit code."""
    from harness.submission.submission_options import parse_options

    options = parse_options(argv)
    return exit_code_of(called("prepare_submission.py"), "info", lambda: _run(options))


def _run(options: "SubmissionOptions") -> int:
    from harness.cli.signals import interruptible
    from harness.errors import EXIT_THRESHOLD, EXIT_VALID

    with interruptible():
        # Everything heavy is imported only when there is something to do.
        from harness.submission.submission_command import run

        return EXIT_VALID if run(options) else EXIT_THRESHOLD


if __name__ == "__main__":
    run_main(main)
