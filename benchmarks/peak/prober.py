"""The model server behind the search's interface, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.peak.server_model import Answers, Floats, Server, closed_loop
from benchmarks.peak.workload import Outcome, Workload
from harness.analysis.statistics import percentile
from harness.peak.ladder.measurement import latency_of
from harness.peak.ladder.steps import Latency, ReplicaStep, Step
from harness.peak.search.probe import Probe

START_S, EMPTYING_S = 20.0, 5.0  # of a run: preflight and trial request; after a cut
WINDOW_S = 60.0  # of a step of the ladder
_NS = 1e9


@dataclass
class SimulatedProber:
    """A server that ages, with another noise in every measurement, like a real one."""

    server: Server
    workload: Workload
    seed: int = 0
    age_s: float = 0.0
    steps: list[Step] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)

    def ladder(self, concurrency: int) -> Step:
        """A step, from an idle server on: two mean latencies are discarded, one at least is measured."""
        each = -(-concurrency // self.server.replicas)
        latency_s = float(self.workload.tokens.mean()) * self.server.tpot(min(each, self.server.slots))
        fill_s, window_s = 2 * latency_s, max(WINDOW_S, latency_s)
        if each > self.server.slots:
            fill_s, window_s = fill_s * each / self.server.slots, window_s * each / self.server.slots
        answers = closed_loop(
            self.server,
            concurrency,
            self.workload.closed_tokens(),
            fill_s + window_s,
            seed=self._next_seed(),
            age_s=self.age_s,
        )
        self.age_s += fill_s + window_s
        self.steps.append(_step(answers, concurrency, self.server.replicas, fill_s, window_s))
        return self.steps[-1]

    def probe(self, rate: float) -> Probe:
        """A run of official length, cut off when it is decided."""
        outcome = self.workload.outcome(self.server, rate, seed=self._next_seed(), age_s=self.age_s)
        probe = _probe(outcome)
        self.age_s += probe.cost_s
        self.probes.append(probe)
        return probe

    def _next_seed(self) -> int:
        return self.seed * 1000 + len(self.probes) + len(self.steps)


def _probe(outcome: Outcome) -> Probe:
    run, answers = outcome.run, outcome.answers
    seconds = float(np.nanmax(answers.done)) if outcome.valid else outcome.decided_s or 0.0
    ended = answers.done <= seconds
    begun = answers.first <= seconds
    return Probe(
        rate=run.rate,
        datasets=run.datasets,
        queries=run.queries,
        planned_s=run.issued_s,
        seconds=seconds,
        cost_s=seconds + START_S + (0 if outcome.valid else EMPTYING_S),
        verdict="VALID" if outcome.valid else "INVALID",
        cut_after_s=outcome.decided_s,
        ttft_p99_ns=_p99(answers.ttft[begun]),
        tpot_p99_ns=_p99(answers.tpot[ended]),
        over_ttft=outcome.over_ttft,
        over_tpot=outcome.over_tpot,
        most_over=run.most_over,
        tokens_per_s=float(answers.tokens.sum() / answers.done[-1]) if outcome.valid else None,
    )


def _step(answers: Answers, concurrency: int, replicas: int, fill_s: float, window_s: float) -> Step:
    """The ladder's measurement in the window: requests that ended in it, tokens that arrived in it."""
    ended = answers.done > fill_s
    latency = (answers.done - answers.arrived)[ended]
    return Step(
        concurrency=concurrency,
        seconds=window_s,
        filling_s=fill_s,
        steady=True,
        queries=int(ended.sum()),
        queries_per_s=float(ended.sum() / window_s),
        tokens_per_s=float(_tokens_since(answers, fill_s).sum() / window_s),
        in_flight=float(concurrency),
        latency_s=float(latency.mean()) if len(latency) else None,
        osl_mean=float(answers.tokens[ended].mean()) if len(latency) else None,
        ttft=_latency(answers.ttft[ended]),
        tpot=_latency(answers.tpot[ended]),
        replicas=tuple(
            _replica(answers, ended & (answers.replica == replica), replica, window_s, concurrency / replicas)
            for replica in range(replicas)
        ),
        ttft_samples_ns=tuple((answers.ttft[ended] * _NS).astype(int).tolist()),
        tpot_samples_ns=tuple((answers.tpot[ended] * _NS).astype(int).tolist()),
        osl_samples=tuple(answers.tokens[ended].tolist()),
    )


def _replica(answers: Answers, ended: np.ndarray, replica: int, window_s: float, share: float) -> ReplicaStep:
    return ReplicaStep(
        url=f"http://replica-{replica}",
        queries=int(ended.sum()),
        queries_per_s=float(ended.sum() / window_s),
        ended_tokens_per_s=float(answers.tokens[ended].sum() / window_s),
        in_flight=share,
        ttft=_latency(answers.ttft[ended]),
        tpot=_latency(answers.tpot[ended]),
    )


def _tokens_since(answers: Answers, since_s: float) -> Floats:
    """Tokens of each request after a moment, if each produced them at one pace."""
    first = np.where(np.isnan(answers.first), answers.ended_s, answers.first)
    last = np.where(np.isnan(answers.done), answers.ended_s, answers.done)
    span = np.maximum(last - first, 1e-9)
    share = np.clip((last - np.maximum(first, since_s)) / span, 0.0, 1.0)
    tokens: Floats = answers.produced * share
    return tokens


def _latency(seconds: Floats) -> Latency | None:
    return latency_of((seconds * _NS).astype(np.int64))


def _p99(seconds: Floats) -> float | None:
    return percentile(seconds, 0.99) * _NS if len(seconds) else None
