#!/usr/bin/env python3
"""Answer plain prompts and look at the answers: ``python run_batch.py --help``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which PYTHONSAFEPATH leaves out
from harness.cli.door import called
from harness.cli.main import exit_code_of, run_main

if TYPE_CHECKING:
    from harness.batch.batch_options import BatchOptions, FileOptions, TalkOptions


def main(argv: list[str]) -> int:
    """Parse flags, run one command, and return the exit code."""
    from harness.batch.batch_options import parse_options

    options = parse_options(argv)
    return exit_code_of(called("run_batch.py"), options.log_level, lambda: _run(options))


def _run(options: "BatchOptions | TalkOptions | FileOptions") -> int:
    # Everything heavy is imported only when there is something to run.
    from harness.batch.batch_options import BatchOptions, ScoreOptions, TalkOptions
    from harness.cli.signals import interruptible

    if isinstance(options, BatchOptions):
        return _answer(options)
    if isinstance(options, TalkOptions):
        from sut.rows.talk import talk

        return talk(options)
    with interruptible():
        if isinstance(options, ScoreOptions):
            from harness.batch.score import score

            return score(options)
        from harness.batch.encoding import convert

        return convert(options)


def _answer(options: "BatchOptions") -> int:
    from harness.batch.batch_console import BatchConsole
    from harness.batch.batch_plan import resolve_batch
    from sut.rows.run_rows import run_rows
    from sut.supervisor.metrics_port import metrics_port

    batch = resolve_batch(options)
    console = BatchConsole(sys.argv, batch.positions)
    with metrics_port(options.metrics_port) as on_line:
        return console.finish(run_rows(batch.plan, batch, console, on_line))


if __name__ == "__main__":
    run_main(main)
