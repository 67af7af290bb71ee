"""The searches that are compared: ours, LoadGen's FindPeakPerformance, and plain bisection."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from benchmarks.peak.prober import START_S, SimulatedProber
from benchmarks.peak.server_model import Server
from benchmarks.peak.settings import Setting
from benchmarks.peak.workload import Outcome, Workload
from harness.config.scenario import Scenario
from harness.peak.search.policy import History, SearchSettings, bracket, search

DECIMALS = 1  # LoadGen's server_find_peak_qps_decimals_of_precision
TOLERANCE = 0.01
MOST_RUNS = 40


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search: ``rate`` 0 where it found none.

    ``full`` runs lasted to their last answer, ``cut`` ones were ended before; ``in_full`` counts a cut run
    by its share of the schedule.
    """

    rate: float
    full: int
    cut: int
    in_full: float
    seconds: float
    end: str = ""


@dataclass
class _Runs:
    """Runs one after another, each with different noise, on a server that ages."""

    server: Server
    workload: Workload
    seed: int
    age_s: float = 0.0
    count: int = 0
    log: list[tuple[float, bool]] = field(default_factory=list)

    def outcome(self, rate: float) -> Outcome:
        """A complete run, from its start to its last answer."""
        outcome = self.workload.outcome(
            self.server, rate, seed=self.seed * 1000 + 500 + self.count, age_s=self.age_s, cut=False
        )
        self.count += 1
        self.age_s += float(outcome.answers.done.max())
        return outcome


def loadgen(setting: Setting, start_qps: float, seed: int = 0) -> Found:
    """LoadGen's: the start has to pass, doubling until a run fails, halving until 0.1 queries/s are left.

    A run passes when both 99th percentiles are within their limits; early stopping is not asked. Runs follow
    one another in one process, each to its last answer (loadgen.cc, FindPeakPerformanceMode).
    """
    runs = _Runs(setting.server, setting.workload(), seed)

    def passes(rate: float) -> bool:
        return runs.outcome(rate).p99_within_limits

    def found(rate: float, end: str = "") -> Found:
        return Found(rate, runs.count, 0, runs.count, runs.age_s + START_S, end)

    low = start_qps
    if not passes(low):
        return found(0.0, "start failed")
    high = 2 * low
    while passes(high):
        low, high = high, 2 * high
    unit = 10**DECIMALS
    while math.floor(low * unit) + 1 < math.floor(high * unit):
        middle = low + (high - low) / 2
        if passes(middle):
            low = middle
        else:
            high = middle
    return found(low)


def bisection(setting: Setting, start_qps: float, seed: int = 0) -> Found:
    """By hand: official runs, doubled from a start, then the middle until TOLERANCE is left."""
    runs = _Runs(setting.server, setting.workload(), seed)

    def passes(rate: float) -> bool:
        valid = runs.outcome(rate).valid
        runs.age_s += START_S
        return valid

    low, high = 0.0, start_qps
    while passes(high) and runs.count < MOST_RUNS:
        low, high = high, 2 * high
    while high - low > TOLERANCE * high and runs.count < MOST_RUNS:
        middle = (low + high) / 2
        if passes(middle):
            low = middle
        else:
            high = middle
    return Found(low, runs.count, 0, runs.count, runs.age_s)


def ours(setting: Setting, seed: int = 0) -> tuple[Found, History]:
    """find_peak.py's policy in virtual time, without a rate to start from."""
    workload, server = setting.workload(), setting.server
    prober = SimulatedProber(server, workload, seed)
    settings = SearchSettings(
        scenario=Scenario.INTERACTIVE if setting.benchmark == "interactive" else Scenario.SERVER,
        loadgen=workload.loadgen_settings(),
        samples=len(workload.tokens),
        replicas=server.replicas,
        slots=server.slots * server.replicas,
        tolerance=TOLERANCE,
    )
    history, ended = search(prober, settings, History())
    complete = [one for one in history.probes if one.cut_after_s is None]
    cut = [one for one in history.probes if one.cut_after_s is not None]
    return Found(
        bracket(history.probes).low or 0.0,
        len(complete),
        len(cut),
        len(complete) + sum(one.seconds / one.planned_s for one in cut),
        prober.age_s,
        f"{ended.outcome}: {ended.why}",
    ), history
