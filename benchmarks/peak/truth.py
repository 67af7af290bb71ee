"""The true peak of a setting: the largest rate whose run of official length is VALID.

Rates are looked through from above, 1 % apart with the best rate of each number of datasets between them,
then 0.25 % apart. With noise a rate counts as passing when the run is VALID in at least half of REALISATIONS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.peak.server_model import Server
from benchmarks.peak.workload import Workload

REALISATIONS = 5
COARSE, FINE = 0.01, 0.0025
_NARROW = 0.97  # of the rates between which the scan's begin is looked for


def true_peak(server: Server, workload: Workload, age_s: float = 0.0) -> float:
    """The largest VALID rate of ``server`` at an age; 0 where none is."""
    top = _too_high(server, workload, age_s)
    above = top
    for rate in _from_above(workload, top, COARSE):
        if passes(server, workload, rate, age_s):
            fine = [r for r in _from_above(workload, above, FINE) if rate < r < above]
            return next((r for r in fine if passes(server, workload, r, age_s)), rate)
        above = rate
    return 0.0


def passes(server: Server, workload: Workload, rate: float, age_s: float = 0.0) -> bool:
    """Whether at least half of the runs at a rate are VALID."""
    tries = REALISATIONS if server.noise else 1
    needed = (tries + 1) // 2
    valid = 0
    for index in range(tries):
        valid += workload.outcome(server, rate, seed=1_000_000 + index, age_s=age_s).valid
        if valid == needed:
            return True
        if valid + tries - 1 - index < needed:
            return False
    return False


def _too_high(server: Server, workload: Workload, age_s: float) -> float:
    """A rate well above the peak: a step of the number of datasets above one that does not pass."""
    low, high = 0.0, 1.0
    while passes(server, workload, high, age_s):
        low, high = high, 2 * high
    while low < _NARROW * high and high > 1e-3:
        middle = (low + high) / 2
        if passes(server, workload, middle, age_s):
            low = middle
        else:
            high = middle
    return high * (1 + min(0.15, 1.5 / workload.run(high).datasets))


def _from_above(workload: Workload, top: float, step: float) -> Iterator[float]:
    """Rates of a grid that does not depend on ``top``, and the best rate of each number of datasets."""
    index = math.floor(math.log(top) / math.log1p(step))
    last = top
    for _ in range(10_000):
        rate = (1 + step) ** index
        if rate < top / 1000:
            return
        datasets = workload.run(rate).datasets
        best = workload.best_rate(datasets)
        if rate < best < last:
            yield best
        yield rate
        last = rate
        index -= 1
