#!/usr/bin/env python3
"""Run an MLPerf Inference LLM benchmark: plan, run, report."""

import sys

_MOST_CHARACTERS = 2000  # of an error: some hold what a server said


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run, and return the exit code."""
    from harness.cli import parse_arguments

    arguments = parse_arguments(argv)

    # Everything heavy is imported only when there is something to run.
    import logging

    from harness.api_key import masked_text
    from harness.errors import HarnessError, machine_failure
    from harness.new_file import keep_others_from_writing
    from harness.plan import resolve_plan
    from harness.report.printable import printable
    from sut.run import run_benchmark
    from sut.signals import InterruptedRun

    logging.basicConfig(level=arguments.log_level.upper(), format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "httpcore"):  # they log whole headers
        logging.getLogger(name).setLevel(logging.WARNING)
    keep_others_from_writing()
    try:
        return run_benchmark(resolve_plan(arguments))
    except (HarnessError, OSError, MemoryError) as error:
        known = error if isinstance(error, HarnessError) else machine_failure(error)
        message = printable(masked_text(str(known)), _MOST_CHARACTERS)
        print(f"run_mlperf.py: error: {message}", file=sys.stderr)
        return known.exit_code
    except InterruptedRun as interruption:
        print(f"run_mlperf.py: ended by {interruption}", file=sys.stderr)
        return interruption.exit_code


if __name__ == "__main__":
    from harness.standard_streams import secure_standard_streams
    from sut.signals import ignore_signals, leave_on_signals

    leave_on_signals()
    secure_standard_streams()
    exit_code = main()
    ignore_signals()
    sys.exit(exit_code)
