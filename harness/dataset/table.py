"""Named columns of a dataset file: parquet, a pickled table or a JSON array, one class a format.

A further format is a subclass of Table, a line in ``_FORMATS`` and its mark in ``_content``.
"""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from harness.dataset import pickled_frame
from harness.errors import DatasetError, explained
from harness.files import COMPRESSED, GIT_LFS_POINTER, PARQUET_SUFFIXES, PICKLE_SUFFIXES
from harness.text import one_line

if TYPE_CHECKING:
    import pyarrow as pa

_PARQUET_MAGIC = b"PAR1"  # the first and the last four bytes of a complete file
_PICKLE_MAGIC = b"\x80"  # the PROTO opcode of protocol 2 and later
_JSON_STARTS = (b"[", b"{")
_BATCH_ROWS = 256
_HEAD_BYTES = 64
_EXPECTED = "a parquet, pickle or JSON file"


class Table(ABC):
    """A file of rows. Everything raises DatasetError where the file is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, in the file's order."""
        return self._names()

    def column(self, name: str) -> list[Any]:
        """The cells of one column as Python values, in the order of the rows. Reads no other column."""
        return list(self.cells(name))

    def cells(self, name: str) -> Iterator[Any]:
        """``column`` one cell at a time, for cells that are large as Python values."""
        yield from self._cells(self.first_column((name,)))

    def first_column(self, names: Iterable[str], remedy: str = "") -> str:
        """The first of these names that a column has, exactly one. Raises DatasetError where none has."""
        for name in names:
            if self.names.count(name) > 1:
                raise DatasetError(f"{self.path}: several columns are called {name}, expected one")
            if name in self.names:
                return name
        there = one_line(", ".join(self.names) or "none")
        raise DatasetError(f"{self.path}: no column {' or '.join(names)}; its columns are {there}{remedy}")

    @abstractmethod
    def _names(self) -> tuple[str, ...]: ...

    @abstractmethod
    def _cells(self, name: str) -> Iterable[Any]: ...


class ParquetTable(Table):
    """A parquet file."""

    @cached_property
    def schema(self) -> "pa.Schema":
        """Names and types of the columns."""
        import pyarrow.parquet as pq

        with _readable(self.path), pq.ParquetFile(self.path) as file:
            return file.schema_arrow

    @contextmanager
    def batches(self, name: str) -> Iterator[Iterator["pa.Array"]]:
        """The arrow arrays of one column, for a ``with`` block: pyarrow's errors in it become DatasetErrors.

        The batches fit the processor's cache: reading a complete column at once takes three times as long.
        """
        with self.record_batches([name], _BATCH_ROWS) as read:
            yield (batch.column(0) for batch in read)

    @contextmanager
    def record_batches(self, names: list[str], rows: int) -> "Iterator[Iterator[pa.RecordBatch]]":
        """Columns in batches of ``rows``, for a ``with`` block as ``batches``."""
        import pyarrow.parquet as pq

        with _readable(self.path), pq.ParquetFile(self.path) as file:
            yield file.iter_batches(rows, columns=names, use_threads=False)

    def _names(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def _cells(self, name: str) -> Iterator[Any]:
        with self.batches(name) as batches:
            for batch in batches:
                yield from batch.to_pylist()


class PickleTable(Table):
    """A pickled pandas DataFrame or dict of lists; nothing that the pickle names is run.

    The items of a cell that is a list are as they were stored, see ``pickled_frame.plain_items``.
    """

    @cached_property
    def _frame(self) -> pickled_frame.PickledFrame:
        return pickled_frame.load_frame(self.path)

    def _names(self) -> tuple[str, ...]:
        return self._frame.names

    def _cells(self, name: str) -> list[Any]:
        cells = self._frame.column(name)
        return cells if isinstance(cells, list) else cells.tolist()


class JsonTable(Table):
    """A JSON array of objects, each a row. Its columns are the keys of the first row.

    The cells stay in the bytes of the file until they are needed: half a gigabyte of Python integers is
    not made of 165 MB of token ids.
    """

    @cached_property
    def _rows(self) -> list[dict[str, msgspec.Raw]]:
        with _json_read(self.path):
            content = self.path.read_bytes()
            begin = len(codecs.BOM_UTF8) if content.startswith(codecs.BOM_UTF8) else 0
            rows: list[dict[str, msgspec.Raw]] = _decode_rows(memoryview(content)[begin:])
        if not rows:
            raise DatasetError(
                f"{self.path}: no rows, expected an array of objects; download or make it again"
            )
        return rows

    def _names(self) -> tuple[str, ...]:
        return tuple(self._rows[0])

    def _cells(self, name: str) -> Iterator[Any]:
        for number, row in enumerate(self._rows):
            if name not in row:
                raise DatasetError(f"{self.path}: row {number}: no {name}, which the first row has")
            with _json_read(self.path, f"row {number}: {name}: "):
                cell = _decode_cell(row[name])
            yield cell


_decode_rows = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_decode_cell = msgspec.json.Decoder().decode


class _Format(NamedTuple):
    suffixes: tuple[str, ...]
    open: Callable[[Path], Table]


_FORMATS = {
    "parquet": _Format(PARQUET_SUFFIXES, ParquetTable),
    "pickle": _Format(PICKLE_SUFFIXES, PickleTable),
    "JSON": _Format((".json",), JsonTable),
}


def open_table(path: Path) -> Table:
    """The table in a file, whose content decides on the format; a suffix that names another is refused.

    Raises DatasetError. Columns are read when they are needed.
    """
    content = _content(path)
    suffix = path.suffix.lower()
    named = next((name for name, kind in _FORMATS.items() if suffix in kind.suffixes), None)
    if content not in _FORMATS:
        raise DatasetError(f"{path}: holds {content}; download or make it again")
    if named and content != named:
        raise DatasetError(f"{path}: named like a {named} file, but holds {content}; download or rename it")
    return _FORMATS[content].open(path)


def is_binary_table(path: Path) -> bool:
    """Whether a file begins as parquet or as a pickle does."""
    try:
        with path.open("rb") as file:
            return file.read(4).startswith((_PARQUET_MAGIC, _PICKLE_MAGIC))
    except OSError:
        return False


def _content(path: Path) -> str:
    head, tail = _ends(path)
    if not head:
        raise DatasetError(f"{path}: empty file, expected {_EXPECTED}; download or make it again")
    for start, what, remedy in COMPRESSED:
        if head.startswith(start):
            raise DatasetError(f"{path} {what}; {remedy}")
    if head.startswith(GIT_LFS_POINTER):
        raise DatasetError(f"{path} is a git-lfs pointer in place of the file; run git lfs pull")
    if head.startswith(_PARQUET_MAGIC):
        if tail != _PARQUET_MAGIC:
            raise DatasetError(
                f"{path}: truncated, no {_PARQUET_MAGIC.decode()} at its end; download or make it again"
            )
        return "parquet"
    if head.startswith(_PICKLE_MAGIC):
        return "pickle"
    if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(_JSON_STARTS):
        return "JSON"
    return "neither parquet nor a pickle of protocol 2 or later nor JSON"


def _ends(path: Path) -> tuple[bytes, bytes]:
    if path.exists() and not path.is_file():
        raise DatasetError(f"{path}: not a regular file, expected {_EXPECTED}")
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            file.seek(-min(8, path.stat().st_size), 2)
            return head, file.read()[-4:]
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: no such file; datasets/download.sh fetches the official ones") from error
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except MemoryError as error:
        raise DatasetError(
            f"{path}: out of memory while reading it ({one_line(error) or 'no size named'}); free memory or "
            "lift the limit on it (ulimit -v)"
        ) from error
    except (pa.ArrowException, OSError, ArithmeticError, LookupError, ValueError) as error:
        # Of a damaged file Arrow gives an OSError without a number.
        machine = None if isinstance(error, OSError) and not error.errno else explained(error)
        if machine is not None:
            raise DatasetError(f"{path}: cannot be read: {machine}") from error
        raise DatasetError(
            f"{path}: not a readable parquet file: {one_line(error)}; download or make it again"
        ) from error


@contextmanager
def _json_read(path: Path, where: str = "") -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise DatasetError(
            f"{path}: out of memory while reading it; free memory or lift ulimit -v"
        ) from error
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(
            f"{path}: {where}not a readable JSON array of objects: {one_line(error)}; download or make it "
            "again, or make an array of JSON lines (jq -s . FILE)"
        ) from error
