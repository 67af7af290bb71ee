"""The line that shows the progress of a run."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.cli.streams import control
from harness.text import duration, milliseconds

# Seconds of the run between two lines of a log file or a pipe: at first, and after the first minute.
_PLAIN_EVERY_S, _PLAIN_LATER_S = 10.0, 60.0
_MOST_KINDS = 3  # of failures that the line names


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """A run at one moment. None: not known (yet).

    ``total``: queries that LoadGen will issue; ``tokens_per_s``: over the last seconds; ``ttft_ns`` and
    ``tpot_ns``: means so far; ``failures``: by kind; ``first_tokens``: queries that have one. Of several
    replicas: ``imbalance`` as in ReplicaBalance, over the last minute, and the number of ``stragglers``.
    ``sent``: requests without an end at the servers, where their number has a limit.
    """

    elapsed_s: float
    issued: int
    completed: int
    failed: int
    total: int | None = None
    tokens_per_s: float | None = None
    ttft_ns: float | None = None
    tpot_ns: float | None = None
    remaining_s: float | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    imbalance: float | None = None
    stragglers: int = 0
    first_tokens: int = 0
    sent: int | None = None

    @property
    def in_flight(self) -> int:
        """Queries issued and not yet ended."""
        return self.issued - self.completed - self.failed


class ProgressPrinter:
    """Writes to stdout: one line that is overwritten on a terminal, a plain line now and then elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._last_plain_s = 0.0
        self._open = False

    def __call__(self, snapshot: ProgressSnapshot) -> None:
        """Show the run's present state."""
        if self._terminal:
            control(sys.stdout, "\r")
            sys.stdout.write(terminal_progress(snapshot, shutil.get_terminal_size().columns))
            sys.stdout.flush()
            self._open = True
        elif snapshot.elapsed_s - self._last_plain_s >= _plain_every_s(snapshot.elapsed_s):
            self._last_plain_s = snapshot.elapsed_s
            print(plain_progress(snapshot), flush=True)

    def end(self) -> None:
        """End the overwritten line, so that it stays."""
        if self._open:
            print(flush=True)
            self._open = False


def _plain_every_s(elapsed_s: float) -> float:
    return _PLAIN_EVERY_S if elapsed_s <= _PLAIN_LATER_S else _PLAIN_LATER_S


def plain_progress(snapshot: ProgressSnapshot) -> str:
    """The complete line, for a log file or a pipe."""
    return ", ".join(_fields(snapshot))


def terminal_progress(snapshot: ProgressSnapshot, width: int) -> str:
    """The line, cut between fields and padded to overwrite the line before.

    One column stays free: a terminal breaks the line when its last column is filled.
    """
    columns = max(width - 1, 1)
    fields = _fields(snapshot)
    while len(fields) > 1 and len(", ".join(fields)) > columns:
        fields.pop()
    return ", ".join(fields)[:columns].ljust(columns)


def _fields(s: ProgressSnapshot) -> list[str]:
    """Most important first: a narrow terminal loses the last ones."""
    fields = [
        f"[{duration(s.elapsed_s)}] {s.completed + s.failed}/{max(s.total or 0, s.issued)} done",
        _failed(s),
        f"{duration(s.remaining_s)} left" if s.remaining_s is not None else "",
        f"{s.stragglers} {'STRAGGLER' if s.stragglers == 1 else 'STRAGGLERS'}" if s.stragglers else "",
        _in_flight(s),
        f"{s.tokens_per_s:.0f} tok/s" if s.tokens_per_s is not None else "",
        f"TTFT {milliseconds(s.ttft_ns)} ms" if s.ttft_ns is not None else "",
        f"TPOT {milliseconds(s.tpot_ns)} ms" if s.tpot_ns is not None else "",
        f"imbalance {s.imbalance:.2f}" if s.imbalance is not None else "",
    ]
    return [field for field in fields if field]


def _in_flight(s: ProgressSnapshot) -> str:
    """``512 in flight, 5884 waiting``: those that are issued wait for one of the requests to end."""
    waiting = 0 if s.sent is None else s.in_flight - s.sent
    return f"{s.sent} in flight, {waiting} waiting" if waiting > 0 else f"{s.in_flight} in flight"


def _failed(s: ProgressSnapshot) -> str:
    """``3 FAILED (timeout 2, connect 1)``, the most frequent kind first."""
    if not s.failed:
        return ""
    kinds = sorted(s.failures.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{kind} {count}" for kind, count in kinds[:_MOST_KINDS])
    return f"{s.failed} FAILED ({shown})" if shown else f"{s.failed} FAILED"
