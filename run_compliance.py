#!/usr/bin/env python3
"""Run MLPerf compliance tests and verify them: ``python run_compliance.py --help``."""

import sys

_MOST_CHARACTERS = 2000  # of an error: some hold what a server said


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run or verify, and return the exit code."""
    from harness.compliance_cli import VERIFY, parse_arguments

    arguments = parse_arguments(argv)

    # Everything heavy is imported only when there is something to do.
    import logging

    from harness.api_key import masked_text
    from harness.compliance_command import run_tests, verify_logs
    from harness.errors import HarnessError, machine_failure
    from harness.new_file import keep_others_from_writing
    from harness.plan import RunPlan
    from harness.report.printable import printable
    from sut.run import run_benchmark
    from sut.signals import InterruptedRun, interruptible, signals_kept

    def run(plan: RunPlan) -> int:
        with signals_kept():
            return run_benchmark(plan)

    logging.basicConfig(level=arguments.log_level.upper(), format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "httpcore"):  # they log whole headers
        logging.getLogger(name).setLevel(logging.WARNING)
    keep_others_from_writing()
    try:
        with interruptible():
            return verify_logs(arguments) if arguments.command == VERIFY else run_tests(arguments, run)
    except (HarnessError, OSError, MemoryError) as error:
        known = error if isinstance(error, HarnessError) else machine_failure(error)
        print(
            f"run_compliance.py: error: {printable(masked_text(str(known)), _MOST_CHARACTERS)}",
            file=sys.stderr,
        )
        return known.exit_code
    except InterruptedRun as interruption:
        print(f"run_compliance.py: ended by {interruption}", file=sys.stderr)
        return interruption.exit_code


if __name__ == "__main__":
    from harness.standard_streams import secure_standard_streams
    from sut.signals import ignore_signals, leave_on_signals

    leave_on_signals()
    secure_standard_streams()
    exit_code = main()
    ignore_signals()
    sys.exit(exit_code)
