"""The edge of every program: streams, signals, errors of one line, exit codes.

Imports stay light, since ``--help`` passes here too.
"""

import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from harness.cli.signals import InterruptedRun, ignore_signals, leave_on_signals
from harness.cli.streams import secure_standard_streams

_MOST_CHARACTERS = 2000  # of an error: some hold what a server said


def leave(main: Callable[[], int]) -> NoReturn:
    """Run ``main`` with streams and signals in order, and end the process with its exit code."""
    leave_on_signals()
    secure_standard_streams()
    exit_code = main()
    ignore_signals()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # at once: a thread that still asks a server can crash an orderly exit


def guarded(name: str, log_level: str, work: Callable[[], int]) -> int:
    """The exit code of ``work``; an error that a user can cause becomes one line on stderr."""
    from harness.config.api_key import masked_text
    from harness.errors import explained
    from harness.text import printable

    try:
        _prepare(log_level)
        return work()
    except Exception as error:
        if (known := explained(error)) is None:
            raise
        message = printable(masked_text(str(known)), _MOST_CHARACTERS)
        print(f"{name}: error: {message}", file=sys.stderr)
        return known.exit_code
    except InterruptedRun as interruption:
        notes = "".join(f"; {note}" for note in getattr(interruption, "__notes__", ()))
        print(f"{name}: ended by {interruption}{notes}", file=sys.stderr)
        return interruption.exit_code


def _prepare(log_level: str) -> None:
    from harness.files import keep_others_from_writing

    logging.basicConfig(level=log_level.upper(), format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "httpcore"):  # they log whole headers
        logging.getLogger(name).setLevel(logging.WARNING)
    keep_others_from_writing()
