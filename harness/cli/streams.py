"""Standard output and error that cannot end a run: closed, full, or a terminal that has gone.

What a run found is in its files; what nobody reads any more is not worth a run.
"""

import io
import os
import select
import sys
from typing import Any, TextIO

_PATIENCE_S = 1.0


class _Patient(io.FileIO):
    """Drops what the other side does not take, and tells nobody: there is nobody left to tell."""

    def write(self, data: Any) -> int:
        """Bytes written or dropped: never none, and never an error."""
        try:
            written = super().write(data)
            if written is None and select.select([], [self], [], _PATIENCE_S)[1]:  # a full non-blocking pipe
                written = super().write(data)
        except OSError:  # EPIPE: the reader left; EIO: the terminal; ENOSPC: the disk
            written = None
        return memoryview(data).nbytes if written is None else written


def secure_standard_streams() -> None:
    """Call it before anything is opened or started.

    A closed descriptor 0, 1 or 2 would be given to the next file or socket, and what LoadGen prints would go
    there.
    """
    _fill_gaps()
    sys.stdout = _patient(1, sys.stdout, line_buffering=False)
    sys.stderr = _patient(2, sys.stderr, line_buffering=True)


def _fill_gaps() -> None:
    """Open /dev/null until the three descriptors are taken; the lowest free one comes first."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _patient(descriptor: int, before: TextIO | None, *, line_buffering: bool) -> TextIO:
    """A stream of the same encoding; what a terminal cannot show is escaped."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Patient(descriptor, "w", closefd=False)),
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=line_buffering or os.isatty(descriptor),
    )
