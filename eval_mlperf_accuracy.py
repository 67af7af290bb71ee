#!/usr/bin/env python3
"""Score an MLPerf accuracy log: ``python eval_mlperf_accuracy.py --help``."""

from harness.cli.main import run_main
from harness.grading.cli import main

if __name__ == "__main__":
    run_main(main)
