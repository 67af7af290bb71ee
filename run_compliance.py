#!/usr/bin/env python3
"""Run MLPerf compliance tests and verify them: ``python run_compliance.py --help``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import called
from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.compliance.compliance_options import ComplianceOptions, VerifyOptions


def main(argv: list[str]) -> int:
    """Parse flags, run or verify, and return the exit code."""
    from harness.compliance.compliance_options import VerifyOptions, parse_options

    options = parse_options(argv)
    log_level = "info" if isinstance(options, VerifyOptions) else options.run.log_level
    return exit_code_of(called("run_compliance.py"), log_level, lambda: _run(options))


def _run(options: "ComplianceOptions | VerifyOptions") -> int:
    # Everything heavy is imported only when there is something to do, and nothing later: an update of the
    # checkout meanwhile would mix two versions. The page of a test reads its verdict.
    import harness.compliance.verified  # noqa: F401
    from harness.cli.signals import interruptible, signals_kept
    from harness.compliance.compliance_command import run_tests, verify_logs
    from harness.compliance.compliance_options import VerifyOptions
    from harness.config.plans import RunPlan
    from harness.record.run_record import RunRecord
    from harness.report.run_console import RunConsole
    from harness.report.run_report import add_verdict, write_report_of
    from sut.run import run
    from sut.supervisor.metrics_port import metrics_port

    ended: list[RunRecord] = []

    def run_and_print(plan: RunPlan, is_done: "Callable[[RunRecord], bool]") -> RunRecord:
        console = RunConsole()
        with signals_kept():
            record = run(
                plan,
                on_earlier=console.earlier,
                is_done=is_done,
                on_plan=console.plan,
                on_progress=console.progress,
                on_line=on_line,
            )
            console.finish(record)
            if with_report and not plan.client.dry_run and not console.is_complete:
                write_report_of(record)
                ended.append(record)
        return record

    with interruptible():
        if isinstance(options, VerifyOptions):
            return verify_logs(options)
        with_report = options.run.report
        with metrics_port(options.run.metrics_port) as on_line:
            code = run_tests(options, run_and_print)
        for record in ended:  # their pages were written before the tests were verified
            add_verdict(record)
        return code


if __name__ == "__main__":
    run_main(main)
