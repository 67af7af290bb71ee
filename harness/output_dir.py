"""The folder of one run's logs: made before the run, never at the cost of an earlier one."""

import stat
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import ConfigError

_RESERVE = ".reserve"
_RESERVE_BYTES = 1 << 16  # several times what run.json takes


def make_room(log_dir: Path) -> Path | None:
    """Leave ``log_dir`` empty and writable; LoadGen kills its process when it cannot write.

    What an earlier run left there is moved aside, and its new path returned. A little space is kept, so that
    the disk may run full and the verdict still be written. Raises ConfigError.
    """
    try:
        aside = _move_aside(log_dir)
        log_dir.mkdir(parents=True, exist_ok=True)
        for folder in (log_dir, log_dir.parent):
            _refuse_open_folder(folder)
        with (log_dir / _RESERVE).open("xb") as reserve:
            reserve.write(b"\0" * _RESERVE_BYTES)
    except OSError as error:
        raise ConfigError(
            f"--output-dir {log_dir}: cannot write there: {error.strerror or error}; choose another folder"
        ) from error
    return aside


def release_reserve(log_dir: Path) -> None:
    """Give back the space that make_room kept, for what is written last. Raises OSError."""
    (log_dir / _RESERVE).unlink(missing_ok=True)


def _refuse_open_folder(folder: Path) -> None:
    """Whoever may write beside the logs could plant links that LoadGen, which opens by name, follows."""
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise ConfigError(
            f"--output-dir: everybody may write into {folder}; chmod o-w it, or choose another folder"
        )


def _move_aside(log_dir: Path) -> Path | None:
    if not log_dir.is_dir() or not any(log_dir.iterdir()):
        return None
    stamp = datetime.fromtimestamp(log_dir.stat().st_mtime, UTC).strftime("%Y%m%d-%H%M%S")
    aside, number = log_dir.with_name(f"{log_dir.name}.{stamp}"), 1
    while aside.exists():
        number += 1
        aside = log_dir.with_name(f"{log_dir.name}.{stamp}-{number}")
    log_dir.rename(aside)
    return aside
