"""What the course of a run shows plainly: from when on the servers were saturated.

They are where fewer queries are answered than issued, so that those in flight grow to the end, while the
output tokens per second do not.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from harness.analysis.statistics import completed
from harness.arrays import Floats
from harness.record.journal import Rows
from harness.record.run_record import Diagnosis
from harness.text import moment

_BINS = 24
_FEWEST = 200  # queries
_SHORTEST_S = 10.0
_LASTS = 1 / 4  # of the run that a saturation takes at least
_GROWS = 1.5  # in flight, from its beginning to its end
_BEHIND = 0.025  # by this part of a third's queries more are in flight in its last third than in the second
_FLAT = 0.1  # the part by which the rate of tokens may be higher at its end


def waiting_part(rows: Rows) -> float:
    """The part of the run in which queries that had been issued waited to be sent."""
    sent = rows[rows["sent_ns"] > 0]
    if not len(sent):
        return 0.0
    start, end = sent["issued_ns"].min(), max(sent["last_byte_ns"].max(), sent["sent_ns"].max())
    late = sent["sent_ns"][sent["sent_ns"] - sent["issued_ns"] > 0.01 * (end - start)]
    return float((late.max() - start) / (end - start)) if len(late) else 0.0


def diagnoses(rows: Rows) -> Iterator[Diagnosis]:
    """Everything that is plain."""
    good = completed(rows)
    good = good[good["issued_ns"] > 0]  # without answers of an earlier attempt
    if len(good) < _FEWEST:
        return
    start, issued_until = good["issued_ns"].min(), good["issued_ns"].max()
    if (issued_until - start) / 1e9 < _SHORTEST_S:  # all at once, as in Offline
        return
    edges = np.linspace(0, float(issued_until - start), _BINS + 1)
    load, rate = _in_flight(good, start, edges), _tokens_per_s(good, start, edges)
    issued, _ = np.histogram(good["issued_ns"] - start, edges)
    if (begin := _saturated(load, rate, issued)) is not None:
        yield Diagnosis(
            from_s=round(float(edges[begin]) / 1e9, 1),
            text=f"saturated: queries in flight grow from {load[begin]:.0f} to {load[-1]:.0f}, "
            f"output stays at {rate[begin:].mean():,.0f} tokens/s",
        )


def diagnosis_text(one: Diagnosis) -> str:
    """``from 0:28 on saturated: ...``."""
    return f"from {moment(one.from_s)} on {one.text}"


def _in_flight(rows: Rows, start: int, edges: Floats) -> Floats:
    """The mean over each interval."""
    issued = np.sort(rows["issued_ns"] - start)
    ended = np.sort(rows["last_byte_ns"] - start)
    points = np.linspace(edges[:-1], edges[1:], 9)[:-1]
    counts = np.searchsorted(issued, points, "right") - np.searchsorted(ended, points, "right")
    means: Floats = counts.mean(axis=0)
    return means


def _tokens_per_s(rows: Rows, start: int, edges: Floats) -> Floats:
    """Each answer's tokens are spread evenly between its first and its last."""
    last = (rows["last_byte_ns"] - start).astype(float)
    first = np.where(rows["first_token_ns"] > 0, rows["first_token_ns"] - start, rows["issued_ns"] - start)
    first = np.minimum(first.astype(float), last - 1.0)
    total = np.array([(rows["osl"] * ((at - first) / (last - first)).clip(0, 1)).sum() for at in edges])
    rate: Floats = np.diff(total) / (np.diff(edges) / 1e9)
    return rate


def _saturated(load: Floats, rate: Floats, issued: npt.NDArray[np.int64]) -> int | None:
    """The first interval from which the load grows to the end at a flat rate; None where there is none.

    The rate may not have been clearly higher before: a server that became slower is not the same. Nor is a
    load that grows until the first answers end, which may take a minute, or to that of a slower server.
    """
    fewest = int(_BINS * _LASTS)
    for begin in range(1, _BINS - fewest + 1):
        tail_load, tail_rate = load[begin:], rate[begin:]
        slope = np.polyfit(np.arange(len(tail_load)), tail_load, 1)
        steady = np.abs(tail_load - np.polyval(slope, np.arange(len(tail_load)))).mean()
        grows = tail_load[-1] >= _GROWS * max(tail_load[0], 1.0) and steady <= 0.15 * tail_load.max()
        _, second, last = np.array_split(tail_load, 3)
        behind = last.mean() - second.mean() >= _BEHIND * issued[begin:].sum() / 3
        middle = len(tail_rate) // 2
        ends = tail_rate[middle:].mean()
        flat = ends <= (1 + _FLAT) * tail_rate[:middle].mean() and tail_rate.std() <= _FLAT * tail_rate.mean()
        if grows and behind and flat:
            return begin
    return None
