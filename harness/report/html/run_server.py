"""The servers' own metrics during the run: requests running and queued, use of the KV cache."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from harness.analysis.run_files import RunFiles
from harness.analysis.server_load import ServerSamples, read_samples
from harness.arrays import Floats
from harness.errors import DatasetError
from harness.files import SERVER_METRICS
from harness.record.run_record import ServerLoad
from harness.record.server_metrics import QUANTITIES
from harness.report.html.page import Chart, PageTable, Section, Series, Style
from harness.report.html.run_events import ranks_table
from harness.text import first_few

_MOST_POINTS = 600
_LINE_FROM = 20  # readings; fewer are not joined to a line
_LISTED = 8  # servers without metrics that are named
_NS = 1e9


def server_section(run: RunFiles) -> Section:
    """Sentences, levels over time, and a table; empty where the servers' metrics were not read."""
    load = run.record.server_load if run.record is not None else None
    if load is None:
        return Section("server", "Server")
    lines = [*(f"{note[:1].upper()}{note[1:]}." for note in load.notes), *_without(load)]
    tables = tuple(_tables(load))
    try:
        samples = read_samples(run.folder / SERVER_METRICS)
    except FileNotFoundError:
        return Section("server", "Server", lines, tables=tables)
    except DatasetError as error:
        return Section("server", "Server", [*lines, str(error)], tables=tables)
    start = run.queries.start_ns if run.queries is not None else 0
    return Section("server", "Server", lines, charts=tuple(_charts(samples, start)), tables=tables)


def _without(load: ServerLoad) -> Iterator[str]:
    if not load.without:
        return
    shown = first_few((f"{url}: {why}" for url, why in load.without.items()), _LISTED)
    yield f"Servers without metrics: {shown}."


def _charts(samples: ServerSamples, start_ns: int) -> Iterator[Chart]:
    if not len(samples.times_ns):
        return
    seconds = (samples.times_ns - (start_ns or samples.times_ns[0])) / _NS
    levels = samples.levels
    counts = {key: levels[key].total for key in ("running", "queued") if key in levels}
    if counts:
        yield _over_time(
            "server-requests", "Requests at the servers", seconds, counts, "all servers together"
        )
    used: dict[str, Floats] = {}
    for key, name in (("kv_use", "KV cache"), ("swa_kv_use", "sliding windows")):
        if key in levels:
            used |= {f"{name}, mean": levels[key].mean * 100, f"{name}, fullest": levels[key].highest * 100}
    if used:
        yield _over_time("server-kv", "KV cache in use, %", seconds, used, "mean and highest of all servers")

    if "gpu_power" in levels:
        power = {"W": levels["gpu_power"].total}
        yield _over_time("gpu-power", "Power of the GPUs, W", seconds, power, "all GPUs, not MLPerf Power")
    for key, name, title in (
        ("gpu_clock", "gpu-clock", "Clocks of the GPUs, MHz"),
        ("gpu_temperature", "gpu-temperature", "Temperatures of the GPUs, degrees C"),
    ):
        if key in levels:
            both = {"mean": levels[key].mean, "highest": levels[key].highest}
            yield _over_time(name, title, seconds, both, "")


def _over_time(name: str, title: str, seconds: Floats, values: Mapping[str, Floats], note: str) -> Chart:
    style: Style = "line" if len(seconds) >= _LINE_FROM else "points"
    note = note if style == "line" else ", ".join(filter(None, (note, f"{len(seconds)} readings")))
    series = [
        Series(label, _thinned(column), color, style) for color, (label, column) in enumerate(values.items())
    ]
    return Chart(name, title, _thinned(seconds), series, together="time", note=note)


def _thinned(values: Floats) -> Floats:
    """Means of neighbours, at most 600; NaN where one is missing."""
    width = math.ceil(len(values) / _MOST_POINTS)
    starts = np.arange(0, len(values), width)
    sums: Floats = np.add.reduceat(values, starts)
    return sums / np.diff(starts, append=len(values))


def _tables(load: ServerLoad) -> Iterator[PageTable]:
    rows: Sequence[tuple[str, str, str, str]] = [
        (QUANTITIES[key].meaning, _figure(level.mean), _figure(level.max), f"{level.share:.0%}")
        for key, level in load.levels.items()
        if key in QUANTITIES
    ]
    yield ranks_table(load.ranks)
    whose = "of a server or data-parallel rank, read every few seconds"
    yield PageTable((whose, "mean", "highest", "of the run above 0 (KV: 95 %)"), rows)
    counted = [
        (QUANTITIES[key].meaning, f"{count:,.0f}") for key, count in load.counts.items() if key in QUANTITIES
    ]
    yield PageTable(("in the run, of all servers", "count"), counted)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
