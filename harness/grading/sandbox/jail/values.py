"""Return values as JSON that keeps their types, so that they can be compared where no model code runs.

A value's own methods (``__eq__``, ``__iter__``, ``__repr__``) are never called: the base class's
own content is encoded, and whatever cannot equal a JSON value becomes opaque.
"""

import json
from collections import UserDict, UserList, UserString
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

_BIG = 1 << 4000  # int -> str is limited in length; hexadecimal is not


Untyped: TypeAlias = Any  # what model code returned, and JSON


class Opaque:
    """A value that equals nothing a test can expect."""


def encode(value: object) -> bytes:
    """JSON of any Python value; cyclic or too deep ones are opaque."""
    try:
        return json.dumps(_tagged(value)).encode()
    except (RecursionError, ValueError, OverflowError):
        return json.dumps({"opaque": None}).encode()


def decode(text: bytes) -> object:
    """The value that ``encode`` was given, rebuilt from builtin types; Opaque for what is not sound."""
    try:
        return _untagged(json.loads(text))
    except (RecursionError, ValueError, TypeError, LookupError, ArithmeticError):
        return Opaque()


def _tagged(value: Untyped) -> Untyped:
    if value is None or value is True or value is False:
        return value
    if type(value).__module__ == "numpy" and getattr(value, "dtype", None) is not None:
        return _tagged_numpy(value)
    for kind, encoder in _ENCODERS:
        if isinstance(value, kind):
            return encoder(value)
    return {"opaque": None}


def _tagged_int(value: int) -> Untyped:
    exact = int.__add__(value, 0)
    return exact if -_BIG < exact < _BIG else {"int": hex(exact)}


def _tagged_ratio(value: Untyped) -> Untyped:
    return {"ratio": [hex(part) for part in value.as_integer_ratio()]}


def _tagged_numpy(value: Untyped) -> Untyped:
    """A number or text of numpy with its type and shape, on which its ``==`` depends.

    An array of several elements has no truth value, so it equals nothing.
    """
    if value.dtype.kind not in _NUMPY_KINDS or value.size != 1:
        return {"opaque": None}
    return {"numpy": [value.dtype.str, len(value.shape), _tagged(value.item())]}


def _tagged_dict(value: dict[Any, Any]) -> Untyped:
    return {"dict": [[_tagged(key), _tagged(item)] for key, item in dict.items(value)]}


_ENCODERS: tuple[tuple[type, Any], ...] = (
    (int, _tagged_int),
    (float, lambda value: float.__add__(value, 0.0)),
    (str, lambda value: str.__str__(value)),
    (list, lambda value: [_tagged(item) for item in list.__iter__(value)]),
    (tuple, lambda value: {"tuple": [_tagged(item) for item in tuple.__iter__(value)]}),
    (dict, _tagged_dict),
    (Decimal, _tagged_ratio),
    (Fraction, _tagged_ratio),
    (complex, lambda value: {"complex": [value.real, value.imag]}),
    (UserList, lambda value: _tagged(value.data)),
    (UserDict, lambda value: _tagged(value.data)),
    (UserString, lambda value: _tagged(value.data)),
)
_NUMPY_KINDS = "biufcU"  # numbers and text
_MOST_DIMENSIONS, _LARGEST_NUMBER, _BYTES_PER_CHARACTER = 32, 32, 4


def _untagged(value: Untyped) -> object:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    return _DECODERS[tag](content)


def _untagged_numpy(content: Untyped) -> object:
    """A scalar or an array of one element; TypeError or ValueError for anything else."""
    import numpy as np

    kind, dimensions, item = np.dtype(str(content[0])), content[1], _untagged(content[2])
    size = _BYTES_PER_CHARACTER * len(str(item)) if kind.kind == "U" else _LARGEST_NUMBER
    if kind.kind not in _NUMPY_KINDS or kind.itemsize > size or not 0 <= dimensions <= _MOST_DIMENSIONS:
        raise ValueError(f"numpy {kind} of {dimensions} dimensions")
    array = np.array(item, kind)
    return array[()] if dimensions == 0 else array.reshape((1,) * dimensions)


_DECODERS: dict[str, Any] = {
    "numpy": _untagged_numpy,
    "complex": lambda content: complex(*content),
    "opaque": lambda _: Opaque(),
    "int": lambda content: int(content, 16),
    "ratio": lambda content: Fraction(int(content[0], 16), int(content[1], 16)),
    "tuple": lambda content: tuple(_untagged(item) for item in content),
    "dict": lambda content: {_untagged(key): _untagged(item) for key, item in content},
}
