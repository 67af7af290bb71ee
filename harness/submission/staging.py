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
    """A staged file or folder and its destination. ``keep``: an existing one may stay."""

    staged: Path
    final: Path
    keep: bool = False


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


def put_in_place(moves: Sequence[Move], folder: Path, force: bool) -> None:
    """Rename all; replaced files go into ``folder``, the staging folder."""
    for number, move in enumerate(moves):
        if move.final.exists():
            if move.keep and not force:
                continue
            move.final.rename(folder / f"replaced-{number}")
        move.final.parent.mkdir(parents=True, exist_ok=True)
        move.staged.rename(move.final)


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
