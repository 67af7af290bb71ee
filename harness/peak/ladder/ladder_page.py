"""The page of a ladder: throughput against interactivity, times by concurrency, every step and replica."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np

from harness.arrays import Floats
from harness.peak.ladder.ladder_console import COLUMNS, step_cells
from harness.peak.ladder.ladder_files import LADDER_PAGE, LADDER_REPLICAS, LADDER_STEPS
from harness.peak.ladder.ladder_result import Ladder, broken, unreliable
from harness.peak.ladder.steps import NOT_A_RESULT, Latency, ReplicaStep, Step
from harness.report.html.page import (
    Axis,
    Badge,
    Chart,
    Limit,
    Page,
    PageTable,
    Section,
    Series,
    Tile,
    write_page,
)
from harness.text import milliseconds, utc

_MS = 1e-6
_NAN = float("nan")
_MOST_LINES = 8  # replicas in a chart
_FOLDED_FROM = 24  # rows; a longer table of replicas is folded away
_PERCENTILES: dict[str, Callable[[Latency], int]] = {
    name: attrgetter(f"{name}_ns") for name in ("p50", "p90", "p99")
}


def write_ladder_page(folder: Path, ladder: Ladder) -> None:
    """Write ladder.html. Raises OSError."""
    write_page(folder / LADDER_PAGE, ladder_page(ladder))


def ladder_page(ladder: Ladder) -> Page:
    """The page of a ladder."""
    sections = [
        Section("steps", "Steps", tuple(_lines(ladder)), tables=[_steps_table(ladder)]),
        Section("curve", "Throughput and interactivity", charts=tuple(_curves(ladder))),
        Section("times", "Times by concurrency", charts=tuple(_times(ladder))),
        _replicas(ladder),
        _settings(ladder),
    ]
    return Page(
        f"Ladder of concurrencies: {ladder.benchmark}, {ladder.scenario}",
        f"started {utc(ladder.started)}. Requests in flight, without LoadGen.",
        tuple(_badges(ladder)),
        (*ladder.errors, *ladder.warnings),
        tuple(_headline(ladder)),
        sections,
        footer=f"This is {NOT_A_RESULT}. TTFT and TPOT are of the requests that were issued at a step's "
        "concurrency and ended in its window; tokens/s counts all tokens that arrived in it. The same in "
        f"{LADDER_STEPS} and {LADDER_REPLICAS}.",
    )


def _badges(ladder: Ladder) -> Iterator[Badge]:
    yield Badge(NOT_A_RESULT.upper(), "warn")
    if not ladder.complete:
        yield Badge("ENDED EARLY", "bad")
    if ladder.has_failures:
        yield Badge("FAILED REQUESTS", "bad")
    if any(not step.steady for step in ladder.steps):
        yield Badge("NOT STEADY", "warn")


def _headline(ladder: Ladder) -> Iterator[Tile]:
    best = ladder.best
    if best is None:
        return
    yield Tile(f"{best.tokens_per_s:,.1f}", "tokens/s inside the limits")
    yield Tile(f"{best.queries_per_s:,.2f}", "requests/s")
    yield Tile(f"{best.concurrency:,}", "in flight")
    if (user := best.user_tokens_per_s) is not None:
        yield Tile(f"{user:,.1f}", "tokens/s of a user")


def _lines(ladder: Ladder) -> Iterator[str]:
    yield f"The ladder ended: {ladder.stopped}."
    if (knee := ladder.knee) is not None:
        yield (
            f"The knee is at {knee.concurrency} in flight, where tokens/s times tokens/s of a user is "
            "largest: beyond it users lose more than the system gains."
        )
    unsteady = [str(step.concurrency) for step in ladder.steps if not step.steady]
    if unsteady:
        yield f"No steady state was seen at {', '.join(unsteady)} in flight; the last window is shown."


def _steps_table(ladder: Ladder) -> PageTable:
    rows = [step_cells(step, ladder) for step in ladder.steps]
    header = [f"{name}, ms" if name.startswith("T") else name for name in COLUMNS]
    marked = frozenset(number for number, step in enumerate(ladder.steps) if _is_marked(step, ladder))
    return PageTable(header, rows, marked)


def _is_marked(step: Step, ladder: Ladder) -> bool:
    return bool(broken(step, ladder.limits_ns)) or unreliable(step) or not step.steady


def _curves(ladder: Ladder) -> Iterator[Chart]:
    steps = sorted((one for one in ladder.steps if one.tpot is not None), key=_user)
    if steps:
        rates = _column(steps, lambda step: step.tokens_per_s)
        yield Chart(
            "interactivity",
            "Tokens/s of the system by tokens/s of a user",
            _column(steps, _user),
            [Series("steps", rates), *_points(steps, rates, ladder)],
            "number",
            limits=_knee_at(ladder, _user),
            x_label="tokens/s of a user, 1000 / TPOT p90 in ms",
            note="each point is a concurrency; further right is faster for a user",
        )
    if ladder.steps:
        x = _column(ladder.steps, lambda step: step.concurrency)
        rates = _column(ladder.steps, lambda step: step.tokens_per_s)
        series = [Series("tokens/s", rates, 2), *_points(ladder.steps, rates, ladder)]
        limits = _knee_at(ladder, lambda step: step.concurrency)
        title = "Tokens/s by requests in flight"
        yield Chart("throughput", title, x, series, "number", x_label="in flight", limits=limits)


def _knee_at(ladder: Ladder, where: Callable[[Step], float]) -> list[Limit]:
    """A line across at the knee."""
    knee = ladder.knee
    return [] if knee is None else [Limit(f"knee: {knee.concurrency} in flight", where(knee), "x")]


def _points(steps: Sequence[Step], rates: Floats, ladder: Ladder) -> Iterator[Series]:
    """The steps to emphasize, as separate points."""
    knee = np.array([step is ladder.knee for step in steps])
    beyond = np.array([bool(broken(step, ladder.limits_ns)) for step in steps])
    for label, color, mask in (("knee", 1, knee), ("beyond a limit", 3, beyond)):
        if mask.any():
            yield Series(label, np.where(mask, rates, _NAN), color, "points")


def _times(ladder: Ladder) -> Iterator[Chart]:
    x = _column(ladder.steps, lambda step: step.concurrency)
    for name, latencies in (
        ("TPOT", [step.tpot for step in ladder.steps]),
        ("TTFT", [step.ttft for step in ladder.steps]),
    ):
        if not any(latencies):
            continue
        series = [
            Series(label, np.array([_NAN if one is None else take(one) * _MS for one in latencies]), color)
            for color, (label, take) in enumerate(_PERCENTILES.items())
        ]
        limit = ladder.limits_ns.get(name)
        limits = [] if limit is None else [Limit(f"p99 limit {milliseconds(limit)} ms", limit * _MS)]
        title = f"{name} by requests in flight, ms"
        y_axis: Axis = "log" if name == "TTFT" else "number"
        yield Chart(f"{name.lower()}-by-n", title, x, series, "number", y_axis, "in flight", limits)


def _replicas(ladder: Ladder) -> Section:
    if len(ladder.servers) < 2:
        return Section("replicas", "Replicas")
    rows = [_replica_cells(step, one) for step in ladder.steps for one in step.replicas]
    header = ("in flight", "replica", "of them here", "req/s", "tokens/s", "TTFT p99, ms", "TPOT p50, ms")
    folded = f"{len(ladder.servers)} replicas in each step" if len(rows) > _FOLDED_FROM else ""
    lines = (
        "tokens/s are here of the answers that ended in the window.",
        "Requests here are req/s times their mean latency: in a short window not exactly those in flight.",
    )
    return Section("replicas", "Replicas", lines, charts=tuple(_replica_chart(ladder)), tables=[
        PageTable(header, rows, folded=folded)
    ])  # fmt: skip


def _replica_cells(step: Step, one: ReplicaStep) -> tuple[str, ...]:
    return (
        str(step.concurrency),
        one.url,
        f"{one.in_flight:.1f}",
        f"{one.queries_per_s:,.2f}",
        f"{one.ended_tokens_per_s:,.1f}",
        "-" if one.ttft is None else milliseconds(one.ttft.p99_ns),
        "-" if one.tpot is None else milliseconds(one.tpot.p50_ns),
    )


def _replica_chart(ladder: Ladder) -> Iterator[Chart]:
    """Median TPOT of the first replicas, a line each."""
    x = _column(ladder.steps, lambda step: step.concurrency)
    shown = range(min(len(ladder.servers), _MOST_LINES))
    series = [
        Series(ladder.servers[n].url, np.array([_tpot_ms(step.replicas[n]) for step in ladder.steps]), n)
        for n in shown
    ]
    if not any(np.isfinite(one.values).any() for one in series):
        return
    left = len(ladder.servers) - len(shown)
    note = f"the first {len(shown)}; {left} more are in the table" if left else ""
    yield Chart(
        "replica-tpot", "Median TPOT of each replica, ms", x, series, "number", x_label="in flight", note=note
    )


def _tpot_ms(one: ReplicaStep) -> float:
    return _NAN if one.tpot is None else one.tpot.p50_ns * _MS


def _settings(ladder: Ladder) -> Section:
    """The settings of the ladder, and its servers."""
    rows = [
        ("dataset", f"{ladder.samples:,} samples of {ladder.input_file}, in order, repeated"),
        ("wanted", ", ".join(map(str, ladder.wanted))),
        ("measured", f"{ladder.seconds:g} s each after the filling, longer where an answer takes longer"),
        ("answers", f"at most {ladder.parameters.max_new_tokens} tokens"),
        *(("server", f"{one.url}: {one.software}, {one.names}") for one in ladder.servers),
        *(("deviation", deviation) for deviation in ladder.deviations),
    ]
    return Section("settings", "Settings", tables=[PageTable(("", ""), rows)])


def _user(step: Step) -> float:
    return step.user_tokens_per_s or 0.0


def _column(steps: Sequence[Step], value: Callable[[Step], float]) -> Floats:
    return np.array([value(step) for step in steps], dtype=float)
