#!/usr/bin/env python3
"""Score outputs as upstream's program of this name is called: ``python eval_accuracy.py --help``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.main import exit_code_of, run_main


def main(argv: list[str]) -> int:
    """Parse flags, score the outputs, and return the exit code."""
    from eval_mlperf_accuracy import score
    from harness.grading.evaluation_options import parse_accuracy_options

    options = parse_accuracy_options(argv)
    return exit_code_of("eval_accuracy.py", "info", lambda: score(options))


if __name__ == "__main__":
    run_main(main)
