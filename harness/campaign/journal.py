"""The campaign's own files: a lock, so that there is one at a time, and a line for each step's start and end.

The journal is a history for people. Whether a step is done follows from its results alone.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.record.output_dir import writing

JOURNAL = "campaign.jsonl"
_LOCK = ".lock"
_WAIT_S = 120.0  # for the run of a campaign that was killed: it ends in order
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Journal:
    """An open campaign. ``lock`` is inherited by its runs: it holds as long as one of them lives."""

    folder: Path
    lock: int

    def write(self, **event: Any) -> None:
        """Add a line. Raises OSError."""
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), **event})
        with (self.folder / JOURNAL).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def opened(folder: Path) -> Iterator[Journal]:
    """Lock the campaign's folder. Raises ConfigError where another campaign works in it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        _take(lock, folder)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()} {_born(os.getpid())}\n".encode(), 0)
        yield Journal(folder, lock)
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    deadline = time.monotonic() + _WAIT_S
    said = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if (holder := running(folder)) is not None:
                raise ConfigError(
                    f"{folder}: the campaign of process {holder} works there; "
                    "'./mlperf campaign status FILE' shows how far it is"
                ) from None
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"{folder}: a run of an earlier campaign still works there; end it "
                    f"(fuser {folder / _LOCK} names it)"
                ) from None
        if not said:
            print("The campaign before was killed; waiting for its last run to end ...", flush=True)
            said = True
        time.sleep(_LOOK_S)


def running(folder: Path) -> int | None:
    """The process of the campaign that works in the folder; None where there is none."""
    try:
        pid, born = (folder / _LOCK).read_text().split()
        return int(pid) if _born(int(pid)) == born else None
    except (OSError, ValueError):
        return None


def _born(pid: int) -> str:
    """The start of a process, in ticks since boot: with it a process id is unique."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def history(folder: Path) -> list[dict[str, Any]]:
    """All events, the oldest first; a line that is damaged is left out."""
    try:
        lines = (folder / JOURNAL).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    events = []
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and {"event", "step"} <= event.keys():
            events.append(event)
    return events
