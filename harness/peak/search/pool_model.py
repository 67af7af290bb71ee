"""A model of the servers from a ladder and probes, and the highest rate that passes in its replay."""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from harness.arrays import Floats
from harness.peak.ladder.steps import Step
from harness.peak.search.probe import Probe
from harness.peak.search.replay import PoolModel, Replayed, replay
from harness.peak.search.schedule import LOWEST_RATE, Schedule, bisected

_NS = 1e9
_QUEUES = 0.93  # Where fewer than this part of the requests in flight run, the others wait for a slot.
# Above this multiple of the rate that full servers complete, a run takes over twice its schedule.
MOST_OF_FULL = 2.0
_PRECISION = 0.002  # Replays find rates and scales to this share.
_SCALES = (0.4, 2.5)  # A scale is searched for between these.


class _Point(msgspec.Struct, frozen=True):
    """A step as a point of TPOT(N): requests that make tokens, and seconds per token of one."""

    step: Step
    running: float
    tpot_s: float

    @property
    def queues(self) -> bool:
        return self.running < _QUEUES * self.step.in_flight


def pool_model(steps: Sequence[Step], slots: float = math.inf) -> PoolModel | None:
    """The pool of servers that a ladder shows; None where it shows too little.

    ``slots`` is what the servers report. A ladder in which requests waited shows it, too: the lower one
    holds. Times to the first token are those of the lowest step: longer ones are of a queue, which the
    replay makes itself.
    """
    points = sorted(_points(steps), key=lambda point: point.running)
    if not points:
        return None
    free = [point for point in points if not point.queues] or points[:1]
    full = [point.running for point in points if point.queues]
    curve = {point.running: point.tpot_s for point in points}  # several have 1 where prefills fill the time
    return PoolModel(
        running=tuple(curve),
        tpot_s=tuple(curve.values()),
        slots=min(slots, max(full, default=math.inf)),
        first_s=np.array(points[0].step.ttft_samples_ns) / _NS,
        spread=np.array(free[-1].step.tpot_samples_ns) / _NS / free[-1].tpot_s,
        lengths=_lengths(points),
    )


def _points(steps: Sequence[Step]) -> list[_Point]:
    found = []
    for step in steps:
        decoded = step.tokens_per_s - step.queries_per_s  # the first tokens are those of the prefill
        if not step.ttft_samples_ns or not step.tpot_samples_ns or decoded <= 0:
            continue
        waiting = step.queries_per_s * float(np.mean(step.ttft_samples_ns)) / _NS  # Little's law
        running = max(step.in_flight - waiting, 1.0)
        found.append(_Point(step, running, running / decoded))
    return found


def _lengths(points: Sequence[_Point]) -> Floats:
    """Output tokens of the requests of all steps, stretched to the mean that the rates show.

    The answers that end in a window are the shorter ones; tokens per second over queries per second are not
    biased so.
    """
    lengths = np.concatenate([np.array(point.step.osl_samples, dtype=np.float64) for point in points])
    tokens = sum(point.step.tokens_per_s * point.step.seconds for point in points)
    mean = tokens / sum(point.step.queries_per_s * point.step.seconds for point in points)
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
        most_in_flight: float,
        client_limited: bool,
    ) -> None:
        self._schedule = schedule
        self._model = model
        self._most_in_flight, self._client_limited = most_in_flight, client_limited
        self._ttft_s, self._tpot_s = limits_ns["TTFT"] / _NS, limits_ns["TPOT"] / _NS
        self._kept: dict[tuple[float, float], Replayed] = {}

    def replay(self, scale: float, rate: float) -> Replayed:
        """The run at ``rate``, with all times of the model multiplied by ``scale``."""
        key = (scale, rate)
        if key not in self._kept:
            model = self._model.scaled(scale)
            self._kept[key] = replay(model, self._schedule, rate, self._ttft_s, self._tpot_s)
        return self._kept[key]

    def highest_passing(self, scale: float) -> float | None:
        """The highest rate at which the replay passes; None where none does."""

        def passes(rate: float) -> bool:
            found = self.replay(scale, rate)
            return found.passes and found.most_in_flight <= self._most_in_flight

        high = MOST_OF_FULL * self.capacity(scale)
        while not passes(high / 2):
            high /= 2
            if high < LOWEST_RATE:
                return None
        return bisected(high / 2, high, passes, _PRECISION)[0]

    def capacity(self, scale: float) -> float:
        """Queries per second that the pool completes when it is full."""
        model = self._model.scaled(scale)
        running = min(model.slots, model.running[-1])
        tpot_s = model.tpot_table(math.ceil(running))[-1]
        return running / (tpot_s * float(model.lengths.mean()) + float(model.first_s.mean()) * scale)

    def peak(self, probes: Sequence[Probe]) -> float | None:
        """The highest rate that would pass, as the ladder and the probes show the servers."""
        scale = self.scale(probes)
        peak = self.highest_passing(scale)
        if peak is not None and self._client_limited and self._above(scale, peak).passes:
            return min(peak, self.capacity(scale))
        return peak

    def beyond(self, probes: Sequence[Probe], peak: float) -> Replayed | None:
        """The replay just above ``peak`` where it keeps the latency limits: these do not end the rates."""
        found = self._above(self.scale(probes), peak)
        return found if found.passes else None

    def _above(self, scale: float, peak: float) -> Replayed:
        return self.replay(scale, peak * (1 + 2 * _PRECISION))

    def scale(self, probes: Sequence[Probe]) -> float:
        """The scale that explains the newest complete probe; where none was complete, the newest cut one."""
        cuts = [probe for probe in probes if probe.cut_after_s is not None]
        scales = self.scales(probes) or [self._scale(_cut_later(probe), probe.rate) for probe in cuts[-1:]]
        return scales[-1] if scales else 1.0

    def scales(self, probes: Sequence[Probe]) -> list[float]:
        """The scale that explains the TPOT of each complete probe."""
        return [
            self._scale(_quicker(probe.tpot_p99_ns / _NS), probe.rate)
            for probe in probes
            if probe.cut_after_s is None and probe.tpot_p99_ns
        ]

    def _scale(self, quicker: Callable[[Replayed], bool], rate: float) -> float:
        """The scale up to which the replay is ``quicker`` than what was measured."""
        edge = bisected(*_SCALES, lambda scale: quicker(self.replay(scale, rate)), _PRECISION)
        return math.sqrt(math.prod(edge))


def _quicker(tpot_p99_s: float) -> Callable[[Replayed], bool]:
    return lambda one: one.tpot_p99_s <= tpot_p99_s


def _cut_later(probe: Probe) -> Callable[[Replayed], bool]:
    """Whether a replay is cut no earlier than the probe was."""
    cut_s = probe.cut_after_s
    assert cut_s is not None
    return lambda one: one.cut_s is None or one.cut_s >= cut_s
