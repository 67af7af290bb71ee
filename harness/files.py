"""Names of the files that a run leaves; files that appear complete or not at all; a user's files, decoded."""

import codecs
import errno
import fcntl
import hashlib
import os
import platform
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

from harness.errors import ConfigError, refused

ROOT = Path(__file__).resolve().parents[1]  # the checkout
CONFIG_DIR = ROOT / "configs"  # benchmark definitions, LoadGen's conf files

# What a run leaves in DIR/<scenario>/<mode>/. LoadGen's own files:
SUMMARY, DETAIL = "mlperf_log_summary.txt", "mlperf_log_detail.txt"
ACCURACY_LOG = "mlperf_log_accuracy.json"
AUDIT_CONFIG = "audit.config"  # one in the working directory is not used
# Ours:
RUN_RECORD = "run.json"
REQUESTS = "requests.parquet"
JOURNAL_DIR = "journal"  # see harness/record/journal.py
USER_CONF = "user.conf"  # the run's copy, beside its logs
ACCURACY_TEXT = "accuracy.txt"  # the evaluator's output, as a submission holds it
ACCURACY_RESULT = "accuracy_result.json"  # the evaluator's result, for report.html
REPORT = "report.html"
PROGRESS = "progress.jsonl"  # see harness/progress/progress_files.py
GRADING_PROGRESS = "grading_progress.json"  # while its log is graded: see harness/progress/progress_files.py
SERVER_METRICS = "server_metrics.parquet"  # see harness/record/server_metrics.py
# Folders of the logs in a submission, and in a verified compliance test:
PERFORMANCE, ACCURACY = Path("performance/run_1"), Path("accuracy")
COMPLIANCE_RUN = "run"  # folder of a compliance test's run, beside what is verified of it

# Tables of outputs, by the ends of their names:
PICKLE_SUFFIXES, PARQUET_SUFFIXES = (".pkl", ".pickle"), (".parquet",)

_UNPACK = "unpack it and pass the unpacked file"
# How files begin that hold another one; what they are, and the remedy.
COMPRESSED = (
    (b"\x1f\x8b", "is compressed by gzip", f"{_UNPACK} (gunzip --keep FILE)"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd", f"{_UNPACK} (unzstd FILE)"),
    (b"\xfd7zXZ\0", "is compressed by xz", f"{_UNPACK} (unxz --keep FILE)"),
    (b"BZh", "is compressed by bzip2", f"{_UNPACK} (bunzip2 --keep FILE)"),
    (b"PK\x03\x04", "is a zip archive", _UNPACK),
)
GIT_LFS_POINTER = b"version https://git-lfs"  # how a file begins that stands for one that git-lfs keeps

# Whatever the umask: what a run leaves is evidence, and others must not be able to change it.
_OTHERS_WRITE = 0o002
# Of a file system that cannot sync: fsync(2), and what some in user space answer.
_CANNOT_SYNC = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))


def cache_home() -> Path:
    """The folder of this user's caches. Raises ConfigError for one without a home, as containers may have."""
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        raise ConfigError(
            f"user {os.getuid()} has no home folder for what can be made again; "
            "export XDG_CACHE_HOME=FOLDER with one that this user may write to"
        ) from None


def user_cache() -> Path:
    """This user's folder of what this harness can make again; it need not exist. Raises ConfigError."""
    return cache_home() / "mlperf-llm-harness"


def keep_others_from_writing() -> None:
    """Take the write permission of others away from all files and folders that this process will make.

    LoadGen, the engine and every other child inherit it. Bits that the umask already clears stay cleared.
    """
    os.umask(os.umask(0o077) | _OTHERS_WRITE)


def digest_of(path: Path, kind: str) -> str:
    """The digest of a file, in hex; ``kind`` as hashlib names it. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def sha256_of(path: Path) -> str:
    """The same by SHA-256."""
    return digest_of(path, "sha256")


def wait_for_disk(descriptor: int, *, data_only: bool = False) -> None:
    """Wait until the disk has an open file, where its file system can say so. Raises OSError."""
    try:
        (os.fdatasync if data_only else os.fsync)(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def sync_to_disk(path: Path) -> None:
    """Wait until the disk has a file. Raises OSError, also for what the kernel failed to write before."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # some network file systems flush no other
    try:
        wait_for_disk(descriptor)
    finally:
        os.close(descriptor)


_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def lock_file(file: int | IO[bytes] | IO[str], how: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> bool:
    """As flock(2): raises BlockingIOError where another process has the lock; False without locks.

    A file system may have none, as Lustre without its mount option flock (ENOSYS) and NFS without a lock
    service (ENOLCK). That is no reason to refuse a run: a line says what the user has to see to.
    """
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _warn_of_no_locks(os.strerror(error.errno))
        return False
    return True


@cache
def _warn_of_no_locks(reason: str) -> None:
    print(
        f"note: this file system has no locks ({reason}): start no second command for the same folder",
        file=sys.stderr,
    )


def open_lock(path: Path) -> int:
    """Open, or make, a file that is there to be locked; a link is not followed. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)


def hold(lock: int) -> None:
    """Lock a file that is there for that alone; without locks, write into it which process has it.

    Raises BlockingIOError where another process has it: without locks, where one of this machine has.
    """
    if not require_free(lock):
        name_process(lock)


def require_free(lock: int) -> bool:
    """Raise BlockingIOError as ``hold`` does, and write nothing; False without locks."""
    locks = lock_file(lock)
    if not locks and process_named(os.pread(lock, 1024, 0)) not in (None, os.getpid()):
        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
    return locks


def name_process(lock: int) -> None:
    """Write into a lock file which process has it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {_born(os.getpid())} {platform.node()}\n".encode(), 0)


def process_named(text: bytes) -> int | None:
    """The process that the text of a lock file names, where it runs on this machine."""
    try:
        pid, born, host = text.decode().split()
        return int(pid) if host == platform.node() and _born(int(pid)) == born else None
    except (OSError, ValueError):
        return None


def _born(pid: int) -> str:
    """The start of a process, in ticks since boot: with it a process id is unique."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def not_written(path: Path, error: OSError, other: str) -> ConfigError:
    """The error of a file that cannot be written where the user wants it."""
    return ConfigError(f"{path}: cannot be written: {refused(error, f'choose another {other}')}")


@contextmanager
def explained_write(path: Path, other: str) -> Iterator[None]:
    """A block that writes a file where the user wants it. Raises ConfigError where it cannot be written."""
    try:
        yield
    except OSError as error:
        raise not_written(path, error, other) from error


def require_other(path: Path, *read: Path) -> None:
    """Raise ConfigError where a file to write is one of those that are read."""
    with suppress(OSError):  # a missing file cannot be the input under another name
        if any(path.samefile(one) for one in read if one.exists()):
            raise ConfigError(f"{path}: this file is the input; choose another name for what is written")


def not_replaced(path: Path, kind: str, flag: str) -> ConfigError:
    """The error of a file that is in the place of one to write, and is of another ``kind``."""
    return ConfigError(f"{path}: this file is no {kind}, and is not replaced; choose another {flag}")


def loses_content(path: Path) -> bool:
    """Whether ``atomic_write`` takes the place of bytes: of a link the target stays. Raises OSError."""
    return not is_device(path) and not path.is_symlink() and path.is_file() and path.stat().st_size > 0


def require_own(path: Path, begin: bytes, kind: str, flag: str) -> None:
    """Raise ConfigError where a file to replace is not empty and does not begin as those written there do."""
    with explained_write(path, flag):
        if not loses_content(path):
            return
        with path.open("rb") as file:
            is_own = file.read(len(begin)) == begin
    if not is_own:
        raise not_replaced(path, kind, flag)


_Decoded = TypeVar("_Decoded")


def read_decoded(source: str, path: Path, decode: Callable[[bytes], _Decoded], remedy: str) -> _Decoded:
    """The content of a user's file by a decoder of msgspec. Raises ConfigError with source and remedy."""
    import msgspec

    try:
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        return decode(data)
    except OSError as error:
        raise ConfigError(f"{source}: {error.strerror}; {remedy}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: {_half_character(data) or error}; {remedy}") from error
    except RecursionError as error:
        raise ConfigError(f"{source}: too deeply nested; {remedy}") from error


def _half_character(data: bytes) -> str:
    """What is wrong with JSON whose only fault is half of a surrogate pair, which msgspec calls truncated."""
    import json

    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return (
            f"\\u{ord(error.object[error.start]):04x} is half of a character (a surrogate without its pair)"
        )
    except (ValueError, RecursionError):
        pass
    return ""


def unofficial(path: Path) -> Path:
    """The name of a file in place of ``path`` whose content is no official result."""
    return path.with_name(f"{path.stem}.NOT_OFFICIAL{path.suffix}")


def is_device(path: Path) -> bool:
    """Also by a link in /dev, such as stdout, and a shell's >(command); another folder's link is replaced."""
    try:
        return path.parent == Path("/dev") or path.is_fifo() or stat.S_ISCHR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """A file that shares the bytes of another one where the file system has links. Raises OSError."""
    import shutil

    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with suppress(OSError):  # of a file system without permissions, or of another owner's
            shutil.copystat(source, target)


def move_path(source: Path, target: Path) -> None:
    """Rename a file or folder. Raises OSError, and leaves all as it was.

    A folder of a container's image is moved by its entries: overlayfs cannot rename it (EXDEV).
    """
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV or not source.is_dir():
            raise
        _move_entries(source, target)


def _move_entries(source: Path, target: Path) -> None:
    target.mkdir(source.stat().st_mode & 0o777)  # no one may read more than before
    try:
        for entry in sorted(source.iterdir()):
            move_path(entry, target / entry.name)
    except OSError:
        for entry in sorted(target.iterdir()):
            entry.rename(source / entry.name)
        target.rmdir()
        raise
    source.rmdir()


@contextmanager
def atomic_write(path: Path, suffix: str = ".partial") -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` once it is written and on disk; else nothing changes.

    Its name can be predicted, so a link of that name is removed, never followed. A device, as /dev/null, is
    written to: a file in its place would be every program's. Raises OSError, which names the file.
    """
    if is_device(path):
        with path.open("wb") as device:
            yield device
        return
    if not path.name:  # "." and "/"
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    partial = path.with_name(path.name + suffix)
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            wait_for_disk(file.fileno())
        partial.replace(path)
    except OSError as error:
        if error.errno and error.filename is None:  # a write to a full disk names no file
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)  # on a full disk it would take the space of smaller files
