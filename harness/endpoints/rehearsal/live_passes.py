"""The steady state of a point while it lasts: a sentence when a further pass has all its answers.

Tokens are those that the server counted, since the reference tokenizer comes after the last request: the
verdict of the point may differ in detail.
"""

import time
from collections.abc import Callable

import numpy as np

from harness.endpoints.point_run import WARM_UP
from harness.endpoints.samples import SAMPLE, Samples
from harness.endpoints.steady.steady_line import steady_line
from harness.endpoints.steady.super_passes import SuperPass, super_pass
from harness.record.journal import QUERY_ROW, Rows

_EVERY_S = 60.0  # between two sentences: a pass over a small dataset takes less


class LivePasses:
    """The passes of a point so far, from the rows of its journal."""

    def __init__(self, samples: int, required_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``samples`` of a pass; ``required_s``: shortest issue time of an official window."""
        self._size, self._required_s, self._clock = samples, required_s, clock
        self._rows: Rows = np.empty(0, QUERY_ROW)  # of passes that lack answers
        self._passes: list[SuperPass] = []
        self._said = (0, clock())

    def add(self, rows: Rows) -> str:
        """Take further rows; a sentence where one is due, else ""."""
        self._rows = np.concatenate([self._rows, rows[rows["query_id"] < WARM_UP]])
        while self._take():
            continue
        passes, at = self._said
        if len(self._passes) == passes or self._clock() - at < _EVERY_S:
            return ""
        self._said = len(self._passes), self._clock()
        return steady_line(self._passes, self._required_s)

    def _take(self) -> bool:
        """Take the next pass if every request of it has ended."""
        end = (len(self._passes) + 1) * self._size  # queries are numbered in the order of issue
        inside = self._rows["query_id"] < end
        if inside.sum() < self._size:
            return False
        self._passes.append(super_pass(_samples(self._rows[inside])))
        self._rows = self._rows[~inside]
        return True


def _samples(rows: Rows) -> Samples:
    rows = rows[np.argsort(rows["query_id"])]
    found = np.zeros(len(rows), SAMPLE)
    found["issued_ns"], found["first_ns"] = rows["issued_ns"], rows["first_token_ns"]
    found["complete_ns"], found["failed"] = rows["last_byte_ns"], rows["failure"] > 0
    found["output_tokens"] = rows["osl"]
    found["suffix_tokens"] = np.maximum(rows["osl"].astype(np.int64) - rows["first_event_tokens"], 0)
    return found
