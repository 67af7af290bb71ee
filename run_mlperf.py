#!/usr/bin/env python3
"""Run an MLPerf Inference LLM benchmark: plan, run, report."""

from typing import TYPE_CHECKING

from harness.cli.main import guarded, leave

if TYPE_CHECKING:
    import argparse


def main(argv: list[str] | None = None) -> int:
    """Parse flags, run, and return the exit code."""
    from harness.cli.run_flags import parse_arguments

    arguments = parse_arguments(argv)
    return guarded("run_mlperf.py", arguments.log_level, lambda: _run(arguments))


def _run(arguments: "argparse.Namespace") -> int:
    # Everything heavy is imported only when there is something to run.
    from harness.config.plan import resolve_plan
    from sut.run import run_benchmark

    return run_benchmark(resolve_plan(arguments))


if __name__ == "__main__":
    leave(main)
