"""The names that LiveCodeBench defines for solutions, in the order in which they shadow each other."""

from types import ModuleType

STAR_IMPORTS = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
    "itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
PLAIN_IMPORTS = tuple(name for name in STAR_IMPORTS if name not in ("builtins", "typing"))
RECURSION_LIMIT = 50_000
INT_DIGITS_LIMIT = 50_000  # digits of int <-> str conversions, in the official runner's process

LAST_LINE = f"sys.setrecursionlimit({RECURSION_LIMIT})\n"
SOURCE = "\n".join(
    [
        *(f"from {name} import *" for name in STAR_IMPORTS),
        *(f"import {name}" for name in PLAIN_IMPORTS),
        LAST_LINE,
    ]
)


def module(name: str, doc: str | None = None) -> ModuleType:
    """A module in which SOURCE was executed, except its last line.

    It is made before the fork: a child that fills it writes to the memory page of every name's value.
    """
    made = ModuleType(name, doc)
    exec(SOURCE.removesuffix(LAST_LINE), made.__dict__)
    return made
