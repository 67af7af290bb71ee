#!/usr/bin/env python3
"""The programs of this checkout as verbs of one; ``./mlperf`` starts it in the right environment."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import LAUNCHER, VERBS, first_screen, unknown, version


def main(argv: list[str]) -> int:
    """Show the first screen, or run a verb; returns the exit code."""
    verb, *flags = argv or [""]
    if verb == "help":
        verb, flags = (flags[0], [*flags[1:], "--help"]) if flags else ("--help", [])
    if verb in ("--help", "-h"):
        print(first_screen())
        return 0
    if verb == "--version":
        print(version())
        return 0
    if verb not in VERBS:
        print(unknown(verb) if verb else first_screen(), file=sys.stderr)
        return 2
    # The words by which run.json records this command, and its name in help and errors.
    sys.argv = [str(LAUNCHER), verb, *flags]
    return _start(verb, [*filter(None, [VERBS[verb].command]), *flags])


def _start(verb: str, words: list[str]) -> int:
    """Run the program of a verb, of which nothing was imported before."""
    match VERBS[verb].program:
        case "harness.campaign":
            from harness.campaign.__main__ import main
        case "sut.doctor":
            from sut.doctor.__main__ import main
        case "run_mlperf.py":
            from run_mlperf import main
        case "eval_mlperf_accuracy.py":
            from eval_mlperf_accuracy import main
        case "run_compliance.py":
            from run_compliance import main
        case "prepare_submission.py":
            from prepare_submission import main
        case "find_peak.py":
            from find_peak import main
        case "run_endpoints.py":
            from run_endpoints import main
        case "report.py":
            from report import main
        case "run_eval.py":
            from run_eval import main
        case "run_batch.py":
            from run_batch import main
    return main(words)


if __name__ == "__main__":
    from harness.cli.main import run_main

    run_main(main)
