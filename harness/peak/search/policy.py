"""The policy of a search: what is measured next, as a function of what has been measured.

No clock and no I/O: time spent is the sum of the steps' and probes' own times, so that a search resumes from
its history and runs against a simulator.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from harness.config.loadgen_settings import Setting, limits_ns
from harness.config.scenario import Scenario
from harness.peak.ladder.steps import Step
from harness.peak.search.climb_order import keeps, next_concurrency
from harness.peak.search.pool_model import MOST_OF_FULL, Predictor, peak_by_tpot, pool_model
from harness.peak.search.probe import Probe, Prober
from harness.peak.search.schedule import Schedule, rounded
from harness.text import counted, figure


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a search has before its first measurement."""

    scenario: Scenario
    loadgen: Mapping[str, Setting]
    """as read back from LoadGen: seeds, min_duration, limits"""
    samples: int
    """rows of the dataset"""
    replicas: int = 1
    slots: int | None = None
    """requests that all servers together run at once; None where they do not report it"""
    tolerance: float = 0.01
    budget_s: float | None = None
    start_qps: float | None = None
    most_in_flight: int | None = None
    """requests that this client can hold: --max-concurrency, ports, open files"""
    step_s: float = 0.0
    """time that a step of the ladder takes at least"""
    connections: int | None = None
    """ports and open files alone; None where --max-concurrency keeps further queries in this client"""


class History(msgspec.Struct, frozen=True):
    """The measurements of a search, in the order of time."""

    steps: tuple[Step, ...] = ()
    probes: tuple[Probe, ...] = ()

    @property
    def text(self) -> str:
        """``4 steps and 1 run``."""
        return f"{counted(len(self.steps), 'step')} and {counted(len(self.probes), 'run')}"

    @property
    def spent_s(self) -> float:
        """Time that the measurements took."""
        return sum(step.seconds + step.filling_s for step in self.steps) + sum(
            one.cost_s for one in self.probes
        )


class NextStep(msgspec.Struct, frozen=True, tag="step"):
    """Measure a step of the ladder."""

    concurrency: int


class NextProbe(msgspec.Struct, frozen=True, tag="probe"):
    """Measure a run of official length."""

    rate: float
    why: str


SearchEnd = Literal["FOUND", "AT_LEAST", "NOTHING_PASSES", "BUDGET", "STOPPED"]


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The end of all measurements.

    ``AT_LEAST``: no latency limit was reached, but one of this client. ``STOPPED``: none is possible.
    """

    outcome: SearchEnd
    why: str


Next = NextStep | NextProbe
Action = Next | Ended

_MORE_CPU = "give it more CPU time (--num-workers, an idle machine) and repeat the command with --restart"
_MORE_ROOM = (
    "allow it more open files (ulimit -n) or ports, as ./mlperf doctor says, and repeat with --restart"
)
_TOO_WIDE = "they are so wide that more queries would only wait"
_NEAR = 0.1  # A given rate needs no ladder where the p99 of its run differs by less from the limit.
_JUMP = 1.25  # A rate is raised by this factor where nothing predicts the peak.
_MOST_BOUND = 1  # The search ends after more INVALID runs in which this client was a bottleneck.
_MOST_PROBES = 16  # The most runs of a search.


def search(
    prober: Prober,
    settings: SearchSettings,
    history: History,
    keep: Callable[[History, Step | Probe], None] = lambda history, one: None,
    show: Callable[[Next, float], None] = lambda action, spent_s: None,
) -> tuple[History, Ended]:
    """Measure until the policy ends it, resuming from ``history``.

    ``show`` gets what comes next, and the time spent; ``keep`` all that is measured, and the last of it.

    Raises what ``prober`` raises; the measurements until then have been kept.
    """
    policy = Policy(settings)
    while not isinstance(action := policy.decide(history), Ended):
        show(action, history.spent_s)
        if isinstance(action, NextStep):
            step = prober.ladder(action.concurrency)
            history = History((*history.steps, step), history.probes)
            keep(history, step)
        else:
            probe = prober.probe(action.rate)
            history = History(history.steps, (*history.probes, probe))
            keep(history, probe)
    return history, action


class Bracket(msgspec.Struct, frozen=True):
    """The probes' bracket: the highest rate that mostly passes, and the lowest above it that does not."""

    low: float | None
    high: float | None

    @property
    def width(self) -> float:
        """Share by which the upper end is above the lower one."""
        return math.inf if self.low is None or self.high is None else self.high / self.low - 1


def tally(probes: Sequence[Probe]) -> dict[float, tuple[int, int]]:
    """Runs that were VALID and INVALID, by rate, ascending."""
    counts: dict[float, tuple[int, int]] = {}
    for probe in sorted(probes, key=lambda one: one.rate):
        valid, invalid = counts.get(probe.rate, (0, 0))
        counts[probe.rate] = (valid + (probe.verdict == "VALID"), invalid + (probe.verdict == "INVALID"))
    return counts


def bracket(probes: Sequence[Probe]) -> Bracket:
    """The bracket; a rate that passed as often as it did not is not taken for one that passes."""
    counts = tally(probes)
    low = max((rate for rate, (valid, invalid) in counts.items() if valid > invalid), default=None)
    above = [rate for rate, (valid, invalid) in counts.items() if invalid >= valid and rate > (low or 0)]
    return Bracket(low, min(above, default=None))


class Policy:
    """Chooses the next measurement, as a function of the history alone; replays are kept between calls."""

    def __init__(self, settings: SearchSettings) -> None:
        self._settings = settings
        self.tolerance = settings.tolerance
        self.schedule = Schedule(settings.loadgen, settings.samples)
        self.limits_ns = limits_ns(settings.scenario, settings.loadgen)
        self._predictors: dict[tuple[int, ...], Predictor | None] = {}

    def decide(self, history: History) -> Action:
        """The next measurement, or the end."""
        if stop := _stopped(history):
            return stop
        start = self._settings.start_qps
        if start is not None and not history.probes:
            return self._affordable(history, rounded(start), "the rate that was given")
        if self._wants_ladder(history):
            step = self._step(history)
            if step is not None:
                return step
        return self._next_probe(history)

    def expected_peak(self, history: History) -> float | None:
        """The highest rate that is expected to pass; None where nothing predicts it."""
        if (predictor := self._predictor(history)) is not None:
            return predictor.peak(history.probes)
        return peak_by_tpot(history.probes, self.limits_ns["TPOT"])

    def scales(self, history: History) -> list[float]:
        """The servers' times in each complete probe, as a multiple of the ladder's."""
        predictor = self._predictor(history)
        return [] if predictor is None else predictor.scales(history.probes)

    def beyond_limits(self, history: History, peak: float) -> str | None:
        """The reason why no latency limit ends the rates at ``peak``; None where one does."""
        if limited := self._client_limit(history.steps):
            last = history.probes[-1]
            if not _top(history.steps).client_bound or last.client_bound:
                return limited
            # A bottleneck in the ladder alone was another program's, such as on a busy machine.
            if last.seconds <= MOST_OF_FULL * last.planned_s:
                return None
            return (
                f"the last run took over {MOST_OF_FULL:g} times its schedule within the latency limits: "
                f"{_TOO_WIDE}"
            )
        predictor = self._predictor(history)
        found = None if predictor is None else predictor.beyond(history.probes, peak)
        if predictor is None or found is None:
            return None
        most = self._settings.connections
        if most is not None and found.most_in_flight > most:
            return _holds(most)
        full = predictor.capacity(predictor.scale(history.probes))
        if (bracket(history.probes).low or 0) > MOST_OF_FULL * full:
            return None  # a rate has passed that they would not complete: the ladder shows other servers
        return (
            f"the latency limits are kept at {MOST_OF_FULL:g} times the rate that full servers complete "
            f"({figure(full)} queries/s): {_TOO_WIDE}"
        )

    def _client_limit(self, steps: Sequence[Step]) -> str | None:
        """How the ladder ended at a limit of this client before it showed any of the servers."""
        if not steps:
            return None
        top = _top(steps)
        if top.client_bound:
            at_once = counted(top.concurrency, "request")
            return f"this client was the bottleneck of the ladder with {at_once} in flight"
        most, slots = self._settings.most_in_flight, self._settings.slots
        if most is not None and top.concurrency >= most and (slots is None or most < slots):
            return _holds(most)
        return None

    def cost_s(self, history: History, rate: float) -> float:
        """The duration of a run at ``rate``, with its start and the answers after its last query."""
        tails = [one.cost_s - one.planned_s for one in history.probes if one.cut_after_s is None]
        if not tails:
            tails = [2 * step.latency_s for step in history.steps[-1:] if step.latency_s is not None]
        planned_s = self.schedule.run(rate).seconds
        return planned_s + max(tails, default=planned_s)

    def _wants_ladder(self, history: History) -> bool:
        if history.steps or self._settings.start_qps is None:
            return True
        complete = [one for one in history.probes if one.cut_after_s is None]
        shares = [one.p99_shares(self.limits_ns) for one in complete]
        return not any(len(each) == 2 and abs(max(each.values()) - 1) < _NEAR for each in shares)

    def _step(self, history: History) -> Action | None:
        settings, steps = self._settings, history.steps
        concurrency = next_concurrency(
            steps,
            self.limits_ns,
            replicas=settings.replicas,
            slots=settings.slots,
            most_in_flight=settings.most_in_flight,
        )
        left, run_s = self._left_s(history), float(settings.loadgen["min_duration_ms"]) / 1000
        if concurrency is not None and left is not None and left < settings.step_s + run_s:
            if (low := bracket(history.probes).low) is not None:
                return self._confirmed(history, low, "BUDGET")
            return Ended(
                "BUDGET",
                f"{max(left, 0):.0f} s of the budget are left, a step of the ladder takes "
                f"{settings.step_s:.0f} s and a run {run_s:.0f} s",
            )
        if concurrency is not None:
            return NextStep(concurrency)
        if history.probes or any(keeps(step, self.limits_ns) for step in steps):
            return None
        fewest = min(steps, key=lambda step: step.concurrency)
        missed = f"with {counted(fewest.concurrency, 'request')} in flight a limit is already missed"
        if fewest.client_bound:
            return Ended(
                "STOPPED", f"{missed}, but this client was the bottleneck, not the servers: {_MORE_CPU}"
            )
        return Ended("NOTHING_PASSES", missed)

    def _predictor(self, history: History) -> Predictor | None:
        key = tuple(step.concurrency for step in history.steps)
        if key not in self._predictors:
            self._predictors[key] = self._new_predictor(history.steps)
        return self._predictors[key]

    def _new_predictor(self, steps: Sequence[Step]) -> Predictor | None:
        settings = self._settings
        model = pool_model(steps, min(settings.slots or math.inf, settings.most_in_flight or math.inf))
        if model is None:
            return None
        return Predictor(
            self.schedule,
            self.limits_ns,
            model,
            most_in_flight=settings.connections or math.inf,
            client_limited=self._client_limit(steps) is not None,
        )

    def _next_probe(self, history: History) -> Action:
        tolerance, found = self.tolerance, bracket(history.probes)
        peak = self.expected_peak(history)
        aim = None if peak is None else peak * (1 - tolerance / 2)
        if found.low is None:
            return self._first_valid(history, found.high, aim)
        if found.high is None:
            if aim is None:
                return self._explore(history, found.low * _JUMP, "nothing predicts the peak yet")
            if peak is not None and aim <= found.low * (1 + tolerance):
                beyond = self.beyond_limits(history, peak)
                if beyond is not None:
                    return self._confirmed(history, found.low, "AT_LEAST", f"; {beyond}")
            # A ladder that ended at this client, or was disturbed, predicts too little.
            stride = _JUMP if self._client_limit(history.steps) or aim * _JUMP < found.low else 1 + tolerance
            above = max(aim, found.low * stride)
            return self._explore(history, above, "above the highest rate that passed")
        if found.width <= 2 * tolerance:
            return self._confirmed(history, found.low, "FOUND")
        rate = max(self._below(history, found.high, aim), math.sqrt(found.low * found.high))
        return self._explore(history, rate, "between the highest that passed and the lowest that did not")

    def _first_valid(self, history: History, high: float | None, aim: float | None) -> Action:
        """A rate that may pass, where none has."""
        if high is None:
            if aim is not None:
                return self._explore(history, aim, "the prediction")
            if self._predictor(history) is not None:
                return Ended("NOTHING_PASSES", "none does in a replay of what the ladder measured")
            most = max(step.queries_per_s for step in history.steps)
            return self._explore(
                history, most, "the most that the ladder completed: it has no times of tokens"
            )
        return self._explore(history, self._below(history, high, aim), "nothing passed yet")

    def _below(self, history: History, high: float, aim: float | None) -> float:
        """A rate below one that did not pass: by steps that double, or the expected one where it is lower."""
        lower = high / (1 + self.tolerance * 2.0 ** max(_failed_in_a_row(history.probes) - 1, 0))
        return lower if aim is None else min(aim, lower)

    def _confirmed(self, history: History, rate: float, outcome: SearchEnd, why: str = "") -> Action:
        """The end where two runs at ``rate`` were VALID; else another one."""
        valid, invalid = tally(history.probes)[rate]
        if valid > 1:
            return Ended(outcome, f"VALID in {valid} of {valid + invalid} runs{why}")
        return self._affordable(history, rate, "confirmation")

    def _explore(self, history: History, rate: float, why: str) -> Action:
        """A run at a new rate. The last run that the budget has time for is a confirmation."""
        rate = rounded(rate)
        low, left = bracket(history.probes).low, self._left_s(history)
        if (
            low is not None
            and left is not None
            and left < self.cost_s(history, rate) + self.cost_s(history, low)
        ):
            return self._confirmed(history, low, "BUDGET")
        return self._affordable(history, rate, why)

    def _affordable(self, history: History, rate: float, why: str) -> Action:
        left, cost = self._left_s(history), self.cost_s(history, rate)
        if left is not None and left < cost:
            return Ended("BUDGET", f"{max(left, 0):.0f} s of the budget are left, a run takes {cost:.0f} s")
        return NextProbe(rate, why)

    def _left_s(self, history: History) -> float | None:
        budget = self._settings.budget_s
        return None if budget is None else budget - history.spent_s


def _holds(most: int) -> str:
    return f"this client can hold {counted(most, 'request')} in flight"


def _top(steps: Sequence[Step]) -> Step:
    return max(steps, key=lambda step: step.concurrency)


def _failed_in_a_row(probes: Sequence[Probe]) -> int:
    """The last runs that were INVALID."""
    return len(list(itertools.takewhile(lambda one: one.verdict == "INVALID", probes[::-1])))


def _stopped(history: History) -> Ended | None:
    bound = [one for one in history.probes if one.verdict == "INVALID" and one.client_bound]
    if len(bound) > _MOST_BOUND:
        rates = ", ".join(f"{one.rate:g}" for one in bound)
        outcome: SearchEnd = "STOPPED" if bracket(history.probes).low is None else "AT_LEAST"
        more = _MORE_ROOM if any(one.no_room for one in bound) else _MORE_CPU
        return Ended(outcome, f"this client was a bottleneck of the INVALID runs at {rates}: {more}")
    if len(history.probes) >= _MOST_PROBES:
        return Ended("STOPPED", f"{len(history.probes)} runs without a result")
    return None
