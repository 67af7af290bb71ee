"""Files that appear whole or not at all, written where others may have planted something."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# Whatever the umask: what a run leaves is evidence, and others must not be able to change it.
_OTHERS_WRITE = 0o002

COMPLIANCE_RUN = "run"  # folder of a compliance test's run, beside what is verified of it


def keep_others_from_writing() -> None:
    """Take the write permission of others away from all files and folders that this process will make.

    LoadGen, the engine and every other child inherit it. What the umask takes away besides stays away.
    """
    os.umask(os.umask(0o077) | _OTHERS_WRITE)


@contextmanager
def replacing(path: Path, suffix: str = ".partial") -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` once it is written and on disk; else nothing changes.

    Its name is known beforehand, so a link of that name is removed, never followed. Raises OSError.
    """
    partial = path.with_name(path.name + suffix)
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)  # on a full disk it would stand in the way of smaller files
