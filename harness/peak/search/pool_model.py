"""A model of the servers from a ladder and probes, and the highest rate that passes in its replay."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.arrays import Floats
from harness.peak.ladder.steps import Step
from harness.peak.search.probe import Probe
from harness.peak.search.replay import PoolModel, Replayed, replay
from harness.peak.search.schedule import Schedule

_NS = 1e9
_QUEUES = 0.93  # of the requests in flight: where fewer run, the others wait for a slot
MOST_OF_FULL = 2.0  # of the rate that full servers complete: a run at more takes over twice its schedule
_CALM = 0.5  # of the limit of TTFT
_PRECISION = 0.002  # of a rate that is searched for in replays
_STRIDE = 1.1
_STRIDES = 40
_SCALES = (0.4, 2.5)  # within which a scale is searched for
_SCALE_PRECISION = 0.001


@dataclass(frozen=True, slots=True)
class _Point:
    """A step as a point of TPOT(N): requests that make tokens, and seconds per token of one."""

    step: Step
    running: float
    tpot_s: float

    @property
    def queues(self) -> bool:
        return self.running < _QUEUES * self.step.in_flight


def pool_model(steps: Sequence[Step], slots: int | None, ttft_ns: int) -> PoolModel | None:
    """The pool of servers that a ladder shows; None where it shows too little.

    ``slots`` is what the servers report. A ladder in which requests waited shows it, too: the lower one
    holds. Times to the first token are taken where they are well below their limit, ``ttft_ns``: longer
    ones are of a queue, which the replay makes itself.
    """
    points = sorted(_points(steps), key=lambda point: point.running)
    if not points:
        return None
    free = [point for point in points if not point.queues] or points[:1]
    full = [point.running for point in points if point.queues]
    found = min(math.inf if slots is None else float(slots), max(full, default=math.inf))
    typical = free[-1].step
    lengths = _lengths(points)
    first = [point.step for point in free if point.step.ttft and point.step.ttft.p99_ns <= _CALM * ttft_ns]
    unhurried = first[-1] if first else free[0].step
    return PoolModel(
        running=tuple(point.running for point in points),
        tpot_s=tuple(np.maximum.accumulate([point.tpot_s for point in points]).tolist()),
        slots=max(found, 1.0),
        first_s=np.array(unhurried.ttft_samples_ns) / _NS,
        spread=np.array(typical.tpot_samples_ns) / _NS / free[-1].tpot_s,
        lengths=lengths,
    )


def _points(steps: Sequence[Step]) -> list[_Point]:
    found = []
    for step in steps:
        decoded = step.tokens_per_s - step.queries_per_s  # the first tokens are those of the prefill
        if not step.ttft_samples_ns or not step.tpot_samples_ns or decoded <= 0:
            continue
        waiting = step.queries_per_s * float(np.mean(step.ttft_samples_ns)) / _NS  # Little's law
        running = max(step.in_flight - waiting, 0.02 * step.in_flight)
        found.append(_Point(step, running, running / decoded))
    return found


def _lengths(points: Sequence[_Point]) -> Floats:
    """Output tokens of the requests of all steps, stretched to the mean that the rates show.

    The answers that end in a window are the shorter ones; tokens per second over queries per second are not
    biased so.
    """
    seen = [np.array(point.step.osl_samples, dtype=np.float64) for point in points if point.step.osl_samples]
    seconds = sum(point.step.seconds for point in points)
    tokens = sum(point.step.tokens_per_s * point.step.seconds for point in points)
    mean = tokens / max(sum(point.step.queries_per_s * point.step.seconds for point in points), 1 / seconds)
    lengths = np.concatenate(seen) if seen else np.array([mean])
    stretched: Floats = np.maximum(1.0, np.round(lengths * (mean / lengths.mean())))
    return stretched


def peak_by_tpot(probes: Sequence[Probe], limit_ns: int) -> float | None:
    """The rate at which TPOT reaches its limit, by two complete probes; None where they do not show it.

    With TPOT = a + b N and N = rate x TPOT x tokens, 1 / TPOT is linear in the rate.
    """
    known = {one.rate: one.tpot_p99_ns for one in probes if one.cut_after_s is None and one.tpot_p99_ns}
    nearest = sorted(known, key=lambda rate: abs(known[rate] - limit_ns))[:2]
    if len(nearest) < 2:
        return None
    (one, other), wanted = nearest, 1 / limit_ns
    slope = (1 / known[other] - 1 / known[one]) / (other - one)
    return one + (wanted - 1 / known[one]) / slope if slope < 0 else None


class Predictor:
    """Replays with one ladder's model, at any scale. Results are kept, since a search asks again for them.

    No rate is predicted at which queries come more than twice as fast as the full pool completes them, nor
    one with more than ``most_in_flight`` requests in flight. ``client_limited``: the ladder shows this
    client's limit; then no more than the pool was seen to complete is predicted, unless a limit is missed.
    """

    def __init__(
        self,
        schedule: Schedule,
        limits_ns: Mapping[str, int],
        model: PoolModel,
        *,
        most_in_flight: float = math.inf,
        client_limited: bool = False,
    ) -> None:
        self._schedule = schedule
        self._model = model
        self._most_in_flight, self._client_limited = most_in_flight, client_limited
        self._ttft_s, self._tpot_s = limits_ns["TTFT"] / _NS, limits_ns["TPOT"] / _NS
        self._kept: dict[tuple[float, float, float], Replayed] = {}

    def replay(self, model: PoolModel, rate: float) -> Replayed:
        """The run at ``rate``."""
        key = (model.scale, model.slots, rate)
        if key not in self._kept:
            self._kept[key] = replay(model, self._schedule, rate, self._ttft_s, self._tpot_s)
        return self._kept[key]

    def highest_passing(self, model: PoolModel, near: float) -> float | None:
        """The highest rate at which the replay passes; None where none does.

        The search begins at ``near``. Just above a best rate of the schedule the run is longer and may not
        pass, while it passes again below the next: of those the highest counts.
        """
        passes = self._passes(model)
        low = near
        for _ in range(_STRIDES):
            if passes(low):
                break
            low /= _STRIDE
        else:
            return None
        high = low * _STRIDE
        for _ in range(_STRIDES):
            if not passes(high):
                break
            low, high = high, high * _STRIDE
        while high / low - 1 > _PRECISION:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if passes(middle) else (low, middle)
        return low

    def capacity(self, model: PoolModel | None = None) -> float:
        """Queries per second that the pool completes when it is full."""
        model = model or self._model
        running = min(model.slots, model.running[-1])
        tpot_s = model.tpot_table(math.ceil(running))[-1]
        return running / (tpot_s * float(model.lengths.mean()) + float(model.first_s.mean()) * model.scale)

    def peak(self, probes: Sequence[Probe]) -> float | None:
        """The highest rate that would pass, as the ladder and the probes show the servers."""
        model = self.fitted(probes)
        near = probes[-1].rate if probes else 0.95 * self.capacity(model)
        peak = self.highest_passing(model, near)
        if peak is not None and self._client_limited and self._above(model, peak).passes:
            return min(peak, self.capacity(model))
        return peak

    def beyond(self, probes: Sequence[Probe], peak: float) -> Replayed | None:
        """The replay just above ``peak`` where it keeps the latency limits: these do not end the rates."""
        found = self._above(self.fitted(probes), peak)
        return found if found.passes else None

    def _above(self, model: PoolModel, peak: float) -> Replayed:
        return self.replay(model, peak * (1 + 2 * _PRECISION))

    def fitted(self, probes: Sequence[Probe]) -> PoolModel:
        """The model with the scale that explains the probes, newer ones with more weight.

        The TPOT of complete probes gives the scale. A probe that was cut gives it where none was complete;
        where one was, a cut for late first tokens gives the slots: the queue began elsewhere.
        """
        model, scales = self._model, self.scales(probes)
        cuts = [probe for probe in probes if probe.cut_after_s is not None]
        if not scales:
            scales = [self._scale(model, _cut_later(probe), probe.rate) for probe in cuts]
            return model.scaled(_weighted(scales)) if scales else model
        model = model.scaled(_weighted(scales))
        for probe in cuts[-1:]:
            model = self._with_cut(model, probe)
        return model

    def scales(self, probes: Sequence[Probe]) -> list[float]:
        """The scale that explains the TPOT of each complete probe."""
        return [
            self._scale(self._model, _slower(probe.tpot_p99_ns / _NS), probe.rate)
            for probe in probes
            if probe.cut_after_s is None and probe.tpot_p99_ns
        ]

    def _with_cut(self, model: PoolModel, probe: Probe) -> PoolModel:
        if self.replay(model, probe.rate).passes is False:
            return model
        if probe.over_ttft < probe.over_tpot:
            return model.scaled(self._scale(model, _cut_later(probe), probe.rate))
        full = min(model.slots, float(self.replay(model, probe.rate).most_in_flight))
        low, high = 0.3 * full, full
        while high / low - 1 > _SCALE_PRECISION * 3:
            middle = math.sqrt(low * high)
            found = self.replay(replace(model, slots=middle), probe.rate).cut_s
            early = found is not None and probe.cut_after_s is not None and found < probe.cut_after_s
            low, high = (middle, high) if early else (low, middle)
        return replace(model, slots=high)

    def _scale(self, model: PoolModel, excess: Callable[[Replayed], float], rate: float) -> float:
        """The scale at which ``excess``, which grows with it, is 0."""
        low, high = _SCALES
        near = 1.0
        for step in (1.02, 1.1, 2.5):
            if (
                excess(self.replay(model.scaled(near / step), rate))
                <= 0
                < excess(self.replay(model.scaled(near * step), rate))
            ):
                low, high = near / step, near * step
                break
        while high / low - 1 > _SCALE_PRECISION:
            middle = math.sqrt(low * high)
            low, high = (
                (middle, high) if excess(self.replay(model.scaled(middle), rate)) <= 0 else (low, middle)
            )
        return math.sqrt(low * high)

    def _passes(self, model: PoolModel) -> Callable[[float], bool]:
        most_rate = MOST_OF_FULL * self.capacity(model)

        def passes(rate: float) -> bool:
            if rate > most_rate:
                return False
            found = self.replay(model, rate)
            return found.passes and found.most_in_flight <= self._most_in_flight

        return passes


def _slower(tpot_p99_s: float) -> Callable[[Replayed], float]:
    return lambda one: one.tpot_p99_s - tpot_p99_s


def _cut_later(probe: Probe) -> Callable[[Replayed], float]:
    """Above 0 where a replay is cut earlier than the probe was."""
    cut_s = probe.cut_after_s
    assert cut_s is not None
    return lambda one: -1.0 if one.cut_s is None else cut_s - one.cut_s


def _weighted(values: Sequence[float]) -> float:
    """The mean, each value with half of the weight of the one behind it."""
    weights = [0.5 ** (len(values) - 1 - number) for number in range(len(values))]
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
