#!/usr/bin/env python3
"""Run MLPerf compliance tests and verify them: ``python run_compliance.py --help``."""

from typing import TYPE_CHECKING

from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.compliance.cli import ComplianceOptions, VerifyOptions


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run or verify, and return the exit code."""
    from harness.compliance.cli import VerifyOptions, parse_options

    options = parse_options(argv)
    log_level = "info" if isinstance(options, VerifyOptions) else options.run.log_level
    return exit_code_of("run_compliance.py", log_level, lambda: _run(options))


def _run(options: "ComplianceOptions | VerifyOptions") -> int:
    # Everything heavy is imported only when there is something to do.
    from harness.cli.signals import interruptible, signals_kept
    from harness.compliance.cli import VerifyOptions
    from harness.compliance.command import run_tests, verify_logs
    from harness.config.plan import RunPlan
    from sut.run import run_benchmark

    def run(plan: RunPlan) -> int:
        with signals_kept():
            return run_benchmark(plan)

    with interruptible():
        return verify_logs(options) if isinstance(options, VerifyOptions) else run_tests(options, run)


if __name__ == "__main__":
    run_main(main)
