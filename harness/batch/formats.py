"""The files of a batch: the number of prompts and the prompts, lines of text, lines of token ids.

Lines end with LF or CR LF. Text is UTF-8. A file of ids holds one answer in each line, every id followed by a
space, and ends with one empty line.
"""

import codecs
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from harness.errors import DatasetError
from harness.files import atomic_write
from harness.text import counted, printable

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # the marks that such a file begins with
_WORD = re.compile(rb"[^ \t\r\v\f]+")
_MOST_DIGITS = 10  # an id with more digits is beyond every vocabulary
_SHOWN = 40  # characters that a message quotes

Ids = npt.NDArray[np.int64]


class Prompts(msgspec.Struct, frozen=True):
    """The prompts of a file in its order, and warnings about the file. Prompt i is in line i + 2."""

    path: Path
    texts: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def read_prompts(path: Path) -> Prompts:
    """Read a file of prompts: their number in the first line, then one in each line. Raises DatasetError."""
    raw = _read(path).removeprefix(codecs.BOM_UTF8)
    if raw.startswith(_UTF_16):
        raise DatasetError(f"{path}: UTF-16, expected UTF-8; convert the file with iconv -f UTF-16 -t UTF-8")
    if not raw:
        raise DatasetError(f"{path}: empty, expected the number of prompts in its first line")
    first, *lines = raw.removesuffix(b"\n").split(b"\n")
    count = _count(path, first)
    while len(lines) > count and not lines[-1].strip():
        lines.pop()
    if len(lines) != count:
        raise DatasetError(
            f"{path}: {counted(len(lines), 'line')} after the first, which has the number {count}; correct "
            "the number, or the lines: one prompt each"
        )
    returns = sum(line.endswith(b"\r") for line in lines)
    texts = tuple(_prompt(path, number, line) for number, line in enumerate(lines, start=2))
    warning = f"{path}: CR LF at the end of {counted(returns, 'line')}; the CR is not part of the prompts"
    return Prompts(path, texts, (warning,) if returns else ())


def read_texts(path: Path) -> Iterator[str]:
    """Every line of a text file, empty ones too, without its end. Raises DatasetError."""
    for number, line in _lines(path):
        yield _text(path, number, line)


def read_ids(path: Path, vocabulary_size: int) -> Iterator[Ids]:
    """The ids of every line, shape (n,); empty lines give none. Raises DatasetError with line and column."""
    for number, line in _lines(path):
        yield _ids(path, number, line, vocabulary_size)


def cut_off(path: Path) -> str | None:
    """A warning about a file of ids that ends within an id, as a truncated one does."""
    if not path.is_file() or not path.stat().st_size:
        return None
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if not file.read().isdigit():
            return None
    return f"{path}: nothing follows its last id: if the file was cut off, that id may be another one"


def id_line(ids: Iterable[int]) -> bytes:
    """An answer's line: every id followed by a space."""
    return b"".join(b"%d " % token for token in ids) + b"\n"


def write_answers(path: Path, answers: Iterable[Iterable[int]]) -> None:
    """Write the answers and the empty line at the end; the file is complete or not there. Raises OSError."""
    with atomic_write(path) as file:
        for answer in answers:
            file.write(id_line(answer))
        file.write(b"\n")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DatasetError:
    return DatasetError(f"{path}: cannot be read: {error.strerror or error}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
    except OSError as error:
        raise _unreadable(path, error) from error


def _count(path: Path, line: bytes) -> int:
    word = line.strip()
    if not re.fullmatch(rb"[0-9]{1,9}", word) or int(word) == 0:
        shown = printable(line.decode(errors="replace"), _SHOWN)
        raise DatasetError(
            f"{path}: its first line is '{shown}', expected the number of prompts, at least 1; put it in "
            "front of the prompts"
        )
    return int(word)


def _prompt(path: Path, number: int, line: bytes) -> str:
    line = line.removesuffix(b"\r")
    if not line:
        raise DatasetError(
            f"{path}: line {number} is empty, expected a prompt; remove the line, and correct the number in "
            "the first line"
        )
    if (position := line.find(b"\0")) >= 0:
        column = len(line[:position].decode(errors="replace")) + 1
        raise DatasetError(f"{path}: line {number} holds a NUL at column {column}, expected text")
    return _text(path, number, line)


def _text(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path}: line {number}, byte {error.start + 1}: not UTF-8; convert the file with iconv"
        ) from None


def _ids(path: Path, number: int, line: bytes, vocabulary_size: int) -> Ids:
    try:
        ids = np.array([int(word) for word in line.split()], dtype=np.int64)
        plain = line.translate(None, b"0123456789 \t\r\v\f") == b""
    except (ValueError, OverflowError):
        plain = False
    if not plain or (len(ids) and int(ids.max()) >= vocabulary_size):
        raise _wrong_id(path, number, line, vocabulary_size)
    return ids


def _wrong_id(path: Path, number: int, line: bytes, vocabulary_size: int) -> DatasetError:
    for match in _WORD.finditer(line):
        word, digits = match[0], match[0].isdigit()
        if digits and len(word) <= _MOST_DIGITS and int(word) < vocabulary_size:
            continue
        shown = printable(word.decode(errors="replace"), _SHOWN)
        what = f"{shown} is outside the vocabulary" if digits else f"'{shown}' is no token id"
        where = f"{path}: line {number}, column {match.start() + 1}"
        return DatasetError(f"{where}: {what}, expected 0 to {vocabulary_size - 1}")
    raise AssertionError("every id is right")
