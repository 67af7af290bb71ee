"""What happened during a run at a known moment: a server out of use, a rank that stands, a lost run."""

import threading
import time
from typing import Literal

import msgspec

EventKind = Literal[
    "server_out",
    "server_back",
    "rank_stands",
    "rank_works",
    "rank_idle",
    "silence",
    "silence_ends",
    "suspended",
    "clock_set",
    "lost",
]


class RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the run, for the reader and for the time axes of a page."""

    at_s: float
    """since the first query"""
    kind: EventKind
    """`server_out`, `server_back`, `rank_stands`, `rank_works`, `rank_idle`, `silence`, `silence_ends`,
    `suspended` and `clock_set` (this client) or `lost`"""
    server: str = ""
    """URL; empty where it is of no one server. Of `lost`: a server from which nothing arrived then"""
    rank: int | None = None
    """of a data-parallel rank"""
    text: str
    """in words, without the time"""


class SeenEvent(msgspec.Struct, frozen=True):
    """An event as it is observed."""

    time_ns: int
    """CLOCK_MONOTONIC"""
    kind: EventKind
    server: str
    text: str
    rank: int | None = None

    def since(self, start_ns: int) -> RunEvent:
        """The event of the record; ``start_ns``: the first query, 0 where there was none."""
        at_s = max(self.time_ns - start_ns, 0) / 1e9 if start_ns else 0.0
        return RunEvent(
            at_s=round(at_s, 1), kind=self.kind, server=self.server, rank=self.rank, text=self.text
        )


class EventLog(msgspec.Struct):
    """Collects events, from several threads."""

    _events: list[SeenEvent] = []
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def add(
        self, kind: EventKind, server: str, text: str, time_ns: int | None = None, rank: int | None = None
    ) -> None:
        """Note an event, now or at ``time_ns``."""
        event = SeenEvent(time.monotonic_ns() if time_ns is None else time_ns, kind, server, text, rank)
        with self._lock:
            self._events.append(event)

    @property
    def events(self) -> tuple[SeenEvent, ...]:
        """In order of time."""
        with self._lock:
            return tuple(sorted(self._events, key=lambda event: event.time_ns))
