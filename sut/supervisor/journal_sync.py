"""Syncs the journal of an accuracy run to the disk, in the supervisor's process.

Workers write their rows to the kernel: these survive the end of a worker but not a power cut. Syncing waits
for the disk, so neither a worker nor LoadGen's process does it.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

from harness.errors import machine_failure
from harness.files import wait_for_disk

_EVERY_S = 0.5


class JournalSync:
    """Context manager: syncs every file of ``directory`` twice a second, and once more at its end.

    ``fault``: why the disk has not taken what was written; "" where it has.
    """

    def __init__(self, directory: Path, *, enabled: bool) -> None:
        self._directory = directory
        self._enabled = enabled
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)
        self._descriptors: dict[str, int] = {}
        self.fault = ""

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
        with suppress(OSError):  # a removed folder is reported by the monitor
            for entry in os.scandir(self._directory):
                if entry.name not in self._descriptors and entry.is_file():
                    self._descriptors[entry.name] = os.open(entry.path, os.O_WRONLY | os.O_CLOEXEC)
        for descriptor in self._descriptors.values():
            try:
                wait_for_disk(descriptor, data_only=True)
            except OSError as error:  # the kernel reports it once, and accepts further writes
                self.fault = self.fault or str(machine_failure(error))
