"""What it costs to mend something: the order in which issues and missing runs are listed."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TypeVar

Item = TypeVar("Item")


class Cost(StrEnum):
    """The most expensive part of a remedy, the dearest first."""

    GPU_HOURS = "GPU hours"
    """a run must be made or repeated"""
    MINUTES = "minutes"
    """a program must run again, or files must be copied, without the servers"""
    EDIT = "a text edit"
    """a text file or the name of a folder must be changed"""


def by_cost(items: Iterable[Item], cost: Callable[[Item], Cost]) -> Iterator[tuple[Cost, list[Item]]]:
    """The items of each cost in their order, the dearest first; none without items."""
    listed = list(items)
    for one in Cost:
        if alike := [item for item in listed if cost(item) is one]:
            yield one, alike
