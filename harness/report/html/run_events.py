"""What happened during a run: marks on every time axis, a table of the events, the servers' ranks."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from harness.record.replica_figures import RankFigures
from harness.record.run_events import RunEvent
from harness.record.run_record import RunRecord
from harness.report.html.page import Chart, Limit, PageTable, Section
from harness.text import moment

_MARKED = 20  # events that are marked on the axes; a table has all
_FOLDED_FROM = 64  # ranks; a longer table is folded away
_IDLE = 0.5  # of an even share: a rank below it is marked


def with_marks(sections: Sequence[Section], record: RunRecord | None) -> list[Section]:
    """The sections, with the events on the time axes of their charts."""
    marks = () if record is None else tuple(_marks(record.events))
    return [
        replace(one, charts=tuple(_marked(chart, marks) for chart in one.charts)) if one.charts else one
        for one in sections
    ]


def _marks(events: Sequence[RunEvent]) -> Iterator[Limit]:
    """Numbers, since there is no room for words."""
    for number, event in enumerate(events[:_MARKED], 1):
        yield Limit(str(number), event.at_s, "x", event=True)


def _marked(chart: Chart, marks: Sequence[Limit]) -> Chart:
    if chart.x_axis != "seconds" or not marks:
        return chart
    return replace(chart, limits=(*chart.limits, *marks))


def events_table(events: Sequence[RunEvent]) -> PageTable:
    """The events with the numbers of their marks."""
    rows = [
        (str(number) if number <= _MARKED else "", moment(event.at_s), event.server or "-", event.text)
        for number, event in enumerate(events, 1)
    ]
    return PageTable(("mark", "time", "server", "event"), rows)


def ranks_table(ranks: Sequence[RankFigures]) -> PageTable:
    """The data-parallel ranks of servers that report several, the least busy first."""
    ordered = sorted(ranks, key=lambda one: -1.0 if one.share is None else one.share)
    rows = [
        (
            one.server,
            str(one.rank),
            *(_figure(value) for value in (one.running, one.queued)),
            "-" if one.kv_use is None else f"{one.kv_use:.0%}",
            _figure(one.tokens_per_s),
            "-" if one.share is None else f"{one.share:.1%}",
        )
        for one in ordered
    ]
    idle = frozenset(
        number
        for number, one in enumerate(ordered)
        if one.share is not None and one.share * len(ranks) < _IDLE
    )
    header = ("server", "dp_rank", "running, mean", "queued, mean", "KV cache", "tokens/s", "of all tokens")
    return PageTable(header, rows, idle, f"All {len(rows)} ranks" if len(rows) > _FOLDED_FROM else "")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
