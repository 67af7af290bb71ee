#!/usr/bin/env python3
"""Score an MLPerf accuracy log: ``python eval_mlperf_accuracy.py --help``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import called
from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.grading.evaluation_options import EvaluationOptions


def main(argv: list[str]) -> int:
    """Parse flags, score the outputs, and return the exit code."""
    from harness.grading.evaluation_options import parse_options

    options = parse_options(argv)
    return exit_code_of(called("eval_mlperf_accuracy.py"), "info", lambda: score(options))


def score(options: "EvaluationOptions") -> int:
    """Score outputs; the page of their run shows the result. Returns the exit code. Raises HarnessError."""
    from harness.cli.signals import InterruptedRun, interruptible

    try:
        with interruptible():
            # Everything heavy is imported only when there is something to score.
            from harness.grading.evaluator import run
            from harness.report.run_report import add_result

            return run(options, add_result)
    except InterruptedRun as interruption:
        from harness.grading.evaluator import kept_verdicts

        interruption.add_note(kept_verdicts(options))
        raise


if __name__ == "__main__":
    run_main(main)
