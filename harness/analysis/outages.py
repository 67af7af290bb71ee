"""Servers that were out of use during a run, as the first reasons of its verdict."""

import re
from collections.abc import Iterator, Sequence

from harness.record.run_events import RunEvent
from harness.text import moment

_NAMED = 3
_UNREACHABLE = re.compile(r"not reachable \((?:\[Errno -?\d+\] )?(.*?)\)")


def outage_reasons(events: Sequence[RunEvent]) -> Iterator[str]:
    """``replica http://node1:30000 died at 0:17 (connection refused)``; a few, the first one first."""
    out = [event for event in events if event.kind == "server_out"]
    for event in out[:_NAMED]:
        yield f"replica {event.server} {_outage(event)}{_return(event, events)}"
    if len(out) > _NAMED:
        yield f"and {len(out) - _NAMED} more outages of replicas (run.json has all)"


def _outage(event: RunEvent) -> str:
    at = moment(event.at_s)
    if (found := _UNREACHABLE.match(event.text)) is not None:
        return f"died at {at} ({found[1][:1].lower()}{found[1][1:]})"
    return f"was out of use from {at} ({event.text})"


def _return(event: RunEvent, events: Sequence[RunEvent]) -> str:
    back = [
        later.at_s
        for later in events
        if later.kind == "server_back" and later.server == event.server and later.at_s >= event.at_s
    ]
    return f", in use again at {moment(min(back))}" if back else ""
