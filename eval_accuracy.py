#!/usr/bin/env python3
"""Score outputs as upstream's program of this name is called: ``python eval_accuracy.py --help``."""

from harness.cli.main import run_main
from harness.grading.cli import accuracy_main

if __name__ == "__main__":
    run_main(accuracy_main)
