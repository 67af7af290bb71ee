#!/usr/bin/env python3
"""Run an MLPerf Inference LLM benchmark: plan, run, report."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

_MOST_CHARACTERS = 2000  # of an error: some hold what a server said


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run, and return the exit code."""
    from harness.cli import parse_arguments

    arguments = parse_arguments(argv)

    from harness.api_key import masked_text
    from harness.errors import explained
    from harness.report.printable import printable
    from sut.signals import InterruptedRun

    try:
        return _run(arguments)
    except Exception as error:
        if (known := explained(error)) is None:
            raise
        message = printable(masked_text(str(known)), _MOST_CHARACTERS)
        print(f"run_mlperf.py: error: {message}", file=sys.stderr)
        return known.exit_code
    except InterruptedRun as interruption:
        print(f"run_mlperf.py: ended by {interruption}", file=sys.stderr)
        return interruption.exit_code


def _run(arguments: "argparse.Namespace") -> int:
    # Everything heavy is imported only when there is something to run.
    import logging

    from harness.new_file import keep_others_from_writing
    from harness.plan import resolve_plan
    from sut.run import run_benchmark

    logging.basicConfig(level=arguments.log_level.upper(), format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "httpcore"):  # they log whole headers
        logging.getLogger(name).setLevel(logging.WARNING)
    keep_others_from_writing()
    return run_benchmark(resolve_plan(arguments))


if __name__ == "__main__":
    from harness.standard_streams import secure_standard_streams
    from sut.signals import ignore_signals, leave_on_signals

    leave_on_signals()
    secure_standard_streams()
    exit_code = main()
    ignore_signals()
    sys.exit(exit_code)
