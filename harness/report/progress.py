"""The line that shows how a run is going: values in, text out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.text import printable

_MOST_KINDS = 3  # of failures that the line names


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """A run at one moment. None: not known (yet).

    ``total``: queries that LoadGen will issue; ``tokens_per_s``: over the last seconds; ``ttft_ns`` and
    ``tpot_ns``: means so far; ``failures``: by kind.
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
    note: str = ""

    @property
    def in_flight(self) -> int:
        """Queries issued and not yet ended."""
        return self.issued - self.completed - self.failed


def plain_progress(snapshot: ProgressSnapshot) -> str:
    """The whole line, for a log file or a pipe."""
    return ", ".join(_fields(snapshot))


def terminal_progress(snapshot: ProgressSnapshot, width: int) -> str:
    """A carriage return and the line, cut at whole fields and padded to overwrite what was there.

    One column stays free: a terminal breaks the line when its last column is filled.
    """
    room = max(width - 1, 1)
    fields = _fields(snapshot)
    while len(fields) > 1 and len(", ".join(fields)) > room:
        fields.pop()
    return "\r" + ", ".join(fields)[:room].ljust(room)


def _fields(s: ProgressSnapshot) -> list[str]:
    """Most important first: a narrow terminal loses the last ones."""
    fields = [
        f"[{duration(s.elapsed_s)}] {s.completed + s.failed}/{max(s.total or 0, s.issued)} done",
        _failed(s),
        f"{duration(s.remaining_s)} left" if s.remaining_s is not None else "",
        f"{s.in_flight} in flight",
        f"{s.tokens_per_s:.0f} tok/s" if s.tokens_per_s is not None else "",
        f"TTFT {milliseconds(s.ttft_ns)} ms" if s.ttft_ns is not None else "",
        f"TPOT {milliseconds(s.tpot_ns)} ms" if s.tpot_ns is not None else "",
        printable(s.note, 120),
    ]
    return [field for field in fields if field]


def _failed(s: ProgressSnapshot) -> str:
    """``3 FAILED (timeout 2, connect 1)``, the most frequent kind first."""
    if not s.failed:
        return ""
    kinds = sorted(s.failures.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{kind} {count}" for kind, count in kinds[:_MOST_KINDS])
    return f"{s.failed} FAILED ({shown})" if shown else f"{s.failed} FAILED"


def duration(seconds: float) -> str:
    """``59s``, ``12m05s``, ``3h02m``."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def milliseconds(nanoseconds: float) -> str:
    """Four figures that matter: ``0.853``, ``12.34``, ``155822``."""
    value = nanoseconds / 1e6
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{value:.{decimals}f}"
