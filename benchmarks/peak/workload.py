"""LoadGen's Server runs over a made-up dataset: the queries, their times, how many may be over a limit.

The schedule and the order of samples are LoadGen's own: GenerateQueries and GenerateLoadableSets of
loadgen.cc with libstdc++'s shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peak.server_model import Answers, Floats, Limits, Server, open_loop
from harness.analysis.early_stopping import most_over_limit
from harness.config.expected_queries import mt19937, unit_arrivals

QSL_SEED, SAMPLE_SEED, SCHEDULE_SEED = 2085463073848966840, 2747215439041700203, 16159082839903944936  # v6.1
LEAST_TOKENS, MOST_TOKENS = 10, 10_240

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """A run of ``queries``, ``datasets`` times the dataset; the last is issued at ``issued_s``."""

    rate: float
    datasets: int
    queries: int
    issued_s: float
    most_over: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run by LoadGen's rules, and the time at which it could have been cut off."""

    run: Run
    answers: Answers
    over_ttft: int
    over_tpot: int
    decided_s: float | None
    """when more queries were over a limit than may be; None in a VALID run"""

    @property
    def valid(self) -> bool:
        """Whether LoadGen and its early stopping accept the run."""
        return self.decided_s is None

    @property
    def p99_within_limits(self) -> bool:
        """LoadGen's PerfConstraintsMet: the element at 0.99 n of the sorted latencies is within the limit."""
        beyond = self.run.queries - int(0.99 * self.run.queries)  # the number at that element or above
        return self.over_ttft < beyond and self.over_tpot < beyond


class Workload:
    """Runs of ``min_duration_s`` over answers of ``tokens`` each (a row of the dataset each)."""

    def __init__(
        self, tokens: Ints, min_duration_s: float = 600.0, ttft_s: float = 3.0, tpot_s: float = 0.080
    ) -> None:
        self.tokens = tokens
        self.min_duration_s, self.ttft_s, self.tpot_s = min_duration_s, ttft_s, tpot_s
        self._unit = np.empty(0)

    @cached_property
    def order(self) -> Ints:
        """The rows in the order of the queries of one dataset; LoadGen repeats it."""
        return sample_order(len(self.tokens))

    def run(self, rate: float) -> Run:
        """The official run at a rate: the fewest datasets whose last query is not before the duration."""
        rows = len(self.tokens)
        datasets = 1
        while self._arrival(datasets * rows) / rate < self.min_duration_s:
            datasets += 1
        queries = datasets * rows
        return Run(rate, datasets, queries, self._arrival(queries) / rate, most_over_limit(queries))

    def best_rate(self, datasets: int) -> float:
        """The highest rate with this number of datasets."""
        return self._arrival(datasets * len(self.tokens)) / self.min_duration_s * (1 - 1e-9)

    def outcome(
        self, server: Server, rate: float, *, seed: int = 0, age_s: float = 0.0, cut: bool = True
    ) -> Outcome:
        """Simulate the run at a rate, up to the moment that decides it with ``cut``."""
        run = self.run(rate)
        limits = Limits(self.ttft_s, self.tpot_s, run.most_over) if cut else None
        tokens = np.resize(self.tokens[self.order], run.queries)
        arrivals = self._unit[: run.queries] / rate
        answers = open_loop(server, arrivals.tolist(), tokens.tolist(), limits=limits, seed=seed, age_s=age_s)
        late = np.sort(self._late(answers))
        slow = np.sort(self._slow(answers))
        decided = [float(over[run.most_over]) for over in (late, slow) if 0 <= run.most_over < len(over)]
        if run.most_over < 0:
            decided = [0.0]
        return Outcome(run, answers, len(late), len(slow), min(decided, default=None))

    def loadgen_settings(self) -> dict[str, int | float | bool]:
        """TestSettings as LoadGen reads them back for these runs."""
        return {
            "min_duration_ms": int(self.min_duration_s * 1000),
            "max_duration_ms": 0,
            "min_query_count": 100,
            "max_query_count": 0,
            "performance_sample_count_override": 0,
            "performance_issue_unique": False,
            "server_target_latency_percentile": 0.99,
            "sample_concatenate_permutation": True,
            "server_target_qps": 1.0,
            "ttft_latency": int(self.ttft_s * 1e9),
            "tpot_latency": int(self.tpot_s * 1e9),
            "qsl_rng_seed": QSL_SEED,
            "sample_index_rng_seed": SAMPLE_SEED,
            "schedule_rng_seed": SCHEDULE_SEED,
        }

    def closed_tokens(self) -> Iterator[int]:
        """Tokens of the answers of a closed loop: the dataset in its order, again and again."""
        while True:
            yield from self.tokens.tolist()

    def _late(self, answers: Answers) -> Floats:
        """The time at which each query misses the TTFT limit, if it does; before its first token, too."""
        at = answers.arrived + self.ttft_s
        missed = (answers.first > at) | (np.isnan(answers.first) & (at <= answers.ended_s))
        return at[missed]

    def _slow(self, answers: Answers) -> Floats:
        """The ends of the queries that miss the TPOT limit."""
        return answers.done[answers.done - answers.first > self.tpot_s * (answers.tokens - 1)]

    def _arrival(self, queries: int) -> float:
        if queries > len(self._unit):
            self._unit = unit_arrivals(SCHEDULE_SEED, 2 * queries)
        return float(self._unit[queries - 1])


def lengths(rows: int, mean: float = 1300.0, spread: float = 0.9) -> Ints:
    """Tokens of made-up answers: lognormal, ``spread`` the deviation of the logarithm, within bounds.

    gpt-oss-120b's performance answers have 1 230 to 1 375 tokens in the mean and end at 10 240.
    """
    raw = np.exp(spread * np.random.default_rng(1).standard_normal(rows))
    least, most = min(LEAST_TOKENS, mean / 4), MOST_TOKENS * mean / 1300.0
    scaled = np.clip(raw / raw.mean() * mean, least, most)
    answers: Ints = np.maximum(2, np.rint(np.clip(scaled / scaled.mean() * mean, least, most))).astype(
        np.int64
    )
    return answers


def sample_order(rows: int) -> Ints:
    """The samples of a run's first ``rows`` queries, where min_query_count is at most ``rows``."""
    loaded = _shuffled(list(range(rows)), mt19937(QSL_SEED))
    generator = mt19937(SAMPLE_SEED)
    _shuffled(list(range(rows)), generator)  # LoadGen shuffles for performance_issue_unique in any case
    return np.array(loaded)[_shuffled(list(range(rows)), generator)]


def _shuffled(items: list[int], generator: Any) -> list[int]:
    """libstdc++'s std::shuffle: two swaps from each draw, for fewer than 65 536 items."""
    at = 1
    if len(items) % 2 == 0:
        _swap(items, at, _below(2, generator))
        at = 2
    while at < len(items):
        pair = _below((at + 1) * (at + 2), generator)
        _swap(items, at, pair // (at + 2))
        _swap(items, at + 1, pair % (at + 2))
        at += 2
    return items


def _swap(items: list[int], a: int, b: int) -> None:
    items[a], items[b] = items[b], items[a]


def _below(bound: int, generator: Any) -> int:
    """libstdc++'s uniform_int_distribution over a 32-bit generator."""
    product = int(generator.random_raw()) * bound
    if product % 2**32 < bound:
        while product % 2**32 < (2**32 - bound) % bound:
            product = int(generator.random_raw()) * bound
    return product // 2**32
