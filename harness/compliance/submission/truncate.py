"""Accuracy logs as they are submitted: the first and last 4 KiB, and the sha256 of the whole."""

import hashlib
from pathlib import Path

GAP = b"\n\n...\n\n"


def digest(path: Path) -> str:
    """sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def truncated(path: Path, shown_bytes: int) -> bytes:
    """What is submitted of a log; a log that is shorter than ``shown_bytes`` stays whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size < shown_bytes:
            return file.read()
        head = file.read(shown_bytes)
        file.seek(size - shown_bytes)
        return head + GAP + file.read(shown_bytes)


def ends_match(submitted: Path, full: Path, shown_bytes: int) -> bool:
    """Whether ``submitted`` is what ``truncated`` makes of ``full``."""
    return submitted.read_bytes() == truncated(full, shown_bytes)


def is_whole(path: Path) -> bool:
    """Whether LoadGen's JSON array has its end, and nothing was cut out of it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 64))
        if not file.read().rstrip().endswith(b"]"):
            return False
        # A log that was truncated for a submission has the gap right behind its first 4 KiB.
        file.seek(0)
        return GAP not in file.read(64 << 10)
