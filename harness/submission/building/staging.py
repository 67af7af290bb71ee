"""Staged writing: files are written beside their destination and renamed, so no tree is half written."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Move:
    """A staged file or folder and its destination."""

    staged: Path
    final: Path
    keep: bool = False
    """an existing one may stay"""


@contextmanager
def staging(output: Path) -> Iterator[Path]:
    """A temporary folder on the file system of ``output``."""
    folder: Path | None = None
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
        folder.chmod(0o755)
        yield folder
    except OSError as error:
        where = error.filename or output
        raise ConfigError(
            f"--output {output}: {where}: {error.strerror or error}; free space or choose another folder"
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def refuse_existing(finals: Sequence[Path], force: bool) -> None:
    """Raise ConfigError that names the paths that would be overwritten."""
    there = [str(path) for path in finals if path.exists()]
    if there and not force:
        raise ConfigError(
            f"{', '.join(there)}: exists; pass --force to replace it, or choose another --output"
        )


def put_in_place(moves: Sequence[Move], folder: Path, force: bool, tree: Path) -> None:
    """Rename all; replaced files go into ``folder``, the staging folder. Others may read ``tree``."""
    for number, move in enumerate(moves):
        if move.final.exists():
            if move.keep and not force:
                continue
            move.final.rename(folder / f"replaced-{number}")
        move.final.parent.mkdir(parents=True, exist_ok=True)
        move.staged.rename(move.final)
        if move.final.is_relative_to(tree):
            above = [path for path in move.final.parents if path.is_relative_to(tree)]
            _let_read([move.final, *move.final.rglob("*"), *above])


def _let_read(paths: Sequence[Path]) -> None:
    """Give the permissions of published files, whatever the umask."""
    for path in paths:
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def is_equal(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files."""
    return _content(one) == _content(other)


def _content(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def keep_file(source: Path, target: Path) -> None:
    """Hard-link a large file, or copy it where the file system has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file; create its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def write_file(target: Path, content: str | bytes) -> None:
    """Write text or bytes; create the folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)
