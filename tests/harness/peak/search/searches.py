"""A made-up search: settings of a twentieth of the official size, probes and steps by few numbers."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.config.scenario import Scenario
from harness.peak.ladder.steps import Step
from harness.peak.search.policy import SearchSettings
from harness.peak.search.probe import Probe
from harness.peak.search.replay import PoolModel, replay
from harness.peak.search.schedule import Schedule
from tests.harness.peak.ladder import made
from tests.harness.peak.ladder.made import latency

TTFT_S, TPOT_S = 3.0, 0.080
LIMITS_NS = {"TTFT": int(TTFT_S * 1e9), "TPOT": int(TPOT_S * 1e9)}
LOADGEN = {
    "min_duration_ms": 30_000,
    "min_query_count": 100,
    "max_query_count": 0,
    "performance_sample_count_override": 640,
    "sample_concatenate_permutation": True,
    "performance_issue_unique": False,
    "server_target_latency_percentile": 0.99,
    "schedule_rng_seed": 16159082839903944936,
    "server_target_qps": 1.0,
    "ttft_latency": LIMITS_NS["TTFT"],
    "tpot_latency": LIMITS_NS["TPOT"],
}
_LENGTHS = np.random.default_rng(1).integers(20, 240, 640).astype(float)


def settings(**changes: Any) -> SearchSettings:
    known: dict[str, Any] = {"scenario": Scenario.SERVER, "loadgen": LOADGEN, "samples": 640}
    return SearchSettings(**known | changes)


def probe(rate: float, verdict: str = "VALID", **changes: Any) -> Probe:
    run = Schedule(LOADGEN, 640).run(rate)
    known: dict[str, Any] = {
        "rate": rate,
        "datasets": run.datasets,
        "queries": run.queries,
        "planned_s": run.seconds,
        "seconds": run.seconds + 10,
        "cost_s": run.seconds + 20,
        "verdict": verdict,
        "ttft_p99_ns": 0.1e9,
        "tpot_p99_ns": 60e6 if verdict == "VALID" else 90e6,
        "over_tpot": 0 if verdict == "VALID" else run.most_over + 5,
        "most_over": run.most_over,
    }
    return Probe(**known | changes)


def step(concurrency: int, tpot_ms: float) -> Step:
    """A step whose requests all have this TPOT, and 20 ms to their first token."""
    mean, count = float(_LENGTHS.mean()), 200
    seconds = 0.020 + tpot_ms / 1000 * (mean - 1)
    rate = concurrency / seconds
    return made.step(
        concurrency,
        rate * mean,
        queries=int(60 * rate),
        queries_per_s=rate,
        latency_s=seconds,
        ttft=latency(20, 20),
        tpot=latency(tpot_ms, tpot_ms),
        ttft_samples_ns=(20_000_000,) * count,
        tpot_samples_ns=(int(tpot_ms * 1e6),) * count,
        osl_samples=tuple(int(length) for length in _LENGTHS[:count]),
    )


@dataclass
class MadeServer:
    """A server of ``base_ms`` + N x ``each_ms`` per token; its ladder shows it ``flatters`` times as fast."""

    base_ms: float = 15.0
    each_ms: float = 0.6
    slots: int = 1000
    flatters: float = 1.0
    probes: list[Probe] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def tpot_ms(self, running: int) -> float:
        return self.base_ms + self.each_ms * min(running, self.slots)

    def ladder(self, concurrency: int) -> Step:
        self.steps.append(concurrency)
        return step(concurrency, self.tpot_ms(concurrency) / self.flatters)

    def probe(self, rate: float) -> Probe:
        model = PoolModel(
            (1.0, 1000.0),
            (self.tpot_ms(1) / 1000, (self.base_ms + 1000 * self.each_ms) / 1000),
            float(self.slots),
            np.full(100, 0.02),
            np.ones(100),
            _LENGTHS,
        )
        found = replay(model, Schedule(LOADGEN, 640), rate, TTFT_S, TPOT_S)
        cut_s = None if found.passes else found.cut_s
        taken = cut_s or found.seconds
        self.probes.append(
            probe(
                rate,
                "VALID" if found.passes else "INVALID",
                cut_after_s=cut_s,
                seconds=taken,
                cost_s=taken + 20,
                tpot_p99_ns=found.tpot_p99_s * 1e9,
                over_ttft=found.over_ttft,
                over_tpot=found.over_tpot,
                tokens_per_s=1000.0,
            )
        )
        return self.probes[-1]
