"""Whether the disk of a run will be full before the run ends, whoever fills it."""

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path

from harness.machine import free_bytes
from harness.text import duration

_EVERY_S = 10.0
_LOOKS = 31  # in five minutes, or more where this process or the disk stood meanwhile
_WITHIN_S = 3600.0  # of a later end nothing is known
_SOON_S = 600.0  # where it is not known how long the run lasts


class DiskRoom:
    """Looks at the free space of ``folder``'s disk from time to time."""

    def __init__(self, folder: Path, free: Callable[[Path], int] = free_bytes) -> None:
        self._folder = folder
        self._free = free
        self._seen = deque[tuple[float, int]](maxlen=_LOOKS)
        self._told = False

    def look(self, elapsed_s: float, remaining_s: float | None) -> str:
        """The warning where the disk will be full within the hour and before the run ends; "" for none.

        Where the time left is not known, the disk has to be full in a few minutes. The warning comes again
        only after the disk had room for two hours. Raises OSError.
        """
        if self._seen and elapsed_s < self._seen[-1][0] + _EVERY_S:
            return ""
        self._seen.append((elapsed_s, self._free(self._folder)))
        if len(self._seen) < _LOOKS:
            return ""
        full_s, told = self._full_in_s(), self._told
        within_s = min(_WITHIN_S, _SOON_S if remaining_s is None else remaining_s)
        self._told = full_s < (2 * _WITHIN_S if told else within_s)
        if told or not self._told:
            return ""
        when = "" if remaining_s is None else ", before the run ends"
        return (
            f"the disk of {self._folder} has {self._seen[-1][1] / 1e6:,.0f} MB left and less each minute: it "
            f"will be full in {duration(full_s)}{when}; free space there, or end what fills it"
        )

    def _full_in_s(self) -> float:
        """By the slower half of the time: what was written in one of them alone may have an end."""
        middle = len(self._seen) // 2
        lost = min(self._lost_per_s(0, middle), self._lost_per_s(middle, -1))
        return self._seen[-1][1] / lost if lost > 0 else math.inf

    def _lost_per_s(self, begin: int, end: int) -> float:
        (since_s, before), (now_s, now) = self._seen[begin], self._seen[end]
        return (before - now) / (now_s - since_s)
