"""Staged writing: files are written beside their destination and renamed, so no tree is half written.

The folder of kept files has the sha256 of every file that was built. What was not built here, or was changed
since, is never replaced without ``--force``.
"""

import errno
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from harness.errors import ConfigError, refused
from harness.files import atomic_write, hold, link_or_copy, move_path, open_lock, sha256_of

_BUILT = "built.sha256"  # in the folder of kept files, as sha256sum writes it
# Of a file system without permissions, as FAT and SMB mounted by another user, and some in user space.
_NO_MODES = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


class Move(msgspec.Struct, frozen=True):
    """A staged file or folder and its destination."""

    staged: Path
    final: Path


@contextmanager
def staging(output: Path) -> Iterator[Path]:
    """An empty folder on the file system of ``output``, for one build at a time."""
    folder = output.with_name(f".{output.name}.building")
    lock = output.with_name(f".{output.name}.lock")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with _locked(lock, output):
            shutil.rmtree(folder, ignore_errors=True)  # of a build that was killed
            folder.mkdir(mode=0o755)
            try:
                set_mode(folder, 0o755)
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        named = error.filename2 or error.filename  # of a copy the source stands before the destination
        ours = named is None or any(Path(named).is_relative_to(one) for one in (output, folder, lock))
        where = "" if ours else f"{named}: "
        raise ConfigError(f"--output {output}: {where}{refused(error, 'choose another folder')}") from error


@contextmanager
def _locked(lock: Path, output: Path) -> Iterator[None]:
    """Lock against other builds until the context or the process ends. Raises ConfigError."""
    descriptor = open_lock(lock)
    try:
        hold(descriptor)
        if not lock.exists() or os.fstat(descriptor).st_ino != lock.stat().st_ino:
            raise BlockingIOError  # the build that held it has just ended and removed it
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"--output {output}: another build is writing there; let it end or choose another folder"
        ) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def foreign_files(tree: Path, kept: Path, finals: Sequence[Path]) -> Iterator[str]:
    """Files of the tree that would be replaced and are not as they were built."""
    built = _read_built(kept)
    for final in finals:
        for path in sorted(final.rglob("*")) if final.is_dir() else [final]:
            if path.is_symlink() or path.is_file():
                name = path.relative_to(tree).as_posix()
                if path.is_symlink() or sha256_of(path) not in built.get(name, ()):
                    yield name


def put_in_place(moves: Sequence[Move], folder: Path, tree: Path, kept: Path) -> None:
    """Rename all, and undo it where one fails. Others may read ``tree``.

    What is built is recorded before anything is replaced: a build that is killed between two renames leaves
    nothing that the next one would not replace.
    """
    before, now = _read_built(kept), _digests(moves, tree)
    _write_built(kept, {name: before.get(name, set()) | now.get(name, set()) for name in {*before, *now}})
    done: list[tuple[Move, Path | None]] = []
    try:
        for number, move in enumerate(moves):
            done.append((move, take_place(move, folder / f"replaced-{number}")))
    except OSError:
        for move, replaced in reversed(done):
            move.final.rename(move.staged)
            if replaced is not None:
                replaced.rename(move.final)
        raise
    for move in moves:
        if move.final.is_relative_to(tree):
            above = [path for path in move.final.parents if path.is_relative_to(tree)]
            _let_read([move.final, *move.final.rglob("*"), *above])
    _write_built(kept, {name: before[name] for name in before if (tree / name).exists()} | now)


def take_place(move: Move, aside: Path) -> Path | None:
    """Rename one, or leave all as it was; what it replaces is ``aside``, None for nothing."""
    replaced = None
    if move.final.exists():
        move_path(move.final, aside)
        replaced = aside
    move.final.parent.mkdir(parents=True, exist_ok=True)
    try:
        move.staged.rename(move.final)
    except OSError:
        if replaced is not None:
            replaced.rename(move.final)
        raise
    return replaced


def _digests(moves: Sequence[Move], tree: Path) -> dict[str, set[str]]:
    """The sha256 of every staged file of the tree, by its name there."""
    found = {}
    for move in moves:
        if move.final.is_relative_to(tree):
            for path in move.staged.rglob("*") if move.staged.is_dir() else [move.staged]:
                if path.is_file():
                    final = move.final / path.relative_to(move.staged)
                    found[final.relative_to(tree).as_posix()] = {sha256_of(path)}
    return found


def _read_built(kept: Path) -> dict[str, set[str]]:
    """The sha256 that each file of the tree had when it was built; several where a build was killed."""
    found: dict[str, set[str]] = {}
    if (path := kept / _BUILT).is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            digest, _, name = line.partition("  ")
            found.setdefault(name, set()).add(digest)
    return found


def _write_built(kept: Path, digests: dict[str, set[str]]) -> None:
    lines = sorted(f"{digest}  {name}\n" for name, found in digests.items() for digest in found)
    kept.mkdir(parents=True, exist_ok=True)
    with atomic_write(kept / _BUILT) as file:
        file.write("".join(lines).encode())


def _let_read(paths: Sequence[Path]) -> None:
    """Give the permissions of published files, whatever the umask."""
    for path in paths:
        set_mode(path, 0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def set_mode(path: Path, mode: int) -> None:
    """Give a file of a tree its permissions, where the file system takes any: no rule asks for them."""
    try:
        path.chmod(mode)
    except OSError as error:
        if error.errno not in _NO_MODES:
            raise
        _note_no_modes(os.strerror(error.errno))


@cache
def _note_no_modes(reason: str) -> None:
    print(
        f"note: the file system of --output takes no permissions ({reason}): files there have its own",
        file=sys.stderr,
    )


def is_equal(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files."""
    return _content(one) == _content(other)


def _content(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def keep_file(source: Path, target: Path) -> None:
    """Link or copy a large file; create its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    link_or_copy(source, target)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file; create its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def write_file(target: Path, content: str | bytes) -> None:
    """Write text or bytes; create the folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)
