#!/usr/bin/env python3
"""Show runs: ``python report.py --help``."""

from harness.cli.main import run_main
from harness.report.cli import main

if __name__ == "__main__":
    run_main(main)
