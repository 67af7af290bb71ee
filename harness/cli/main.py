"""The edge of every program: streams, signals, errors of one line, exit codes.

Imports stay light, since ``--help`` uses them too.
"""

import gc
import logging
import os
import resource
import sys
from collections.abc import Callable
from typing import NoReturn

from harness.cli.signals import InterruptedRun, ignore_signals, leave_on_signals
from harness.cli.streams import secure_standard_streams

_MOST_CHARACTERS = 2000  # an error is cut here: some contain the answer of a server
# What the imports and first threads of a run take, in kB of addresses. With less, it varies which library
# fails first and how, and Python 3.11 can repeat a failed allocation, for an exception, without end.
_LEAST_MEMORY_KB = 600_000
_OBJECTS_BETWEEN_COLLECTIONS = 20_000  # Python's 700 collect dozens of times while modules are imported


def run_main(main: Callable[[list[str]], int]) -> NoReturn:
    """Set up streams and signals, run ``main`` on the command line, end the process with its exit code."""
    leave_on_signals()
    secure_standard_streams()
    spare_processors()
    exit_code = main(sys.argv[1:])
    ignore_signals()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # no orderly exit: a thread that still waits for a server can crash it


def spare_processors() -> None:
    """Start processes with a third less CPU.

    numpy's OpenBLAS would start a thread on each core, which spins for tens of milliseconds, and no program
    here needs it. Child processes inherit the variable.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 20)


def exit_code_of(name: str, log_level: str, work: Callable[[], int]) -> int:
    """Run ``work`` and return its exit code; an error that a user can cause becomes one line on stderr.

    The notes of one with several causes are lines before it.
    """
    from harness.api_key import masked_text
    from harness.errors import explained
    from harness.text import printable

    try:
        _prepare(log_level)
        _check_limit_on_memory()
        return work()
    except Exception as error:
        if (known := explained(error)) is None:
            raise
        causes = getattr(known, "__notes__", ())
        for line in (*causes, f"{name}: error: {known}"):
            print(printable(masked_text(line), _MOST_CHARACTERS), file=sys.stderr)
        return known.exit_code
    except InterruptedRun as interruption:
        notes = "".join(f"; {note}" for note in getattr(interruption, "__notes__", ()))
        print(f"{name}: ended by {interruption}{notes}", file=sys.stderr)
        return interruption.exit_code


def _prepare(log_level: str) -> None:
    from harness.files import keep_others_from_writing
    from harness.text import printable

    class OneLine(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
            return printable(super().formatMessage(record), _MOST_CHARACTERS)

    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(OneLine("%(message)s"))
    lines.setLevel(log_level.upper())
    # progress.jsonl has the warnings also where stderr has errors alone.
    logging.basicConfig(level=min(lines.level, logging.WARNING), handlers=[lines])
    for name in ("httpx", "httpcore"):  # they log complete headers, keys included
        logging.getLogger(name).setLevel(logging.WARNING)
    keep_others_from_writing()


def _check_limit_on_memory() -> None:
    from harness.errors import ConfigError

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_MEMORY_KB * 1024:
        raise ConfigError(
            f"the limit on memory is {limit // 1024} kB, expected at least {_LEAST_MEMORY_KB}; lift it "
            "(ulimit -v unlimited)"
        )
