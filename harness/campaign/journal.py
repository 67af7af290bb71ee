"""The campaign's own files: a lock, so that there is one at a time, and a line for each step's start and end.

The journal is a history for people. Whether a step is done follows from its results alone.
"""

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import ConfigError, refused
from harness.files import lock_file, name_process, open_lock, process_named, wait_for_disk
from harness.text import show

JOURNAL = "campaign.jsonl"
_LOCK = ".lock"
_WAIT_S = 120.0  # for the run of a campaign that was killed: it ends in order
_LOOK_S = 0.2


class Journal(msgspec.Struct, frozen=True):
    """An open campaign. ``lock`` is inherited by its runs: it holds as long as one of them lives."""

    folder: Path
    lock: int

    def write(self, **event: Any) -> None:
        """Add a line. Raises OSError."""
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), **event})
        with (self.folder / JOURNAL).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
            file.flush()
            wait_for_disk(file.fileno())


@contextmanager
def opened(folder: Path) -> Iterator[Journal]:
    """Lock the campaign's folder. Raises ConfigError where another campaign works in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_lock(folder / _LOCK)
    except OSError as error:
        remedy = "write results = FOLDER, another one, at the top of the TOML"
        raise ConfigError(f"{folder}: cannot write there: {refused(error, remedy)}") from error
    try:
        _take(lock, folder)
        name_process(lock)
        yield Journal(folder, lock)
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    deadline = time.monotonic() + _WAIT_S
    said = False
    while True:
        with suppress(BlockingIOError):
            if lock_file(lock) or running(folder) is None:
                return
        if (holder := running(folder)) is not None:
            raise ConfigError(
                f"{folder}: the campaign of {holder} works there; "
                "'./mlperf campaign status FILE' shows how far it is"
            )
        if time.monotonic() > deadline:
            raise ConfigError(
                f"{folder}: a run of an earlier campaign{_elsewhere(folder)} still works there; end it "
                f"(fuser {folder / _LOCK} names it)"
            )
        if not said:
            show(f"Waiting for the last run of an earlier campaign{_elsewhere(folder)} to end ...")
            said = True
        time.sleep(_LOOK_S)


def running(folder: Path) -> str | None:
    """``process 123``, the campaign that works in the folder; None where there is none on this machine."""
    pid = process_named(_named(folder))
    return None if pid is None else f"process {pid}"


def is_open(folder: Path) -> bool:
    """Whether a campaign works in the folder, or the last run of one that was killed; on any machine."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock_file(lock, fcntl.LOCK_SH | fcntl.LOCK_NB) and running(folder) is not None
    except OSError:
        return True
    finally:
        os.close(lock)


def _elsewhere(folder: Path) -> str:
    """The machine of the latest campaign, on a file system that several share."""
    host = _named(folder).decode(errors="replace").rpartition(" ")[2].strip()
    return "" if host in ("", platform.node()) else f" on {host}"


def _named(folder: Path) -> bytes:
    """Process, its start and machine of the latest campaign; nothing where they are not known."""
    try:
        return (folder / _LOCK).read_bytes()
    except OSError:
        return b""


def other_systems(folder: Path, system_id: str) -> list[str]:
    """The other systems for which steps were made last; earlier journals name none.

    A step that is still missing has made nothing, as where no server answered.
    """
    named, of_step = "", dict[str, str]()
    for event in history(folder):
        if event["event"] == "opened":
            named = str(event.get("system_id", ""))
        elif event["event"] == "ended" and event.get("state") != "missing":
            of_step[str(event["step"])] = named
    return sorted({*of_step.values()} - {"", system_id})


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
