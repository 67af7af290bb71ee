"""Whether an output is the expected one: LiveCodeBench's rules, applied where no model code runs.

Outputs are hostile too: nothing is built from one that the expected output does not bound.
"""

import itertools
import json
import re
from collections.abc import Iterator
from decimal import Decimal, DecimalException

from harness.grading.sandbox.jail import values

_LONG = 4_000  # digits; int() has a limit of 4,300 by default
_WORD = re.compile(r"\S+")
# The encoding of a value that equals an expected one is not much longer: tags, escapes of single characters.
_ENCODED_PER_EXPECTED, _ENCODED_AT_LEAST = 16, 1 << 16


def same_printout(printed: str, expected: str) -> bool:
    """Whether both have equally many lines, each equal as text or number by number, without tolerance.

    Both are stripped, and each of their lines.
    """
    ours, theirs = printed.strip(), expected.strip()
    if ours == theirs:
        return True
    if ours.count("\n") != theirs.count("\n"):
        return False
    return all(map(_same_line, ours.split("\n"), theirs.split("\n")))


def same_value(encoded: bytes, expected: str) -> bool:
    """``==`` on the decoded return value; a tuple at the top counts as a list.

    ValueError where the expected value is not JSON.
    """
    if len(encoded) > _ENCODED_PER_EXPECTED * len(expected) + _ENCODED_AT_LEAST:
        return False
    value, wanted = values.decode(encoded), json.loads(expected, parse_int=_integer)
    try:
        return bool((list(value) if isinstance(value, tuple) else value) == wanted)
    except (RecursionError, ValueError, TypeError):  # numpy's == may have no truth value
        return False


def _integer(digits: str) -> int:
    """Python refuses to read long integers, for the time it takes; decimal reads them fast."""
    return int(digits) if len(digits) < _LONG else int(Decimal(digits))


def _same_line(ours: str, theirs: str) -> bool:
    if ours.strip() == theirs.strip():
        return True
    try:
        pairs = itertools.zip_longest(_numbers(ours), _numbers(theirs))
        return all(one is not None and one == other for one, other in pairs)
    except DecimalException:  # a word, or a signalling NaN
        return False


def _numbers(line: str) -> Iterator[Decimal]:
    return (Decimal(word[0]) for word in _WORD.finditer(line))
