"""Servers and ranks that were out of use or silent: the first reasons of a verdict, and warnings."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from harness.grouping import by_key
from harness.record.run_events import EventKind, RunEvent, SeenEvent
from harness.text import moment

_NAMED = 3
_OF_SERVERS, _OF_CLIENT = ("server_out", "rank_stands", "silence"), ("suspended", "clock_set")
# Not what takes the connection and closes it, as nginx does where its worker_connections are all in use, nor
# a certificate that is refused, nor a name that is not known: such numbers are negative.
_UNREACHABLE = re.compile(r"not reachable \(\[Errno (?!104\])\d+\] (.*?)\)")


def what_stood(events: Sequence[RunEvent | SeenEvent]) -> str:
    """What stood first, in words: a server out of use, silent or standing, this client, or a set clock.

    "" for nothing. Times of such a run say nothing of another rate. Servers come before this client, which
    counts if it stood before the run was lost. ``events`` are in order of time.
    """
    before_loss = takewhile(lambda event: event.kind != "lost", events)
    own = (event.text for event in before_loss if event.kind in _OF_CLIENT)
    return servers_stood(events) or next(own, "")


def servers_stood(events: Sequence[RunEvent | SeenEvent]) -> str:
    """The first server that was out of use, silent or stood, in words; "" for none."""
    found = (event for event in events if event.kind in _OF_SERVERS or _lost_in(event))
    texts = (one.text if one.server in one.text else f"{one.server}: {one.text}" for one in found)
    return next(texts, "")


def _lost_in(event: RunEvent | SeenEvent) -> bool:
    """Whether the run was lost while nothing arrived from a server."""
    return event.kind == "lost" and bool(event.server)


def outage_reasons(events: Sequence[RunEvent]) -> Iterator[str]:
    """``replica http://node1:30000 died at 0:17 (connection refused)``; a few, the first one first."""
    out = [event for event in events if event.kind == "server_out"]
    for event in out[:_NAMED]:
        back = _until("server_back", event, events, ", in use again at")
        yield f"replica {event.server} {_outage(event)}{back}"
    if len(out) > _NAMED:
        yield f"and {len(out) - _NAMED} more outages of replicas (run.json has all)"


def _outage(event: RunEvent) -> str:
    at = moment(event.at_s)
    if (found := _UNREACHABLE.match(event.text)) is not None:
        return f"died at {at} ({found[1][:1].lower()}{found[1][1:]})"
    return f"was out of use from {at} ({event.text})"


def _until(kind: EventKind, event: RunEvent, events: Sequence[RunEvent], before: str) -> str:
    """``before`` and the moment at which this kind of event ended another; "" where none did."""
    ends = [
        later.at_s
        for later in events
        if (later.kind, later.server, later.rank) == (kind, event.server, event.rank)
        and later.at_s >= event.at_s
    ]
    return f"{before} {moment(min(ends))}" if ends else ""


def rank_warnings(events: Sequence[RunEvent], reasons: Sequence[str]) -> Iterator[str]:
    """``dp_rank 1 of URL showed no sign of life from 0:38 to 1:20``, but for ranks that a reason names."""
    stood = [event for event in events if event.kind == "rank_stands"]
    unnamed = [event for event in stood if not any(f"{_rank(event)} " in reason for reason in reasons)]
    for event in unnamed[:_NAMED]:
        until = _until("rank_works", event, events, " to")
        yield f"{_rank(event)} showed no sign of life from {moment(event.at_s)}{until}"
    if len(unnamed) > _NAMED:
        yield f"and {len(unnamed) - _NAMED} more ranks without a sign of life (run.json has all)"
    yield from idle_text((one.server, one.rank or 0) for one in events if one.kind == "rank_idle")


def silence_warnings(events: Sequence[RunEvent]) -> Iterator[str]:
    """``from 0:06 to 0:28 nothing arrives from http://node1:30000 with 16 requests``; the first few."""
    silences = [event for event in events if event.kind == "silence"]
    if not silences:
        for event in filter(_lost_in, events):
            yield f"at {moment(event.at_s)} the run was lost while a server was silent: {event.text}"
    for event in silences[:_NAMED]:
        until = _until("silence_ends", event, events, "to") or "on"
        yield (
            f"from {moment(event.at_s)} {until} {event.text}: a pause, a compilation, a hang or a long "
            "stream interval (see the servers' logs); the figures include it"
        )
    if len(silences) > _NAMED:
        yield f"and {len(silences) - _NAMED} more such silences (run.json has all)"


def idle_text(places: Iterable[tuple[str, int]]) -> Iterator[str]:
    """``dp_rank 1, 2 of http://node1:30000 ...``: a line for each server, of (server, rank)."""
    for server, ranks in by_key(places).items():
        idle = ", ".join(map(str, ranks))
        yield f"dp_rank {idle} of {server} shows no request, the others have several each"


def _rank(event: RunEvent) -> str:
    return f"dp_rank {event.rank} of {event.server}"
