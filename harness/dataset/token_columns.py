"""The token column of a table as flat arrays; of a parquet file without a Python object per token."""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from harness.dataset import pickled_frame
from harness.dataset.table import ParquetTable, Table
from harness.errors import DatasetError
from harness.text import one_line

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("input_tokens", "tok_input")  # today's name first, then the one of older files
_TEXT = "text_input"  # some official files have it beside the token ids
_MOST_TOKENS = 1 << 30  # the largest official file has about 6e7
_INT32 = np.iinfo(np.int32)


class TokenRows(msgspec.Struct, frozen=True, eq=False):
    """Row i is ids[offsets[i]:offsets[i + 1]]: ids (total,) int32, offsets (n + 1,) int64."""

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


def token_rows(table: Table) -> TokenRows:
    """The token column of a table; no other column is read. Raises DatasetError."""
    if _TEXT in table.names and not set(COLUMNS) & set(table.names):
        raise DatasetError(
            f"{table.path}: {_TEXT}, but neither {' nor '.join(COLUMNS)}; the prompts of a benchmark are "
            "the token ids in its official file (a text can be tokenized in several ways): "
            "datasets/download.sh fetches it"
        )
    name = table.first_column(COLUMNS)
    if isinstance(table, ParquetTable):
        _check_type(table.path, name, table.schema.field(name).type)
        with table.batches(name) as batches:
            return _from_batches(table.path, batches)
    # One cell after the other: as Python integers all ids of a JSON file take ten times the memory.
    rows = [_cell_ids(table.path, row, cell) for row, cell in enumerate(table.cells(name))]
    offsets = _offsets(table.path, np.fromiter(map(len, rows), np.int64, len(rows)))
    return TokenRows(np.concatenate([np.empty(0, np.int32), *rows]), offsets)


def _check_type(path: Path, name: str, kind: "pa.DataType") -> None:
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    item = kind.value_type if is_list else kind  # null: where there are no rows, or only empty ones
    if not (pa.types.is_null(item) or (is_list and pa.types.is_integer(item))):
        raise DatasetError(
            f"{path}: column {name} holds {one_line(kind)}, expected lists of integer token ids"
        )


def _check_total(path: Path, total: int) -> None:
    if total > _MOST_TOKENS:
        raise DatasetError(f"{path}: {total} tokens, expected at most {_MOST_TOKENS}; is it the right file?")


def _from_batches(path: Path, batches: Iterable["pa.Array"]) -> TokenRows:
    # The metadata is not asked for the number of tokens: pyarrow aborts the process where that part of the
    # file is damaged.
    ids = [np.empty(0, np.int32)]
    lengths = [np.empty(0, np.int64)]
    row = total = 0
    for column in batches:
        bounds = _list_bounds(path, row, column)
        lengths.append(bounds[1:] - bounds[:-1])
        ids.append(_flat_ids(path, row, column, bounds).astype(np.int32))
        row, total = row + len(column), total + len(ids[-1])
        _check_total(path, total)
    return TokenRows(np.concatenate(ids), _offsets(path, np.concatenate(lengths)))


def _list_bounds(path: Path, first_row: int, chunk: "pa.Array") -> npt.NDArray[np.int64]:
    """Where the lists begin and end in ``chunk.values``, one number more than rows."""
    import pyarrow as pa

    from harness.arrow import numpy_numbers

    if chunk.null_count:
        row = first_row + chunk.is_null().to_numpy(zero_copy_only=False).argmax()
        raise DatasetError(f"{path}: row {row}: null, expected a list of token ids")
    if pa.types.is_fixed_size_list(chunk.type):
        size: int = chunk.type.list_size
        return np.arange(chunk.offset, chunk.offset + len(chunk) + 1, dtype=np.int64) * size
    bounds: npt.NDArray[np.int64] = numpy_numbers(chunk.offsets).astype(np.int64)
    return bounds


def _flat_ids(
    path: Path, first_row: int, chunk: "pa.Array", bounds: npt.NDArray[np.int64]
) -> npt.NDArray[np.integer]:
    from harness.arrow import numpy_numbers

    values = chunk.values.slice(bounds[0], bounds[-1] - bounds[0])
    if values.null_count:
        position = int(values.is_null().to_numpy(zero_copy_only=False).argmax())
        row, column = locate(bounds, position)
        raise DatasetError(f"{path}: row {first_row + row}: token at position {column} is null")
    numbers: npt.NDArray[np.integer] = numpy_numbers(values)
    if len(numbers) and not (_INT32.min <= numbers.min() and numbers.max() <= _INT32.max):
        position = int(np.argmax((numbers < _INT32.min) | (numbers > _INT32.max)))
        _refuse_huge(path, first_row + locate(bounds, position)[0], int(numbers[position]))
    return numbers


def locate(bounds: npt.NDArray[np.int64], position: int) -> tuple[int, int]:
    """The row that holds one of the tokens between ``bounds``, and the token's place in it."""
    begins = bounds - bounds[0]
    row = int(np.searchsorted(begins, position, side="right")) - 1
    return row, position - int(begins[row])


def _offsets(path: Path, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    _check_total(path, int(offsets[-1]))
    return offsets


def _cell_ids(path: Path, row: int, cell: object) -> npt.NDArray[np.int32]:
    if not isinstance(cell, list | tuple | np.ndarray):
        raise DatasetError(f"{path}: row {row}: {_kind(cell)}, expected a list of token ids")
    if isinstance(cell, np.ndarray):
        if cell.dtype.kind not in "iu":
            raise DatasetError(f"{path}: row {row}: {cell.dtype} values, expected integer token ids")
        numbers = cell
    else:
        numbers = _from_integers(path, row, cell)
    if len(numbers) and not (_INT32.min <= numbers.min() and numbers.max() <= _INT32.max):
        _refuse_huge(path, row, max(numbers.tolist(), key=abs))
    return numbers.astype(np.int32, copy=False)


def _from_integers(path: Path, row: int, cell: Sequence[Any]) -> npt.NDArray[np.int32]:
    if set(map(type, cell)) - {int}:
        cell = pickled_frame.plain_items(cell)
        _check_integers(path, row, cell)
    try:
        return np.asarray(array("i", cell), np.int32)
    except OverflowError:
        _refuse_huge(path, row, max(cell, key=abs))


def _check_integers(path: Path, row: int, cell: Sequence[Any]) -> None:
    for position, token in enumerate(cell):
        if type(token) is not int:
            found = _kind(token)
            raise DatasetError(
                f"{path}: row {row}: {found} at position {position}, expected an integer token id"
            )


def _refuse_huge(path: Path, row: int, token: int) -> NoReturn:
    shown = f"token {token}" if token.bit_length() <= 64 else f"an integer of {token.bit_length()} bits"
    raise DatasetError(f"{path}: row {row}: {shown}, expected a token id, which fits 32 bits")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    shown = f" {value!r}" if isinstance(value, float | bool) else ""
    return f"{type(value).__name__}{shown}"
