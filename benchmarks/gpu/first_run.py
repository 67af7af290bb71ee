#!/usr/bin/env python3
"""What to measure first on a GPU node, in one command of at most 25 minutes: a folder with a table.

    benchmarks/gpu/first_run [--output DIR] [--only SECTION ...] [--time 25m] [--rehearsal]
    benchmarks/gpu/first_run --backend sglang [OPTION ...] [-- SERVER_FLAG ...]

A server with random weights in gpt-oss-20b's shape (pytorch/run_server.sh), every kind of run against it, and
the client's own benchmarks on this machine's cores. Needs PyTorch, transformers and a C compiler, and no
network. Each section is useful alone: one that fails, or for which no time is left, is a row with its reason,
and the others go on.

The table is written after each section. Repeat the command to try what is not ok yet; --only tries the
sections that it names, again if need be. --rehearsal is the same form on any machine, with a tiny model and
short loads: its figures say nothing about a GPU. --backend sglang has gpt-oss-120b's shape served by
sglang/run_server.sh, with the flags behind --.
"""

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.bench import RESULTS, program_parser
from benchmarks.gpu.section_commands import FULL, REHEARSAL, SGLANG, Site
from benchmarks.gpu.section_runs import FirstRun
from benchmarks.gpu.section_table import Table
from benchmarks.gpu.sections import sections
from harness.cli.durations import duration
from harness.cli.main import exit_code_of, run_main
from harness.cli.signals import interruptible
from harness.errors import ConfigError
from harness.files import ROOT
from harness.git import ask_git
from harness.submission.building.machine import machine_fields

_MOST_S = 25 * 60.0


def main(argv: Sequence[str]) -> int:
    """Parse flags and measure; returns the exit code."""
    names = [one.name for one in sections()]
    parser = program_parser(__doc__)
    parser.add_argument(
        "--output", "-o", type=Path, default=RESULTS / "first_run", metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument(
        "--only", nargs="+", choices=names, default=(), metavar="SECTION", help=f"of {', '.join(names)}"
    )
    parser.add_argument("--time", type=duration, default=_MOST_S, help="of this command (default: 25m)")
    parser.add_argument("--rehearsal", action="store_true", help="a tiny model and short loads")
    parser.add_argument("--backend", choices=("pytorch", "sglang"), default="pytorch", help="that serves")
    parser.add_argument("server_flags", nargs="*", metavar="SERVER_FLAG", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    return exit_code_of("first_run", "warning", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    with interruptible():
        folder = arguments.output.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sizes = SGLANG if arguments.backend == "sglang" else FULL
        site = Site(
            folder,
            REHEARSAL if arguments.rehearsal else sizes,
            _free_port(),
            len(os.sched_getaffinity(0)),
            arguments.backend,
            tuple(arguments.server_flags),
        )
        table = _table(folder, rehearsal=arguments.rehearsal)
        return FirstRun(site, table, sections(), arguments.time).measure(arguments.only)


def _table(folder: Path, *, rehearsal: bool) -> Table:
    """The folder's table, or an empty one. Raises ConfigError where it is of something else."""
    commit = (ask_git(ROOT, "rev-parse", "HEAD") or "not known").strip()
    table = Table.read(folder)
    if table is None:
        return Table(machine=machine_fields(), commit=commit, rehearsal=rehearsal)
    if (table.rehearsal, table.commit) != (rehearsal, commit):
        was = f"{'a rehearsal' if table.rehearsal else 'a full run'} of commit {table.commit[:12]}"
        raise ConfigError(f"{folder}: its table is of {was}; continue that one, or name another --output")
    return table


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


if __name__ == "__main__":
    run_main(main)
