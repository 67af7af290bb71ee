#!/usr/bin/env python3
"""Rehearse a curve of MLPerf Endpoints, build and check its tree: ``python run_endpoints.py --help``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import called
from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.endpoints.endpoints_options import EndpointsOptions


def main(argv: list[str]) -> int:
    """Parse flags, run one command, and return the exit code."""
    from harness.endpoints.endpoints_options import RehearsalOptions, parse_options

    options = parse_options(argv)
    level = options.log_level if isinstance(options, RehearsalOptions) else "info"
    return exit_code_of(called("run_endpoints.py"), level, lambda: _run(options))


def _run(options: "EndpointsOptions") -> int:
    # Everything heavy is imported only when there is something to do.
    from harness.cli.signals import interruptible
    from harness.endpoints.endpoints_options import BuildOptions, CheckOptions, RehearsalOptions

    if isinstance(options, RehearsalOptions):
        from sut.endpoints.rehearsal import rehearse

        return rehearse(options)
    with interruptible():
        if isinstance(options, BuildOptions):
            from harness.endpoints.tree.build_command import build

            return build(options)
        if isinstance(options, CheckOptions):
            from harness.endpoints.checks.check_command import check

            return check(options)
        from harness.endpoints.view.compare_curves import compare

        return compare(options)


if __name__ == "__main__":
    run_main(main)
