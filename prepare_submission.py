#!/usr/bin/env python3
"""Make and check an MLPerf submission folder: ``python prepare_submission.py --help``."""

from harness.cli.main import run_main
from harness.submission.cli import main

if __name__ == "__main__":
    run_main(main)
