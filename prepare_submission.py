#!/usr/bin/env python3
"""Make and check an MLPerf submission folder: ``python prepare_submission.py --help``."""

import sys

from harness.submission.cli import main

if __name__ == "__main__":
    sys.exit(main())
