"""Writes a dataset's rows with further columns: parquet, or a pickled DataFrame if the file is named so.

One batch of rows is in memory at a time, whatever the cells hold.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np

from harness.dataset.pickle_records import Missing, Scalar
from harness.dataset.pickled_frame import plain_items
from harness.dataset.table import ParquetTable, Table
from harness.errors import ConfigError, DatasetError
from harness.files import PARQUET_SUFFIXES, PICKLE_SUFFIXES, atomic_write

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 32
_NO_FIELDS = "struct<>"  # arrow's name of the type of empty dicts, which parquet lacks
_PROTOCOL = 3  # the latest without frames, so that pickles of cells can follow each other


class NewColumn(msgspec.Struct, frozen=True):
    """A column that the dataset lacks.

    ``kind`` is arrow's name of the type, ``ids`` for lists of int32. ``cell`` gives the value at a position
    among the written rows, None for none; it is called in order.
    """

    name: str
    kind: str
    cell: Callable[[int], Any]


def check_suffix(path: Path, flag: str) -> None:
    """Raise ConfigError for a name from which the format does not follow."""
    if path.suffix.lower() not in (*PICKLE_SUFFIXES, *PARQUET_SUFFIXES):
        raise ConfigError(
            f"{flag} {path}: suffix {path.suffix or 'missing'!r}, expected .parquet, or .pkl for a pandas "
            "pickle"
        )


def write_extended(
    path: Path,
    source: Table,
    rows: range,
    columns: Sequence[NewColumn],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write these rows of ``source`` with ``columns`` behind its own; columns of the same names are replaced.

    Unreadable columns are left out. The file is complete or not there. ``metadata`` goes into the schema of a
    parquet file. Raises OSError.
    """
    without = {column.name for column in columns} | unreadable_columns(source).keys()
    names = [name for name in source.names if name not in without]
    with atomic_write(path, ".part") as file:
        if path.suffix.lower() in PICKLE_SUFFIXES:
            kept = ((name, islice(source.cells(name), rows.start, rows.stop)) for name in names)
            added = ((column.name, map(column.cell, range(len(rows)))) for column in columns)
            write_frame(file, chain(kept, added))
        else:
            _write_parquet(file, _batches(source, rows, names), columns, metadata or {})


def unreadable_columns(source: Table) -> dict[str, str]:
    """The reasons why columns cannot be written, by their names. Reads every column once."""
    found = {}
    for name in dict.fromkeys(source.names):
        try:
            deque(source.cells(name), 0)
        except DatasetError as error:
            found[name] = str(error)
    return found


def _write_parquet(
    file: IO[bytes],
    batches: "Iterator[pa.RecordBatch]",
    columns: Sequence[NewColumn],
    metadata: Mapping[str, str],
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer, position = None, 0
    try:
        for batch in batches:
            places = range(position, position + batch.num_rows)
            position = places.stop
            table = pa.Table.from_batches([batch])
            for column in columns:
                cells = [column.cell(place) for place in places]
                table = table.append_column(column.name, pa.array(cells, _kind(column.kind)))
            if writer is None:
                schema = table.schema.with_metadata({**(table.schema.metadata or {}), **metadata})
                writer = pq.ParquetWriter(file, schema, compression="zstd")
            writer.write_table(table.replace_schema_metadata(None).cast(schema))
    finally:
        if writer is not None:
            writer.close()


def _kind(name: str) -> "pa.DataType":
    import pyarrow as pa

    return pa.list_(pa.int32()) if name == "ids" else pa.type_for_alias(name)


def _batches(source: Table, rows: range, names: list[str]) -> "Iterator[pa.RecordBatch]":
    """The rows of these columns."""
    if isinstance(source, ParquetTable):
        return _parquet_batches(source, rows, names)
    return _cell_batches(source, rows, names)


def _parquet_batches(source: ParquetTable, rows: range, names: list[str]) -> "Iterator[pa.RecordBatch]":
    first = 0
    with source.record_batches(names, _BATCH) as batches:
        for batch in batches:
            start, stop = max(rows.start - first, 0), min(rows.stop - first, batch.num_rows)
            first += batch.num_rows
            if start < stop:
                yield batch.slice(start, stop - start)
            if first >= rows.stop:
                return


def _cell_batches(source: Table, rows: range, names: list[str]) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    arrays = [_array([_plain(cell) for cell in islice(source.cells(name), rows.start, rows.stop)])
              for name in names]  # fmt: skip
    table = pa.Table.from_arrays(arrays, names)
    yield from table.to_batches(_BATCH)


def _array(cells: list[Any]) -> "pa.Array":
    """Arrow's type of the cells; cells of different types, or of one that parquet lacks, become text."""
    import pyarrow as pa

    try:
        if len({type(cell) for cell in cells if cell is not None}) < 2:
            array = pa.array(cells)
            if _NO_FIELDS not in str(array.type):
                return array
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        pass
    texts = [None if cell is None else str(cell).encode("utf-8", "replace") for cell in cells]
    return pa.array(texts, pa.binary()).cast(pa.string())


def _plain(cell: Any) -> Any:
    """The cell as numbers, text, lists and dicts of Python."""
    match cell:
        case None | bool() | int() | float() | str() | bytes():
            return cell
        case np.generic() | np.ndarray():
            return cell.tolist()
        case list() | tuple():
            return [_plain(item) for item in cell]
        case dict():
            return {key: _plain(item) for key, item in cell.items()}
        case Scalar():
            return plain_items([cell])[0]
    return None if cell is Missing else str(cell)


def write_frame(file: IO[bytes], columns: Iterable[tuple[str, Iterable[Any]]]) -> None:
    """Write the pickle of a DataFrame of named columns, which have equally many cells.

    It is a call of pandas.DataFrame with a dict of lists: any pandas reads it, none is needed here.
    """
    file.write(pickle.PROTO + bytes([_PROTOCOL]) + pickle.GLOBAL + b"pandas\nDataFrame\n")
    file.write(pickle.EMPTY_DICT)
    for name, cells in columns:
        file.write(_body(name) + pickle.EMPTY_LIST + pickle.MARK)
        file.writelines(_body(_plain(cell)) for cell in cells)
        file.write(pickle.APPENDS + pickle.SETITEM)
    file.write(pickle.TUPLE1 + pickle.REDUCE + pickle.STOP)


def _body(value: Any) -> bytes:
    """The pickle of a value without its header and its STOP."""
    return pickle.dumps(value, _PROTOCOL)[2:-1]
