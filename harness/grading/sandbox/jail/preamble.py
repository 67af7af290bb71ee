"""The names that LiveCodeBench defines for solutions, in the order in which they shadow each other."""

from functools import cache
from typing import Any

STAR_IMPORTS = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
    "itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
PLAIN_IMPORTS = tuple(name for name in STAR_IMPORTS if name not in ("builtins", "typing"))
RECURSION_LIMIT = 50_000
INT_DIGITS_LIMIT = 50_000  # of int <-> str conversions, in the official runner's process

SOURCE = "\n".join(
    [
        *(f"from {name} import *" for name in STAR_IMPORTS),
        *(f"import {name}" for name in PLAIN_IMPORTS),
        f"sys.setrecursionlimit({RECURSION_LIMIT})\n",
    ]
)


@cache
def names() -> dict[str, Any]:
    """The names that SOURCE defines, executed once; the caller copies them and sets the recursion limit."""
    namespace: dict[str, Any] = {}
    exec(SOURCE, namespace)
    return namespace
