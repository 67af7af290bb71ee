"""The first answers of a run, judged as soon as all of them have ended.

Short answers end first, so those that have ended at a moment are no fair sample. The requests that were sent
before a moment are one, when all of them have ended; those that follow are of the same samples.
"""

from collections.abc import Callable, Iterable

import numpy as np

from harness.record.journal import Rows

# The number sent is a little behind the moment: in this time the last of them end, the longest.
_QUIET_NS = 60_000_000_000


class FirstPass:
    """Collects answers until the first ones are complete, and judges these once."""

    def __init__(self, queries: int, judge: Callable[[Rows], Iterable[str]]) -> None:
        """``queries``: the fewest that are judged; ``judge``: their warnings."""
        self._queries = queries
        self._judge: Callable[[Rows], Iterable[str]] | None = judge
        self._answers: list[Rows] = []
        self._sent = 0  # by the moment, 0 before it
        self._until_ns = 0  # the moment, CLOCK_MONOTONIC
        self._grew_ns = 0

    def add(self, rows: Rows, now_ns: int) -> None:
        """Take answers that have ended since the last call."""
        if self._judge is None:
            return
        if self._sent:
            rows = rows[rows["sent_ns"] <= self._until_ns]
        if len(rows):
            self._answers.append(rows)
            self._grew_ns = now_ns

    def look(self, sent: int, now_ns: int) -> tuple[str, ...]:
        """The warnings, once the first answers are there. ``sent``: requests until now."""
        if self._judge is None:
            return ()
        if not self._sent and sent >= self._queries:
            self._sent, self._until_ns = sent, now_ns
        ended = sum(map(len, self._answers))
        if not self._sent or ended < self._sent or now_ns - self._grew_ns < _QUIET_NS:
            return ()
        judge, self._judge = self._judge, None
        rows = np.concatenate(self._answers)
        self._answers.clear()
        return tuple(judge(rows))
