"""The lengths of the replicas' answers: samples reach them in random order, so all have the same mean.

Not in accuracy runs, which LoadGen issues in the order of the dataset.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import msgspec
import numpy as np

from harness.analysis.replicas import middle_of
from harness.analysis.statistics import completed
from harness.arrays import Floats, Integers, distinct
from harness.record.journal import Rows
from harness.text import counted, first_few, moment

# With fewer answers of a replica a mean of lengths is not distributed normally.
FEWEST_LENGTHS = 100
_NAMED = 5
# A mean must differ by this part of it and this many standard errors. A run of hours with hundreds of
# replicas has up to a million means of a few hundred answers, whose distribution is still skewed.
_OTHER_LENGTH, _SURE_AT_END, _SURE_IN_MID_RUN = 0.05, 5.0, 7.0
# The number sent is a little behind the moment: in this time the last of them end, the longest.
_QUIET_NS = 60_000_000_000
_CAUSES = "another model, or with another limit or sampling"


class Lengths(msgspec.Struct, frozen=True):
    """The lengths of answers in tokens, by replica; each array has the shape (replicas,)."""

    counts: Integers
    sums: Floats
    squares: Floats
    """sums of the squared lengths"""

    @classmethod
    def of(cls, rows: Rows, replicas: int) -> Self:
        """Those of the queries that completed."""
        good = completed(rows)
        of, osl = good["replica"], good["osl"].astype(np.float64)
        sums, squares = (np.bincount(of, one, replicas).astype(np.float64) for one in (osl, osl * osl))
        return cls(np.bincount(of, minlength=replicas), sums, squares)

    def __add__(self, more: Self) -> Self:
        return type(self)(self.counts + more.counts, self.sums + more.sums, self.squares + more.squares)

    @property
    def total(self) -> int:
        """The number of answers."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """That of all answers, 0 for none."""
        return float(self.sums.sum() / max(self.total, 1))

    @property
    def means(self) -> Floats:
        """Each replica's, NaN for too few answers."""
        enough = self.counts >= FEWEST_LENGTHS
        found: Floats = np.where(enough, self.sums / np.maximum(self.counts, 1), np.nan)
        return found

    @property
    def deviation(self) -> float:
        """The standard deviation of all answers, 0 for none."""
        return math.sqrt(max(float(self.squares.sum() / max(self.total, 1)) - self.mean**2, 0.0))


def length_warnings(lengths: Lengths, urls: Sequence[str], sure: float = _SURE_AT_END) -> Iterator[str]:
    """A warning where some replicas answer at other lengths; ``sure``: by how many standard errors."""
    means, counts = lengths.means, lengths.counts
    middle = middle_of(means)
    if not np.isfinite(middle):
        return
    error = lengths.deviation * np.sqrt(1 / np.maximum(counts, 1) + 1 / counts[means == middle][0])
    found = _apart(means, middle, sure * error)
    if found:
        shown = first_few((f"{urls[one]} {means[one]:.1f}" for one in found), _NAMED)
        yield (
            f"{len(found)} of {len(urls)} replicas give answers of other lengths than the others ({shown} "
            f"tokens on average, the others {middle:.1f}): they serve {_CAUSES}; compare their weights and "
            "options, and measure again"
        )


def _apart(means: Floats, others: Floats | float, least: Floats) -> list[int]:
    """The replicas whose mean is known and differs certainly, and enough to be of account."""
    with np.errstate(invalid="ignore"):
        certain = np.abs(means - others) > np.maximum(least, _OTHER_LENGTH * others)
    found: list[int] = np.flatnonzero(certain).tolist()
    return found


class _Pass:
    """Requests that are sent one after another, and their answers."""

    def __init__(self, replicas: int) -> None:
        self.until_ns, self.until_s = 0, 0.0  # its end: CLOCK_MONOTONIC, and in the run
        self.sent = 0  # until then, since the run began
        self.ended = 0  # of its own
        self.grew_ns = 0
        self.lengths = Lengths(*np.zeros((3, replicas)))


class LengthWatch:
    """Judges the lengths of answers while a run lasts.

    Short answers end first, so those that have ended at a moment are no fair sample. The requests of a
    *pass*, which are sent one after another, are one when all of them have ended. Only sums are kept.
    """

    def __init__(self, urls: Sequence[str], refused: Callable[[float, int], str]) -> None:
        """``refused``: takes a mean length and the number of answers; says why it is refused, else ""."""
        self.changes: list[str] = []
        """warnings of replicas whose answers have changed"""
        self._urls = urls
        self._refused: Callable[[float, int], str] | None = refused
        self._queries = 2 * FEWEST_LENGTHS * len(urls)
        self._passes = [_Pass(len(urls))]  # the last is being sent
        self._before = _Pass(len(urls))  # all that are judged
        self._changed = set[int]()
        self._compared = False  # a difference between replicas is told

    def add(self, rows: Rows, now_ns: int) -> None:
        """Take queries that have ended since the last call, also those that failed."""
        ends = [one.until_ns for one in self._passes[:-1]]
        places = np.searchsorted(ends, rows["sent_ns"])
        for place in distinct(places).tolist():
            one, own = self._passes[place], rows[places == place]
            one.lengths += Lengths.of(own, len(self._urls))
            one.ended, one.grew_ns = one.ended + len(own), now_ns

    def look(self, sent: int, elapsed_s: float, now_ns: int) -> tuple[str, ...]:
        """The warnings, once a pass has ended. ``sent``: requests until now."""
        last = self._passes[-1]
        begun = self._passes[-2].sent if len(self._passes) > 1 else self._before.sent
        if sent - begun >= self._queries:
            last.sent, last.until_s, last.until_ns = sent, elapsed_s, now_ns
            self._passes.append(_Pass(len(self._urls)))
        ended, grew_ns, complete = self._before.ended, 0, 0
        for number, one in enumerate(self._passes[:-1], 1):
            ended, grew_ns = ended + one.ended, max(grew_ns, one.grew_ns)
            if ended >= one.sent and now_ns - grew_ns >= _QUIET_NS:
                complete = number
        if not complete:
            return ()
        new, self._passes = self._passes[:complete], self._passes[complete:]
        return tuple(self._judge(new))

    def _judge(self, new: Sequence[_Pass]) -> Iterator[str]:
        before, lengths = self._before, sum((one.lengths for one in new[1:]), new[0].lengths)
        all_until_now = before.lengths + lengths
        found: list[str] = []
        if before.sent and (changed := self._new_changes(before, lengths, new[-1].until_s)):
            self.changes.append(changed)
            yield changed
        elif not self._compared:
            found += length_warnings(all_until_now, self._urls, _SURE_IN_MID_RUN)
        self._compared = bool(self._compared or found or self.changes)
        if self._refused and (text := self._refused(all_until_now.mean, all_until_now.total)):
            self._refused = None
            found.append(text)
        for text in found:
            yield f"by the first {counted(all_until_now.total, 'answer')}: {text}"
        before.lengths, before.ended = all_until_now, before.ended + sum(one.ended for one in new)
        before.sent, before.until_s = new[-1].sent, new[-1].until_s

    def _new_changes(self, before: _Pass, lengths: Lengths, until_s: float) -> str:
        """Replicas whose mean is another than their own before; each is told once."""
        means, earlier = lengths.means, before.lengths.means
        counts = np.maximum((before.lengths.counts, lengths.counts), 1)
        error = before.lengths.deviation * np.sqrt((1 / counts).sum(axis=0))
        found = [one for one in _apart(means, earlier, _SURE_IN_MID_RUN * error) if one not in self._changed]
        self._changed.update(found)
        if not found:
            return ""
        shown = (f"{self._urls[one]} {means[one]:.1f} after {earlier[one]:.1f}" for one in found)
        times = f"{moment(before.until_s)} to {moment(until_s)}"
        return (
            f"{len(found)} of {len(self._urls)} replicas give answers of other lengths than before "
            f"({first_few(shown, _NAMED)} tokens on average, for requests sent from {times}): they serve "
            f"{_CAUSES} now, or are out of order; look at their answers and logs, restart them as they were, "
            "and repeat the command"
        )
