"""numpy arrays: their types by their elements, and what numpy does at a price."""

from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""a number of a file that goes into an array: msgspec reads integers of any length as int"""

MOST_DIGITS = 18  # of a number in a text: as many fit 64 bits, and int() refuses more than 4300

_Number = TypeVar("_Number", bound=np.generic)


def kept(rows: npt.NDArray[_Number], wanted: npt.NDArray[np.bool_]) -> npt.NDArray[_Number]:
    """The wanted rows, without a copy where that is all: those of a long run are 100 MB and more."""
    return rows if wanted.all() else rows[wanted]


def distinct(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Each value once, sorted. np.unique alone would import numpy.ma, as does np.median: 15 ms of a start."""
    found: npt.NDArray[_Number] = np.unique(values, return_counts=True)[0]
    return found
