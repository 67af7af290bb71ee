"""Arrow arrays from numpy's arrays and from texts, and back, through their buffers.

Some of pyarrow's own conversions (``pa.array``, ``pa.scalar``, ``to_numpy``) import pandas wherever it is
installed, others (``flatten``, ``is_null``, ``cast``) ``pyarrow.compute``: 0.3 s of CPU at a program's start.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.errors import DatasetError

# Of the times in a run's tables, for who reads their schema.
CLOCK = "times are CLOCK_MONOTONIC; run.json's clock field ties them to UTC"
_Mask = npt.NDArray[np.bool_]
_MOST_BYTES = np.iinfo(np.int32).max  # the texts of one string array hold at most


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what a damaged table of a run raises into a DatasetError; FileNotFoundError stays what it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DatasetError(f"{path} is no {path.name} of a run, or damaged: {reason}") from None


def arrow_numbers(values: npt.NDArray[Any], missing: _Mask | None = None) -> pa.Array:
    """An array of numbers or booleans, null where ``missing``."""
    data = _bits(values) if values.dtype == np.bool_ else np.ascontiguousarray(values)
    buffers = [None if missing is None else _validity(missing), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def arrow_texts(texts: Sequence[str | None]) -> pa.Array:
    """An array of strings, null for None. Raises UnicodeEncodeError."""
    missing = np.fromiter((text is None for text in texts), np.bool_, len(texts))
    encoded = [text.encode() for text in texts if text is not None]
    offsets = np.zeros(len(texts) + 1, np.int64)
    offsets[1:][~missing] = [len(text) for text in encoded]
    np.cumsum(offsets, out=offsets)
    if offsets[-1] > _MOST_BYTES:
        return pa.array(texts, pa.string())  # pyarrow splits it into several chunks
    buffers = [_validity(missing), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def arrow_values(values: Sequence[Any]) -> pa.Array:
    """An array of Python's texts, numbers or booleans, null for None; floats where all are None."""
    known = [value for value in values if value is not None]
    if known and isinstance(known[0], str):
        return arrow_texts(values)
    nothing = type(known[0])() if known else 0.0
    filled = np.array([nothing if value is None else value for value in values])
    return arrow_numbers(filled, np.array([value is None for value in values]))


def numpy_numbers(array: pa.Array, null: float | None = None) -> npt.NDArray[Any]:
    """The numbers or booleans of an array, read only, with ``null`` in the place of nulls.

    Raises ValueError for nulls without ``null``, and for an array of something else.
    """
    if len(array) == 0:
        return np.empty(0, array.type.to_pandas_dtype())
    is_flag, is_float = pa.types.is_boolean(array.type), pa.types.is_floating(array.type)
    if not (is_flag or is_float or pa.types.is_integer(array.type)):
        raise ValueError(f"{array.type}, expected numbers")
    validity, data = array.buffers()
    values: npt.NDArray[Any]
    if is_flag:
        values = _flags(data, array)
    else:
        plain = pa.Array.from_buffers(array.type, len(array), [None, data], offset=array.offset)
        values = np.from_dlpack(plain)
    if array.null_count == 0:
        return values
    if null is None:
        raise ValueError(f"{array.null_count} nulls, expected none")
    return np.where(_flags(validity, array), values, np.asarray(null, values.dtype))


def _validity(missing: _Mask) -> pa.Buffer | None:
    return pa.py_buffer(_bits(~missing)) if missing.any() else None


def _bits(flags: _Mask) -> npt.NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")


def _flags(bits: pa.Buffer, array: pa.Array) -> _Mask:
    """The bits of an array's rows."""
    first, last = array.offset // 8, -(-(array.offset + len(array)) // 8)
    flags = np.unpackbits(np.frombuffer(bits, np.uint8)[first:last], bitorder="little").view(np.bool_)
    return flags[array.offset % 8 :][: len(array)]
