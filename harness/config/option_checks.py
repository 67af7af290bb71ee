"""Checks of single options, for flags and for callers from Python."""

from collections.abc import Sequence
from pathlib import Path

from harness.errors import ConfigError


def check_choice(name: str, given: str, known: Sequence[str]) -> None:
    """Refuse a word that is none of the known ones. Raises ConfigError."""
    if given not in known:
        raise ConfigError(f"{name} is {given!r}, expected {', '.join(known)}")


def optional_count(flag: str, value: int | None, most: int) -> int | None:
    """A number from 1 to ``most``, or none. Raises ConfigError."""
    if value is not None and not 1 <= value <= most:
        raise ConfigError(f"{flag} is {value}, expected 1 to {most}")
    return value


def existing_file(flag: str, path: Path, remedy: str = "") -> Path:
    """The path of a regular file, absolute. Raises ConfigError, with the remedy for one that is missing."""
    if not path.is_file():
        missing = f"no such file{f'; {remedy}' if remedy else ''}"
        raise ConfigError(f"{flag} {path}: {'not a regular file' if path.exists() else missing}")
    return path.absolute()


def optional_file(flag: str, path: Path | None, remedy: str = "") -> Path | None:
    """The same where one is given."""
    return None if path is None else existing_file(flag, path, remedy)
