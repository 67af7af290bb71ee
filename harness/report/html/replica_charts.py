"""Charts of the replicas over time: every one of a few, of many those that differ most from the rest."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from harness.analysis.queries import Queries, of_replica
from harness.analysis.replicas import middle_of
from harness.analysis.run_files import RunFiles
from harness.analysis.timeline import Bins, bins_of, percentiles, tokens_per_second
from harness.arrays import Floats
from harness.record.replica_figures import ReplicaFigures
from harness.report.html.page import Chart, Series

_ALL_UP_TO = 6  # replicas that are all drawn
_HIGHLIGHTED = 4  # of more
_GREY = 7  # the colour of the rest
_MS = 1e3

_View = Callable[[Queries, Bins], Floats]


def replica_charts(run: RunFiles, queries: Queries, figures: Mapping[str, ReplicaFigures]) -> Iterator[Chart]:
    """Tokens a second and median TPOT of several replicas. ``figures`` are by URL."""
    shown = _most_different(figures)
    bins = bins_of(queries, run.until, parts=len(figures))
    rest = len(figures) - len(shown)
    note = f"the {len(shown)} that differ most, and the median of all {len(figures)}" if rest else ""
    views: tuple[tuple[str, str, _View], ...] = (
        ("replica-tokens", "Output tokens a second, by replica", tokens_per_second),
        ("replica-tpot", "Median TPOT by time of issue and replica, ms", _tpot),
    )
    numbers = {url: number for number, url in enumerate(queries.replicas)}  # of those that got a query
    for name, title, view in views:
        lines = {
            url: view(of_replica(queries, numbers.get(url, len(numbers))), bins)
            for url in (figures if rest else shown)
        }
        series = [Series(_short(url), lines[url], color) for color, url in enumerate(shown)]
        if rest:
            series.append(Series("median of all", _median(list(lines.values())), _GREY))
        yield Chart(name, title, bins.middles, series, together="time", note=note)


def _most_different(figures: Mapping[str, ReplicaFigures]) -> list[str]:
    """In the order of the URLs where all are shown, else the most different first."""
    if len(figures) <= _ALL_UP_TO:
        return list(figures)
    tokens = np.array([one.output_tokens for one in figures.values()], float)
    tpot = np.array([np.nan if one.tpot_p50 is None else one.tpot_p50 for one in figures.values()])
    distance = np.fmax(_from_median(tokens), _from_median(tpot))
    urls = list(figures)
    return [urls[index] for index in np.argsort(-np.nan_to_num(distance), kind="stable")[:_HIGHLIGHTED]]


def _from_median(values: Floats) -> Floats:
    """The distance from the median, as a part of it."""
    found: Floats = np.abs(values / middle_of(values) - 1)
    return found


def _tpot(queries: Queries, bins: Bins) -> Floats:
    (found,) = percentiles(queries.tpot, queries, bins, (0.5,))
    return found * _MS


def _median(lines: list[Floats]) -> Floats:
    """The median of those that have a value; NaN where none has."""
    values = np.sort(np.array(lines), axis=0)  # NaN is last
    count = np.isfinite(values).sum(axis=0)
    found: Floats = np.take_along_axis(values, np.maximum(count - 1, 0)[None] // 2, axis=0)[0]
    return found


def _short(url: str) -> str:
    return url.partition("://")[2] or url
