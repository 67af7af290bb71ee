#!/usr/bin/env python3
"""Score an MLPerf accuracy log: ``python eval_mlperf_accuracy.py --help``."""

from pathlib import Path
from typing import Any

from harness.cli.main import run_main
from harness.grading.cli import main as score


def main(argv: list[str] | None = None) -> int:
    """Score the log; the page of its run shows the result. Returns the exit code."""
    return score(argv, publish=add_to_run)


def add_to_run(folder: Path, result: dict[str, Any]) -> None:
    """Keep the result in the folder of its run; ``--help`` imports none of this."""
    from harness.report.command import add_result

    add_result(folder, result)


if __name__ == "__main__":
    run_main(main)
