"""The output folder of a run: lock it, move earlier results aside, check that it can be written."""

import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from harness.errors import ConfigError, refused
from harness.files import hold, move_path, open_lock, require_free

WRITE, READ = "write there", "read it"
_RESERVE = ".reserve"
_ASIDE = re.compile(r"(.+)\.[0-9]{8}-[0-9]{6}(-[0-9]+)?")
_RESERVE_BYTES = 1 << 16  # several times the size of run.json with a few servers
_RECORDS = 4  # first records: the last one also has each server's figures


@contextmanager
def locked(log_dir: Path) -> Iterator[None]:
    """Lock ``log_dir`` against other runs until the context or the process ends. Raises ConfigError.

    The lock file is beside the folder, since the folder itself is moved.
    """
    with accessing(log_dir, WRITE):
        _existing_above(log_dir)
        log_dir.parent.mkdir(parents=True, exist_ok=True)
        lock = open_lock(_lock_path(log_dir))
    try:
        with accessing(log_dir, WRITE):
            _lock(lock, log_dir, hold)
        yield
    finally:
        os.close(lock)


def check_free(log_dir: Path) -> None:
    """Raise ConfigError where a run could not write ``log_dir`` now. Leaves nothing behind."""
    with accessing(log_dir, WRITE):
        folder = _existing_above(log_dir)
        with tempfile.NamedTemporaryFile(prefix=".probe-", dir=folder) as probe:
            _fill(probe, log_dir)
        if log_dir.exists() and not log_dir.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if folder == log_dir.parent:
            _refuse_open_folder(folder)
            require_unlocked(log_dir)


def _existing_above(log_dir: Path) -> Path:
    """The nearest folder above that is there. Raises FileNotFoundError for a link to one that is not."""
    folder = log_dir.parent
    while not folder.exists():
        if folder.is_symlink():
            target = folder.readlink()
            raise FileNotFoundError(errno.ENOENT, f"{folder} is a link to {target}, which is not there")
        folder = folder.parent
    return folder


def move_aside_existing(log_dir: Path) -> Path | None:
    """Prepare an empty ``log_dir``; earlier results are moved aside, and their new path is returned.

    Raises ConfigError.
    """
    with accessing(log_dir, WRITE):
        if aside := aside_of(log_dir):
            move_path(log_dir, aside)
        else:
            free_reserve(log_dir)
    prepare_dir(log_dir)
    return aside


def prepare_dir(log_dir: Path) -> None:
    """Make ``log_dir`` and check that it can be written: LoadGen kills its process when it cannot.

    Reserves some space, so that the verdict can be written to a full disk. Raises ConfigError, also where
    there is no room for it.
    """
    with accessing(log_dir, WRITE):
        log_dir.mkdir(parents=True, exist_ok=True)
        for folder in (log_dir, log_dir.parent):
            _refuse_open_folder(folder)
        try:
            with (log_dir / _RESERVE).open("xb") as reserve:
                _fill(reserve, log_dir)
        except (OSError, ConfigError):
            free_reserve(log_dir)
            raise


def _fill(file: IO[bytes], log_dir: Path) -> None:
    """Write the reserve's bytes. Raises ConfigError where they can be read only once the file is closed.

    What a killed run leaves of its journal is what can be read while that is open.
    """
    file.write(b"\0" * _RESERVE_BYTES)
    file.flush()
    try:
        shown = len(Path(file.name).read_bytes())
    except OSError:
        shown = 0
    if shown < _RESERVE_BYTES:
        raise ConfigError(
            f"--results {log_dir}: a file there shows {shown} of {_RESERVE_BYTES} bytes until it is closed, "
            "and a killed run would leave none; choose another folder (rclone mount: --vfs-cache-mode writes)"
        )


def reserve_for(log_dir: Path, first_bytes: int) -> None:
    """Reserve more where the first record of a run is large, as with many servers. Raises OSError."""
    if (more := _RECORDS * first_bytes - _RESERVE_BYTES) > 0:
        with (log_dir / _RESERVE).open("ab") as reserve:
            reserve.write(bytes(more))


def free_reserve(log_dir: Path) -> None:
    """Free the space that prepare_dir reserved, for the files written last. Raises OSError."""
    (log_dir / _RESERVE).unlink(missing_ok=True)


@contextmanager
def accessing(log_dir: Path, to: str) -> Iterator[None]:
    """Turn an error of the file system into a ConfigError that names the flag and what cannot be done."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"--results {log_dir}: cannot {to}: {refused(error, 'choose another folder')}"
        ) from error


def require_unlocked(log_dir: Path) -> None:
    """Raise ConfigError where a run is writing ``log_dir`` now. Leaves nothing behind."""
    with accessing(log_dir, WRITE), suppress(FileNotFoundError):
        lock = os.open(_lock_path(log_dir), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _lock(lock, log_dir, require_free)
        finally:
            os.close(lock)


def _lock_path(log_dir: Path) -> Path:
    return log_dir.with_name(f".{log_dir.name}.lock")


def _lock(descriptor: int, log_dir: Path, how: Callable[[int], object]) -> None:
    try:
        how(descriptor)
    except BlockingIOError:
        raise ConfigError(
            f"--results {log_dir}: another run is writing there; let it end or choose another folder"
        ) from None


def _refuse_open_folder(folder: Path) -> None:
    """LoadGen opens its files by name: others who may write into the folder could plant links there."""
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise ConfigError(
            f"--results: everybody may write into {folder}; chmod o-w it, or choose another folder"
        )


def aside_of(log_dir: Path) -> Path | None:
    """Where the content of ``log_dir`` would be moved; None where it has none. Raises ConfigError."""
    with accessing(log_dir, READ):
        if not log_dir.is_dir() or all(entry.name == _RESERVE for entry in log_dir.iterdir()):
            return None  # a run that was killed before its first record has only reserved its space
        return aside_name(log_dir)


def written_at(path: Path) -> datetime:
    """The time of the last change of a file or folder. Raises OSError."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def aside_name(path: Path) -> Path:
    """A free name beside a file or folder, with the time of its last change. Raises OSError."""
    stamp = f"{written_at(path):%Y%m%d-%H%M%S}"
    aside, number = path.with_name(f"{path.name}.{stamp}"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.{stamp}-{number}")
    return aside


def is_aside(path: Path) -> bool:
    """Whether it has the name of ``aside_name``, beside what replaced it."""
    found = _ASIDE.fullmatch(path.name)
    return found is not None and path.with_name(found[1]).exists()
