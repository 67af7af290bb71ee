"""Whether a run can still become VALID, decided from its counters and its journal while it lasts.

Only what LoadGen will count, too, is counted. Its times begin when a query is scheduled and end when it is
called, so its TTFT is never less than ours.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from harness.analysis.early_stopping import late_first_tokens, over_limit_text, surely_slow
from harness.errors import RunError
from harness.files import JOURNAL_DIR
from harness.progress.progress_line import Over, ProgressSnapshot
from harness.record.journal import JournalTail, read_journal
from harness.text import by_kind, counted

# Workers count first tokens four times a second: after this time each one is counted.
_COUNTED_S = 1.0
_NS = 1e9
_FEWEST = 3  # queries that show that one replica has most of them


class LostRunError(RunError):
    """The run can no longer become VALID, and is ended."""


class ValidityRules(msgspec.Struct, frozen=True):
    """What a VALID run needs, as far as it can be lost before its end."""

    limits_ns: Mapping[str, int] = msgspec.field(default_factory=dict)
    """of TTFT and TPOT; empty where the run is not judged by them"""
    most_over: int = 0
    """queries that may be over each limit; -1: with so few no run can be VALID"""


class _Look(msgspec.Struct, frozen=True):
    """What was known at a moment."""

    elapsed_s: float
    issued: int
    waiting: int
    """queries over the TTFT limit that had not ended"""


class LimitWatch:
    """Counts the queries of a run that are over a limit, also those that wait for their first token too long.

    A lower bound of the number of the latter is the queries issued by then less all first tokens.
    """

    def __init__(self, log_dir: Path, limits_ns: Mapping[str, int]) -> None:
        self.over = Over()
        self._journal = log_dir / JOURNAL_DIR
        self._tail = JournalTail(self._journal)
        self._ttft_ns, self._tpot_ns = limits_ns["TTFT"], limits_ns["TPOT"]
        self._looks: deque[_Look] = deque()
        # Of the queries that have ended, by their replica.
        self._at: dict[str, Counter[int]] = {"TTFT": Counter(), "TPOT": Counter()}

    def look(self, moment: ProgressSnapshot) -> None:
        """Count up to this moment. Raises OSError."""
        before = self._at["TTFT"].total()  # the journal adds some that were overdue at the moment
        self._count_ended()
        ended = self._at["TTFT"].total()
        late = max(self.over.ttft, ended, before + self._overdue(moment))
        self.over = Over(late, self._at["TPOT"].total())
        self._looks.append(_Look(moment.elapsed_s, moment.issued, late - ended))

    def most_at(self, name: str) -> tuple[int, int]:
        """The replica with the most of the ended queries over a limit, and their number."""
        return max(self._at[name].items(), key=lambda item: item[1], default=(0, 0))

    def over_without(self, replicas: Sequence[int], from_s: float, to_s: float) -> int:
        """The most queries over one limit but for those that waited for these replicas in that time.

        Times are on the monotonic clock. Raises OSError.
        """
        rows = read_journal(self._journal).rows
        rows = rows[np.isin(rows["replica"], replicas) & (rows["issued_ns"] < to_s * _NS)]
        late = late_first_tokens(rows[rows["first_token_ns"] > from_s * _NS], self._ttft_ns)
        slow = surely_slow(rows[rows["last_byte_ns"] > from_s * _NS], self._tpot_ns)
        return max(self.over.ttft - len(late), self.over.tpot - len(slow))

    def over_but_for_silence(self, since_s: float) -> int:
        """The most queries over one limit but for those that are so by a silence that lasts.

        ``since_s``: when it began, in seconds of the run.
        """
        before = [look.waiting for look in self._looks if look.elapsed_s <= since_s + _COUNTED_S]
        return max(self._at["TTFT"].total() + (before[-1] if before else 0), self.over.tpot)

    def _count_ended(self) -> None:
        rows = self._tail.read()
        late, slow = late_first_tokens(rows, self._ttft_ns), surely_slow(rows, self._tpot_ns)
        self._at["TTFT"].update(late["replica"].tolist())
        self._at["TPOT"].update(slow["replica"].tolist())

    def _overdue(self, moment: ProgressSnapshot) -> int:
        """Queries without a first token that were issued longer ago than the limit of TTFT."""
        since_s = moment.elapsed_s - self._ttft_ns / _NS - _COUNTED_S
        while len(self._looks) > 1 and self._looks[1].elapsed_s <= since_s:
            self._looks.popleft()
        if not self._looks or self._looks[0].elapsed_s > since_s:
            return 0
        return max(0, self._looks[0].issued - moment.first_tokens - moment.failed)


class LostWatch:
    """Why a run can no longer become VALID; "" while it can. ``urls`` are those of its replicas."""

    def __init__(self, log_dir: Path, rules: ValidityRules, urls: Sequence[str] = ()) -> None:
        self._rules = rules
        self._urls = urls
        self.late_s = rules.limits_ns.get("TTFT", math.inf) / _NS  # a silence that makes queries late
        self._limits = LimitWatch(log_dir, rules.limits_ns) if rules.limits_ns else None

    def look(self, moment: ProgressSnapshot, faults: Sequence[str] = ()) -> str:
        """The reason at this moment; ``faults`` are errors of the run itself. Raises OSError."""
        over = "" if self._limits is None else self._over_limit(self._limits, moment)
        return faults[0] if faults else failures_text(moment) or over

    @property
    def over(self) -> Over:
        """Queries over each limit at the last look, at least."""
        return Over() if self._limits is None else self._limits.over

    def is_lost_by(self, replicas: Sequence[int], from_s: float, to_s: float) -> bool:
        """Whether it would not be lost without the queries that waited for these replicas in that time.

        Times are on the monotonic clock. Raises OSError.
        """
        return self._limits is not None and self._is_allowed(
            self._limits.over_without(replicas, from_s, to_s)
        )

    def is_lost_by_silence(self, since_s: float) -> bool:
        """The same of a silence that lasts. ``since_s``: when it began, in seconds of the run."""
        return self._limits is not None and self._is_allowed(self._limits.over_but_for_silence(since_s))

    def _is_allowed(self, over: int) -> bool:
        return over <= max(self._rules.most_over, 0)

    def _over_limit(self, limits: LimitWatch, moment: ProgressSnapshot) -> str:
        limits.look(moment)
        name, count = limits.over.most
        text, (replica, part) = over_limit_text(name, count, self._rules.most_over), limits.most_at(name)
        # Of replicas that share them evenly none comes near.
        most = len(self._urls) > 1 and part >= max(_FEWEST, count * (1 + 1 / len(self._urls)) / 2)
        return f"{text}, {part:,} of them at {self._urls[replica]}" if text and most else text


def failures_text(moment: ProgressSnapshot) -> str:
    """``3 queries failed (truncated)``, with numbers where there are several kinds; "" for none."""
    if not moment.failed:
        return ""
    kinds = moment.failures
    named = next(iter(kinds)) if len(kinds) == 1 else by_kind(kinds)
    return f"{counted(moment.failed, 'query')} failed" + (f" ({named})" if named else "")
