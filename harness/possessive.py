"""Possessive quantifiers of Python 3.11.0 to 3.11.4, which may match too much; Debian 12 has 3.11.2.

There ``(?:ab?c)*+`` finds the "a" of "ab" (CPython's issue 106052), and graders would read wrong answers. The
greedy quantifier in an atomic group, which Python's documentation gives as the meaning, is right there.
"""

import re._compiler  # type: ignore[import-not-found]
import sys
from re._constants import ATOMIC_GROUP, MAX_REPEAT, POSSESSIVE_REPEAT  # type: ignore[import-not-found]
from typing import Any

_compile = re._compiler._compile


def _compile_as_atomic(code: list[int], pattern: Any, flags: int) -> None:
    parts = [
        (ATOMIC_GROUP, [(MAX_REPEAT, repeat)]) if kind is POSSESSIVE_REPEAT else (kind, repeat)
        for kind, repeat in pattern
    ]
    _compile(code, parts, flags)


def mend() -> None:
    """Let all patterns that this process compiles from now on match what they say."""
    if sys.version_info < (3, 11, 5):
        re._compiler._compile = _compile_as_atomic
