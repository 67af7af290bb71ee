"""The content of a pickle as passive records: an unpickler that calls and imports nothing.

Unpickling calls whatever the file asks for. Here every name of an exact list is answered by a class that only
keeps what it was given, and every other name by an error.
"""

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import DatasetError
from harness.machine import text_of


class Record:
    """Stands in for a class or function that a pickle names: keeps what it was given and does nothing.

    Every record defines __setstate__, so that no pickle can set attributes of a record or of its class.
    """

    __slots__ = ("arguments", "state")

    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any) -> "Record":
        """Keep the arguments that the pickle would have called with."""
        record = object.__new__(cls)
        record.arguments = arguments
        record.state = None
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Frame(Record):
    """pandas.DataFrame; its state holds the block manager."""

    __slots__ = ()


class Manager(Record):
    """pandas' BlockManager: blocks and axes."""

    __slots__ = ()


class Block(Record):
    """Arguments: values, placement, dimensions."""

    __slots__ = ()


class Index(Record):
    """Arguments: the kind of index and a dict that describes it."""

    __slots__ = ()


class Reconstructed(Record):
    """A numpy array as protocols 2 to 4 write it; state: version, shape, dtype, Fortran order, data."""

    __slots__ = ()


class FromBuffer(Record):
    """A numpy array as protocol 5 writes it; arguments: buffer, dtype, shape, order."""

    __slots__ = ()


class Scalar(Record):
    """A numpy scalar; arguments: dtype, bytes."""

    __slots__ = ()


class Dtype(Record):
    """A numpy dtype; argument: its kind; state: version, byte order, ..."""

    __slots__ = ()


class Slice(Record):
    """A builtin slice."""

    __slots__ = ()


class Bytes(Record):
    """A builtin bytes or bytearray, bytes written as text, or an arrow buffer around bytes."""

    __slots__ = ()


class StringArray(Record):
    """pandas' array of strings, kept by python or by arrow."""

    __slots__ = ()


class ArrowArray(Record):
    """A pyarrow array; argument: type, length, nulls, offset, buffers, ..."""

    __slots__ = ()


class ArrowChunks(Record):
    """A pyarrow chunked array; arguments: chunks, type."""

    __slots__ = ()


class Name(Record):
    """A class that is only mentioned: which kind of index, array or string type."""

    __slots__ = ()


class Missing(Record):
    """pandas.NA; it is mentioned, never made."""

    __slots__ = ()


_OLD_INDEX_KINDS = ("Int64Index", "UInt64Index", "Float64Index")  # before pandas 2
_NUMPY_CORES = ("numpy.core", "numpy._core")  # numpy 1, numpy 2
_BUILTINS = ("builtins", "__builtin__")  # protocols 3 and later, protocol 2

# The names that DataFrames of pandas 1, 2 and 3 consist of, in protocols 2 to 5.
_ALLOWED: dict[tuple[str, str], type[Record]] = {
    ("pandas", "DataFrame"): Frame,
    ("pandas.core.frame", "DataFrame"): Frame,
    ("pandas.core.internals.managers", "BlockManager"): Manager,
    ("pandas._libs.internals", "_unpickle_block"): Block,
    ("pandas.core.indexes.base", "_new_Index"): Index,
    ("pandas.core.indexes.base", "Index"): Name,
    ("pandas.core.indexes.range", "RangeIndex"): Name,
    **{("pandas.core.indexes.numeric", kind): Name for kind in _OLD_INDEX_KINDS},
    ("pandas", "Index"): Name,
    ("pandas", "RangeIndex"): Name,
    ("pandas", "NA"): Missing,
    ("pandas._libs.missing", "NA"): Missing,
    ("pandas", "StringDtype"): Name,
    ("pandas.core.arrays.string_", "StringDtype"): Name,
    ("pandas.core.arrays.string_", "StringArray"): StringArray,
    ("pandas.arrays", "StringArray"): StringArray,
    ("pandas.core.arrays.string_arrow", "ArrowStringArray"): StringArray,
    ("pandas.arrays", "ArrowStringArray"): StringArray,
    ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"): StringArray,
    **{(f"{core}.multiarray", "_reconstruct"): Reconstructed for core in _NUMPY_CORES},
    **{(f"{core}.multiarray", "scalar"): Scalar for core in _NUMPY_CORES},
    **{(f"{core}.numeric", "_frombuffer"): FromBuffer for core in _NUMPY_CORES},
    ("numpy", "ndarray"): Name,
    ("numpy", "dtype"): Dtype,
    ("pyarrow.lib", "_restore_array"): ArrowArray,
    ("pyarrow.lib", "chunked_array"): ArrowChunks,
    ("pyarrow.lib", "type_for_alias"): Name,
    ("pyarrow.lib", "py_buffer"): Bytes,
    ("_codecs", "encode"): Bytes,
    **{(builtins, "slice"): Slice for builtins in _BUILTINS},
    **{(builtins, "bytes"): Bytes for builtins in _BUILTINS},
    **{(builtins, "bytearray"): Bytes for builtins in _BUILTINS},
}


class RecordUnpickler(pickle.Unpickler):
    """Gives records for every object that is not a plain number, text, list, tuple, dict or set."""

    def find_class(self, module: str, name: str) -> type[Record]:
        """The record that replaces a name, whatever module the pickle gives for it."""
        record = _ALLOWED.get((module, name))
        if record is None:
            wanted = f"{module}.{name}"[:80]
            raise DatasetError(
                f"the pickle asks for {wanted!a}, which a table of tokens does not need; "
                "nothing was run; save the table as parquet if you trust its source"
            )
        return record


_STATM = Path("/proc/self/statm")


@contextmanager
def bounded_address_space(extra: int) -> Iterator[None]:
    """Let the process grow by ``extra`` bytes at the most; beyond that allocations raise MemoryError.

    The limit applies to the complete process, so use it only while nothing else runs. No limit without /proc.
    """
    if not (sizes := text_of(_STATM).split()):
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = int(sizes[0]) * os.sysconf("SC_PAGE_SIZE") + extra
    bounds = [limit for limit in (soft, hard, wanted) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
