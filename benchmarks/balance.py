#!/usr/bin/env python3
"""Policies that choose the replica of a query, compared on replicas that are not equal.

    python benchmarks/balance.py            # in virtual time, some minutes
    python benchmarks/balance.py --large    # 512 replicas
    python benchmarks/balance.py --stub     # the complete harness on stub servers, 11 minutes

Virtual time: a replica gives all N requests that it runs a token every (a + b N + c K) seconds, K being the
tokens of their contexts; others wait. Answers are lognormal with the mean 1 364, and what is known of an
answer's length before is off by a factor with a deviation of 0.4. "this client" is the code that runs. Each
run lasts 600 s like an official one, and all its queries count.
"""

import heapq
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench import SERVER, Stub, print_table, program_parser, run_harness, save

from sut.client.balance import Balance
from sut.ipc.replica_board import ReplicaBoard

MEAN, LONGEST, SAMPLES = 1364, 10240, 6396
BETWEEN, WITHIN = 0.75, 0.4  # deviations of log length: of the samples, of one sample's answers
PROMPT_COST = 0.1  # of a prompt's token, in tokens to come
LOOK_S = 5.0
LIMIT_MS = 40.0  # of TPOT


# -- policies


class Policy(Protocol):
    """Chooses the replica of a query of one worker; ``cost`` is what its tokens are expected to be."""

    def choose(self, worker: int, now: float, cost: float) -> int:
        """The replica's number."""

    def ended(self, worker: int, replica: int, cost: float) -> None:
        """Called at the end of a query."""


class RoundRobin:
    """Each worker goes round on its own."""

    def __init__(self, workers: int, replicas: int) -> None:
        self._next = [worker * replicas // workers for worker in range(workers)]
        self._replicas = replicas

    def choose(self, worker: int, now: float, cost: float) -> int:  # noqa: D102
        chosen = self._next[worker] % self._replicas
        self._next[worker] += 1
        return chosen

    def ended(self, worker: int, replica: int, cost: float) -> None:  # noqa: D102
        pass


class TokensToCome(RoundRobin):
    """The fewest expected tokens of prompts and answers in flight, each worker on its own."""

    def __init__(self, workers: int, replicas: int) -> None:
        self._loads = np.zeros((workers, replicas))

    def choose(self, worker: int, now: float, cost: float) -> int:  # noqa: D102
        chosen = int(self._loads[worker].argmin())
        self._loads[worker, chosen] += cost
        return chosen

    def ended(self, worker: int, replica: int, cost: float) -> None:  # noqa: D102
        self._loads[worker, replica] -= cost


class ThisClient:
    """The code of the workers; ``shared``: they see each other."""

    def __init__(self, workers: int, replicas: int, *, shared: bool = True) -> None:
        if shared:
            board = ReplicaBoard(workers, replicas)
            self._balances = [Balance(replicas, board, worker) for worker in range(workers)]
        else:
            self._balances = [Balance(replicas, ReplicaBoard(1, replicas), 0) for _ in range(workers)]

    def choose(self, worker: int, now: float, cost: float) -> int:  # noqa: D102
        return self._balances[worker].choose(int(now * 1e9))

    def ended(self, worker: int, replica: int, cost: float) -> None:  # noqa: D102
        self._balances[worker].ended(replica)


POLICIES: dict[str, Callable[[int, int], Policy]] = {
    "round robin": RoundRobin,
    "tokens to come": TokensToCome,
    "in flight, each worker alone": lambda w, r: ThisClient(w, r, shared=False),
    "this client": ThisClient,
}


# -- replicas in virtual time


@dataclass(frozen=True)
class Setting:
    """``slow``: factors of the first replicas' times, since ``slow_from`` s; ``rate``: queries/s on each."""

    name: str
    replicas: int = 8
    workers: int = 1
    rate: float = 8.0
    slow: tuple[float, ...] = ()
    slow_from: float = 0.0
    a: float = 15e-3
    b: float = 50e-6
    c: float = 0.0
    slots: int = 1 << 30
    run_of_long: int = 1  # answers of like length come in runs of this number
    noise: float = 0.05
    seconds: float = 600.0
    mean: float = MEAN


class Replica:
    """Processor sharing; ``tokens``: what a request that ran from the start would have got."""

    def __init__(self, slow: float, slow_from: float, setting: Setting) -> None:
        self.slow, self.slow_from, self.setting = slow, slow_from, setting
        self.running: list[tuple[float, int]] = []  # a heap: tokens at the end, query
        self.waiting: deque[int] = deque()
        self.tokens = self.at = self.context = 0.0
        self.pace = 1.0
        self.version = 0

    def advance(self, now: float) -> None:
        """Advance the time to ``now`` at the present pace."""
        self.tokens += (now - self.at) / self.pace
        self.at = now

    def next_end(self, now: float) -> float:
        """With the pace of the present load."""
        setting, running = self.setting, len(self.running)
        context = self.context + running * self.tokens
        self.pace = setting.a + setting.b * running + setting.c * context
        self.pace *= self.slow if now >= self.slow_from else 1.0
        self.version += 1
        return now + max(0.0, self.running[0][0] - self.tokens) * self.pace


@dataclass(frozen=True)
class Outcome:
    """Of all queries, in ms; ``imbalance``: mean of the largest over the mean number on a replica."""

    tpot_p50: float
    tpot_p99: float
    ttft_p99: float
    imbalance: float


def lengths(setting: Setting, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of each answer, and what was expected."""
    samples = random.lognormal(0, BETWEEN, SAMPLES)
    samples *= setting.mean / samples.mean()
    if setting.run_of_long > 1:
        samples.sort()
    runs = np.array_split(np.arange(SAMPLES), SAMPLES // setting.run_of_long)
    order = [runs[number] for _ in range(-(-count // SAMPLES)) for number in random.permutation(len(runs))]
    expected = samples[np.concatenate(order)[:count]]
    return np.clip(expected * random.lognormal(-(WITHIN**2) / 2, WITHIN, count), 2, LONGEST), expected


def simulate(setting: Setting, make: Callable[[int, int], Policy], seed: int = 7) -> Outcome:
    """One run of all queries that arrive in its time."""
    random = np.random.default_rng(seed)
    count = int(setting.rate * setting.replicas * setting.seconds)
    arrivals = np.cumsum(random.exponential(1 / (setting.rate * setting.replicas), count)).tolist()
    tokens, expected = lengths(setting, count, random)
    prompts = random.lognormal(5, 0.6, count)
    noise = (1 + setting.noise * random.standard_normal(count)).clip(0.5)
    costs = (expected + PROMPT_COST * prompts).tolist()
    slow = [*setting.slow, *[1.0] * (setting.replicas - len(setting.slow))]
    replicas = [Replica(factor, setting.slow_from, setting) for factor in slow]
    policy = make(setting.workers, setting.replicas)
    held, where, of_worker = [0] * setting.workers, np.zeros(count, np.int64), np.zeros(count, np.int64)
    first, last = np.zeros(count), np.zeros(count)
    ends: list[tuple[float, int, int]] = []
    loads, spread, next_look, issued = np.zeros(setting.replicas), [], LOOK_S, 0

    def begin(replica: Replica, query: int, now: float) -> None:
        first[query] = now
        heapq.heappush(replica.running, (replica.tokens + tokens[query], query))
        replica.context += prompts[query] - replica.tokens

    def schedule(number: int, now: float) -> None:
        if replicas[number].running:
            end = replicas[number].next_end(now)
            heapq.heappush(ends, (end, number, replicas[number].version))

    while issued < count or ends:
        if ends and (issued == count or ends[0][0] < arrivals[issued]):
            now, number, version = heapq.heappop(ends)
            replica = replicas[number]
            if version != replica.version:
                continue
            replica.advance(now)
            _, query = heapq.heappop(replica.running)
            replica.context -= prompts[query] - (replica.tokens - tokens[query])
            last[query] = now
            loads[number] -= 1
            worker = int(of_worker[query])
            held[worker] -= 1
            policy.ended(worker, number, costs[query])
            if replica.waiting:
                begin(replica, replica.waiting.popleft(), now)
            schedule(number, now)
        else:
            now, query = arrivals[issued], issued
            issued += 1
            worker = held.index(min(held))
            held[worker] += 1
            of_worker[query] = worker
            number = where[query] = policy.choose(worker, now, costs[query])
            loads[number] += 1
            replica = replicas[number]
            replica.advance(now)
            if len(replica.running) < setting.slots:
                begin(replica, query, now)
            else:
                replica.waiting.append(query)
            schedule(number, now)
        if now >= next_look:
            next_look = now + LOOK_S
            if now > setting.seconds / 4 and issued < count:
                spread.append(loads.max() / loads.mean())
    tpot = (last - first) / tokens * noise * 1e3
    ttft = (first - np.array(arrivals)) * 1e3
    figures = (*np.percentile(tpot, (50, 99)), np.percentile(ttft, 99), np.mean(spread))
    return Outcome(*map(float, figures))


def best_rate(setting: Setting, make: Callable[[int, int], Policy]) -> float:
    """The highest rate of a replica with a TPOT p99 within LIMIT_MS, to 1 %."""
    low, high = 0.5, 4 * setting.rate
    while high > 1.01 * low:
        middle = (low * high) ** 0.5
        good = simulate(replace(setting, rate=middle), make).tpot_p99 <= LIMIT_MS
        low, high = (middle, high) if good else (low, middle)
    return low


SLOW = (1.3,)
SETTINGS = (
    Setting("8 equal"),
    Setting("8 equal, long answers in runs", run_of_long=52),
    Setting(
        "8 equal, context costs, long answers in runs", rate=5, a=10e-3, b=10e-6, c=50e-9, run_of_long=52
    ),
    Setting("8, one 1.3 x slow", slow=SLOW),
    Setting("8, one 1.3 x slow after 200 s", slow=SLOW, slow_from=200),
    Setting("8, one 1.3 x slow, context costs", slow=SLOW, rate=5, b=20e-6, c=30e-9),
    Setting("8, one 1.3 x slow, 400 slots", slow=SLOW, slots=400),
    Setting("8, one 1.3 x slow, 370 slots", slow=SLOW, slots=370),
    Setting("8, each different by up to 10 %", slow=tuple(np.linspace(1.1, 1.0, 8))),
    Setting("8, one 1.3 x slow, 4 workers", slow=SLOW, workers=4),
    Setting("64, two 1.3 x slow, 4 workers", 64, 4, 7.73, (1.3, 1.3), a=25e-3, b=30e-6),
    Setting("64 equal, 2 in flight each, 4 workers", 64, 4, 0.17, a=9e-3, b=300e-6, mean=1300),
    Setting("64 equal, 4 in flight each, 4 workers", 64, 4, 0.32, a=9e-3, b=300e-6, mean=1300),
)
LARGE = (
    Setting("512 equal, 4 workers", 512, 4, 7.73, a=25e-3, b=30e-6, seconds=180),
    Setting("512, 8 of them 1.3 x slow, 4 workers", 512, 4, 7.73, (1.3,) * 8, a=25e-3, b=30e-6, seconds=180),
)
RATED = ("8 equal", "8, one 1.3 x slow", "8, each different by up to 10 %")


# -- the complete harness on stub servers

STUB = {"batch_us": 20_000, "stream_ns": 2_000_000, "first_id_tokens": 1}
STUB |= {"cumulative": 0, "tokens_per_event": 10}
STUB_QPS, STUB_S, STUB_MEAN, STUB_LONGEST = 8.0, 200, 300, 2000


def run_on_stub(slow_permille: int) -> list[object]:
    """This client on 8 ports, the last one of them slow: cells of a row."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Stub(1, ports=8, slow_permille=slow_permille, **STUB) as stub,
    ):
        run = run_harness(
            Path(folder),
            *("--input-file", write_lengths(Path(folder) / "prompts.parquet")),
            *("--max-new-tokens", STUB_LONGEST, "--num-workers", 2),
            scenario="server",
            urls=stub.urls,
            conf=SERVER.format(STUB_QPS, STUB_S * 1000),
        )
    statistics, balance = run.statistics, run.record.balance
    assert statistics.tpot is not None and statistics.ttft is not None and balance is not None
    return [
        statistics.tpot.percentiles["50"] / 1e6,
        statistics.tpot.percentiles["99"] / 1e6,
        statistics.ttft.percentiles["99"] / 1e6,
        statistics.tokens_per_s,
        balance.imbalance,
        len(balance.stragglers or ()),
    ]


def write_lengths(path: Path) -> Path:
    """Prompts whose first id is the number of tokens of their answer."""
    random = np.random.default_rng(3)
    answers = np.clip(random.lognormal(np.log(STUB_MEAN) - 0.25, 0.7, 800), 100, STUB_LONGEST).astype(int)
    rows = [[int(length), *map(int, random.integers(1000, 100_000, 30))] for length in answers]
    pq.write_table(pa.table({"input_tokens": pa.array(rows, pa.list_(pa.int32()))}), path)
    return path


MEASURED = ("TPOT p50", "TPOT p99", "TTFT p99")


def main() -> None:
    """Print and save the tables."""
    parser = program_parser(__doc__)
    parser.add_argument("--large", action="store_true", help="512 replicas")
    parser.add_argument("--stub", action="store_true", help="the complete harness instead of the simulation")
    arguments = parser.parse_args()
    if arguments.stub:
        rows = [[name, *run_on_stub(slow)] for name, slow in (("8 equal", 0), ("8, one 1.3 x slow", 300))]
        columns = ("replicas", *MEASURED, "tokens/s", "imbalance", "stragglers")
        print_table("balance on stub servers, ms", columns, rows)
        save("balance_stub", rows)
        return
    rows = []
    for setting in LARGE if arguments.large else SETTINGS:
        for name, make in POLICIES.items():
            out = simulate(setting, make)
            rate = best_rate(setting, make) if setting.name in RATED else ""
            rows.append([setting.name, name, out.tpot_p50, out.tpot_p99, out.ttft_p99, out.imbalance, rate])
            print(rows[-1], flush=True)
    columns = ("replicas", "policy", *MEASURED, "imbalance", f"rate at {LIMIT_MS:g} ms")
    print_table("balance in virtual time, ms", columns, rows)
    save("balance_large" if arguments.large else "balance", rows)


if __name__ == "__main__":
    main()
