"""Standard output and error that cannot end a run, whether closed, full or a lost terminal.

Results are in files, so a failed write to the terminal must not end a run. What is printed cannot control the
terminal either: names of files, errors of servers and the like may hold escape sequences.
"""

import errno
import io
import os
import select
import sys
from pathlib import Path
from typing import Any, TextIO

from harness.text import legible

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WAIT_S = 1.0  # the longest wait for the reader of a full pipe


class _LossyWriter(io.FileIO):
    """A FileIO that discards data it cannot write instead of raising."""

    lost: OSError | None = None  # why data did not reach the disk

    def write(self, data: Any) -> int:
        """The number of bytes, written or discarded; never None."""
        try:
            written = super().write(data)
            if written is None and select.select([], [self], [], _WAIT_S)[1]:  # a full non-blocking pipe
                written = super().write(data)
        except OSError as error:  # EPIPE: the reader left; EIO: the terminal; ENOSPC: the disk
            written = None
            if error.errno in _DISK:
                self.lost = error
        return memoryview(data).nbytes if written is None else written


class _LegibleStream(io.TextIOWrapper):
    """A stream that escapes control and format characters, but for line ends and tabs."""

    def write(self, text: str) -> int:
        """As TextIOWrapper."""
        return super().write(legible(text))

    def control(self, text: str) -> None:
        """Write text that moves the cursor or clears."""
        super().write(text)


def can_overwrite(stream: TextIO) -> bool:
    """Whether it is a terminal that takes back what it shows; one of ``TERM=dumb`` prints the codes."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def control(stream: TextIO, text: str) -> None:
    """Write text that moves the cursor of a terminal or clears it; nothing that came from outside."""
    if isinstance(stream, _LegibleStream):
        stream.control(text)
    else:
        stream.write(text)


def require_stdout() -> None:
    """For a result that is what was printed. Raises ConfigError where the disk did not take all of it."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _LossyWriter) and raw.lost is not None:
        from harness.files import not_written

        raise not_written(Path("stdout"), raw.lost, "file")


def secure_standard_streams() -> None:
    """Replace the standard streams. Call it before anything is opened or started.

    The next file or socket would otherwise get a closed descriptor 0, 1 or 2, and LoadGen's output with it.
    """
    _fill_gaps()
    sys.stdout = _lossy(1, sys.stdout, line_buffering=False)
    sys.stderr = _lossy(2, sys.stderr, line_buffering=True)


def _fill_gaps() -> None:
    """Open /dev/null until descriptors 0 to 2 are in use; the system gives the lowest free one first."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _lossy(descriptor: int, before: TextIO | None, *, line_buffering: bool) -> TextIO:
    """A stream of the same encoding; characters outside it are escaped."""
    return _LegibleStream(
        io.BufferedWriter(_LossyWriter(descriptor, "w", closefd=False)),
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=line_buffering or os.isatty(descriptor),
    )
