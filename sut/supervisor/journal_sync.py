"""Syncs the journal of an accuracy run to the disk, in the supervisor's process.

Workers write their rows to the kernel: these survive the end of a worker but not a power cut. Syncing waits
for the disk, so neither a worker nor LoadGen's process does it.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

_EVERY_S = 0.5


class JournalSync:
    """Context manager: syncs every file of ``directory`` twice a second, and once more at its end."""

    def __init__(self, directory: Path, *, enabled: bool) -> None:
        self._directory = directory
        self._enabled = enabled
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)
        self._descriptors: dict[str, int] = {}

    def __enter__(self) -> None:
        if self._enabled:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            self._end.set()
            self._thread.join(_EVERY_S)

    def _run(self) -> None:
        while not self._end.wait(_EVERY_S):
            self._sync()
        self._sync()
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _sync(self) -> None:
        # A removed folder or a failing disk is reported by the workers that write.
        with suppress(OSError):
            for entry in os.scandir(self._directory):
                if entry.name not in self._descriptors:
                    self._descriptors[entry.name] = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
                os.fdatasync(self._descriptors[entry.name])
