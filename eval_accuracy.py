#!/usr/bin/env python3
"""Score outputs as upstream's program of this name is called: ``python eval_accuracy.py --help``."""

from eval_mlperf_accuracy import add_to_run
from harness.cli.main import run_main
from harness.grading.cli import accuracy_main


def main(argv: list[str] | None = None) -> int:
    """Score the rows; the page of their run shows the result. Returns the exit code."""
    return accuracy_main(argv, publish=add_to_run)


if __name__ == "__main__":
    run_main(main)
