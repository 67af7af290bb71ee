"""Pickled DataFrames, read without running anything that the pickle names.

The requested column is rebuilt from passive records with every size and kind checked. (numpy's and
pyarrow's own restore functions trust their input: a forged dtype or offset makes them follow wild pointers.)
"""

import math
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from harness.dataset import pickle_records as records
from harness.dataset.pickle_records import bounded_address_space
from harness.errors import DatasetError

Column = list[Any] | npt.NDArray[Any]

# An honest pickled list of tokens takes 14 times its file's size in memory, of numpy scalars about 30 times.
_MEMORY_PER_BYTE = 60
_MEMORY_BASE = 1 << 30
_MOST_COLUMNS = 10_000

# What a damaged or forged pickle can raise inside the unpickler and while its records are read.
_BROKEN = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class PickledFrame(msgspec.Struct, frozen=True):
    """A pickled table: a DataFrame, or a dict of lists."""

    path: Path
    names: tuple[str, ...]
    _sources: tuple[Any, ...]  # per column a list of cells, or (values of a block, position in it), or None

    def column(self, name: str) -> Column:
        """The cells of one column in row order: a list, or a one-dimensional array of a simple kind.

        What is inside a cell that is a list is left as it was stored; see ``plain_items``.
        """
        try:
            with bounded_address_space(_memory_bound(self.path)):
                return _column(self._sources[self.names.index(name)])
        except _BROKEN as error:
            raise DatasetError(
                f"{self.path}: column {name} of the pickle is damaged: {_reason(error)}"
            ) from error


def load_frame(path: Path) -> PickledFrame:
    """Read a pickled DataFrame (pandas 1 to 3, protocols 2 to 5). Raises DatasetError for anything else."""
    try:
        with path.open("rb") as file, bounded_address_space(_memory_bound(path)):
            names, sources = _layout(records.RecordUnpickler(file).load())
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from error
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error
    except _BROKEN as error:
        raise DatasetError(
            f"{path}: not a readable pickle: {_reason(error)}; download or make it again"
        ) from error
    return PickledFrame(path, names, sources)


def plain_items(cell: Sequence[Any]) -> list[Any]:
    """The items of a list inside a cell, numpy scalars turned into python numbers."""
    try:
        return [_scalar(item) for item in cell]
    except _BROKEN as error:
        raise DatasetError(f"a pickled numpy scalar is damaged: {_reason(error)}") from error


def _memory_bound(path: Path) -> int:
    return _MEMORY_BASE + _MEMORY_PER_BYTE * path.stat().st_size


def _layout(root: object) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    if isinstance(root, dict) and root and all(isinstance(cells, list) for cells in root.values()):
        if len(counts := {len(cells) for cells in root.values()}) > 1:
            found = f"{min(counts)} to {max(counts)} rows in its columns"
            raise DatasetError(f"the pickle has {found}, expected equally many; download or make it again")
        return tuple(map(_label, root)), tuple(root.values())
    if not isinstance(root, records.Frame):
        raise DatasetError(f"the pickle holds a {type(root).__name__}, expected a pandas DataFrame")
    if root.state is None:  # a call with a dict of columns, as harness/dataset/extended_table.py writes it
        (columns,) = root.arguments
        return _layout(columns)
    state = root.state
    blocks, axes = _blocks_and_axes(state["_mgr"] if "_mgr" in state else state["_data"])
    names = tuple(map(_label, _index_labels(axes[0])))
    sources: list[Any] = [None] * len(names)
    for values, placement in blocks:
        for position, column in enumerate(_positions(placement, len(names))):
            sources[column] = (values, position)
    return names, tuple(sources)


def _blocks_and_axes(manager: Any) -> tuple[list[tuple[Any, Any]], Sequence[Any]]:
    if _expect(manager, records.Manager).arguments:
        blocks, axes = manager.arguments
        return [_expect(block, records.Block).arguments[:2] for block in blocks], axes
    stored = manager.state[3]["0.14.1"]  # pandas before 1.3 names its layout so
    return [(block["values"], block["mgr_locs"]) for block in stored["blocks"]], stored["axes"]


def _index_labels(index: object) -> Sequence[Any]:
    description = _expect(index, records.Index).arguments[1]
    if "data" in description:
        labels: Sequence[Any] = list(_column((description["data"], 0)))
    else:
        labels = range(*(int(description[key]) for key in ("start", "stop", "step")))
    if len(labels) > _MOST_COLUMNS:
        raise ValueError(f"{len(labels)} columns")
    return labels


def _positions(placement: object, columns: int) -> Sequence[int]:
    if isinstance(placement, records.Slice):
        return range(columns)[slice(*placement.arguments)]
    return [int(position) for position in _array(placement)[1]]


def _column(source: Any) -> Column:
    if isinstance(source, list):
        return [_cell(cell) for cell in source]
    if source is None:
        raise ValueError("no block holds it")
    values, position = source
    if isinstance(values, records.StringArray):
        return [_scalar(text) for text in _strings(values)]
    shape, cells = _array(values)
    row = cells[position * shape[-1] : (position + 1) * shape[-1]]
    return [_cell(cell) for cell in row] if isinstance(row, list) else row


def _cell(cell: Any) -> Any:
    if isinstance(cell, records.Reconstructed | records.FromBuffer):
        shape, values = _array(cell)
        if len(shape) != 1:
            raise ValueError(f"a cell is an array of {len(shape)} dimensions")
        return values
    return _scalar(cell)


def _scalar(item: Any) -> Any:
    if item is records.Missing:
        return None
    if not isinstance(item, records.Scalar):
        return item
    dtype, data = item.arguments
    return np.frombuffer(_bytes(data), _dtype(dtype), count=1)[0].item()


def _array(value: object) -> tuple[tuple[int, ...], Column]:
    """Shape and cells in C order; an array of objects gives a list."""
    if isinstance(value, records.FromBuffer):
        data, dtype, shape, order = value.arguments
    else:
        _, shape, dtype, is_fortran, data = _expect(value, records.Reconstructed).state
        order = "F" if is_fortran else "C"
    if not (isinstance(shape, tuple) and all(type(size) is int for size in shape)):
        raise ValueError("the shape of an array is not a tuple of integers")
    if not isinstance(data, list):
        return shape, np.frombuffer(_bytes(data), _dtype(dtype)).reshape(shape, order=order).ravel()
    if math.prod(shape) != len(data):  # numpy lists objects in C order, whatever order the array had
        raise ValueError(f"{len(data)} objects for an array of {math.prod(shape)}")
    return shape, data


def _dtype(value: object) -> np.dtype[Any]:
    record = _expect(value, records.Dtype)
    kind = record.arguments[0]
    if not re.fullmatch(r"b1|[iu][1248]|f[248]", kind):
        raise ValueError(f"values of kind {_label(kind)}")
    order: Any = record.state[1] if record.state else "|"
    dtype: np.dtype[Any] = np.dtype(kind)
    return dtype.newbyteorder("=" if order == "|" else order)


def _bytes(value: object) -> bytes | bytearray:
    if isinstance(value, bytes | bytearray):
        return value
    arguments = _expect(value, records.Bytes).arguments
    if not arguments:
        return b""
    content, *encoding = arguments
    if isinstance(content, str) and encoding in (["latin1"], ["latin-1"]):  # how protocol 2 writes bytes
        return content.encode("latin-1")
    return _bytes(content)


def _strings(array: records.StringArray) -> list[Any]:
    if isinstance(array.state, tuple):  # python strings in an array of objects
        held = next(part for part in array.state if isinstance(part, records.Reconstructed))
        return list(_array(held)[1])
    held = array.state["_pa_array"] if "_pa_array" in array.state else array.state["_data"]
    chunks = held.arguments[0] if isinstance(held, records.ArrowChunks) else [held]
    return [text for chunk in chunks for text in _arrow_strings(chunk)]


def _arrow_strings(value: object) -> list[Any]:
    import pyarrow as pa

    kind, length, nulls, offset, buffers = _expect(value, records.ArrowArray).arguments[0][:5]
    (alias,) = _expect(kind, records.Name).arguments
    if alias not in ("string", "large_string"):
        raise ValueError(f"an arrow array of {_label(alias)}")
    if not (type(length) is type(offset) is int and length >= 0 and offset >= 0):
        raise ValueError("an arrow array that begins before its buffers")  # pyarrow would read there
    data = [None if buffer is None else pa.py_buffer(_bytes(buffer)) for buffer in buffers]
    array = pa.Array.from_buffers(pa.type_for_alias(alias), length, data, nulls, offset)
    array.validate(full=True)  # offsets inside the buffers, text in UTF-8
    return list(array.to_pylist())


def _expect(value: Any, kind: type[records.Record]) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _label(value: object) -> str:
    # Only names and numbers are shown: the text of a forged nesting could be longer than any memory.
    if isinstance(value, str):
        return value[:80] if value.isprintable() else ascii(value[:80])[1:-1]
    return str(value) if isinstance(value, int) and value.bit_length() < 64 else f"<{type(value).__name__}>"


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {_label(str(error) or 'no detail')}"
