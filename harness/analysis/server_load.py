"""Figures of the servers from server_metrics.parquet: levels over time, counts over the run, advice."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from harness.analysis.ranks import RankReading
from harness.arrays import Floats, distinct
from harness.config.scenario import Scenario
from harness.record.replica_figures import RankFigures
from harness.record.run_record import Level, ServerLoad
from harness.record.server_metrics import QUANTITIES, Part, Series, each_part, quantity_of

_FULL = 0.95  # a KV cache of which this part is used counts as full
_AMPLE = 0.5  # a KV cache of which no reading found this part in use was not short of memory
_PARTS = ("kv_use", "swa_kv_use")
_LEVELS, _TOKENS = ("running", "queued", "kv_use"), ("prompt_tokens", "output_tokens")
# What pages of these engines always have after a request, by the prefix of their names.
_ALWAYS = {
    "sglang": (*_LEVELS, "retracted", "cache_hit_rate", *_TOKENS),
    "vllm": (*_LEVELS, "retractions", "cached_tokens", *_TOKENS),
}
# Labels of the processes of one replica, which all report the same: the first process counts.
_RANK = re.compile(r'(?:tp_rank|pp_rank|moe_ep_rank|pid)="[^"]*",?')

_FEWEST_ROUNDS = 6  # half a minute; notes on less would say nothing about the run
_OFTEN = 0.05
_SHOWS = 0.005  # rounds to 1 %
_MOSTLY = 0.5

_Series = tuple[str, str, str]  # name, replica, labels
_Group = tuple[str, str, str]  # quantity, replica, labels without ranks


class LevelOverTime(msgspec.Struct, frozen=True):
    """A level in each round, over all servers; NaN where none has it."""

    total: Floats
    """sum"""
    mean: Floats
    highest: Floats


class ServerSamples(msgspec.Struct, frozen=True):
    """What the servers' pages said in the rounds of reading them. Keys are those of QUANTITIES."""

    times_ns: npt.NDArray[np.int64]
    """CLOCK_MONOTONIC of each round"""
    servers: int
    levels: Mapping[str, LevelOverTime]
    figures: Mapping[str, Level]
    """the levels over all rounds"""
    counts: Mapping[str, float]
    """increase over the run"""
    fell: tuple[str, ...]
    """URLs of servers with a count that fell, whose counts are left out"""
    unnamed: Mapping[str, tuple[str, ...]]
    """by URL, what a server's engine always has and no name there says; () of each if nothing is known"""
    ranks: tuple[RankFigures, ...]


def read_samples(path: Path) -> ServerSamples:
    """Read the table in parts. Raises DatasetError for a damaged file, FileNotFoundError without one."""
    reading, ranks = _Reading(), RankReading()
    each_part(path, reading.add, ranks.add)
    return reading.samples(ranks.figures())


class _Sums(msgspec.Struct):
    """A level's sums over servers, by round."""

    total: dict[int, float] = msgspec.field(default_factory=dict)
    count: dict[int, int] = msgspec.field(default_factory=dict)
    highest: dict[int, float] = msgspec.field(default_factory=dict)
    over: int = 0

    def add(self, times: npt.NDArray[np.int64], values: Floats, bound: float | None) -> None:
        rounds, index = np.unique(times, return_inverse=True)
        totals, counts = np.bincount(index, values), np.bincount(index)
        highest = np.full(len(rounds), -np.inf)
        np.maximum.at(highest, index, values)
        for moment, total, count, high in zip(
            rounds.tolist(), totals.tolist(), counts.tolist(), highest.tolist(), strict=True
        ):
            self.total[moment] = self.total.get(moment, 0.0) + total
            self.count[moment] = self.count.get(moment, 0) + count
            self.highest[moment] = max(self.highest.get(moment, -np.inf), high)
        self.over += int((values > 0 if bound is None else values >= bound).sum())

    def level(self) -> Level:
        """Over all rounds and servers."""
        count = sum(self.count.values())
        return Level(sum(self.total.values()) / count, max(self.highest.values()), self.over / count)

    def over_time(self, times: list[int]) -> LevelOverTime:
        """In each round."""
        nan = float("nan")
        return LevelOverTime(
            np.array([self.total.get(moment, nan) for moment in times]),
            np.array([self.total.get(moment, nan) / self.count.get(moment, 1) for moment in times]),
            np.array([self.highest.get(moment, nan) for moment in times]),
        )


class _Reading:
    """Sums of the parts of the table."""

    def __init__(self) -> None:
        self._times: set[int] = set()
        self._replicas: set[str] = set()
        self._began: dict[str, int] = {}  # a server's first round
        self._groups: dict[_Series, _Group | None] = {}  # None: another series counts for it
        self._chosen: dict[_Group, _Series] = {}
        self._levels: dict[str, _Sums] = {}
        self._counts: dict[str, float] = {}
        self._last: dict[_Group, float] = {}
        self._of_count: dict[str, set[str]] = {}  # the replicas that have it
        self._fell: set[str] = set()  # replicas with a count that fell

    def add(self, part: Part) -> None:
        """Add the rows of one part."""
        self._times.update(distinct(part.times_ns).tolist())
        self._began = {**part.first_ns, **self._began}
        found: dict[str, list[tuple[_Group, npt.NDArray[np.int64]]]] = {}
        for one in part.series:
            if (group := self._group(one)) is not None:
                found.setdefault(group[0], []).append((group, one.rows))
        for key, groups in found.items():
            if QUANTITIES[key].kind == "level":
                rows = np.concatenate([rows for _, rows in groups])
                bound = _FULL if key in _PARTS else None
                self._levels.setdefault(key, _Sums()).add(part.times_ns[rows], part.values[rows], bound)
            else:
                self._count(key, groups, part.times_ns, part.values)

    def _group(self, one: Series) -> _Group | None:
        """What a series is of; None where another one counts for that."""
        series = one[:3]
        if series not in self._groups:
            group = (quantity_of(one.name, one.labels), one.replica, _RANK.sub("", one.labels))
            counts = group[0] and self._chosen.setdefault(group, series) == series
            self._groups[series] = group if counts else None
            if not group[0].startswith("gpu_"):
                self._replicas.add(one.replica)
        return self._groups[series]

    def _count(
        self,
        key: str,
        found: Sequence[tuple[_Group, npt.NDArray[np.int64]]],
        times: npt.NDArray[np.int64],
        values: Floats,
    ) -> None:
        """Add the increase of a count. It began at 0 if it appeared late."""
        column = values[np.concatenate([rows for _, rows in found])]
        ends = np.cumsum([len(rows) for _, rows in found])
        before = np.roll(column, 1)
        for (group, rows), end in zip(found, ends.tolist(), strict=True):
            begin = end - len(rows)
            late = int(times[rows[0]]) > self._began[group[1]]
            before[begin] = self._last.get(group, 0.0 if late else column[begin])
            self._last[group] = float(column[end - 1])
        steps = column - before
        for row in np.flatnonzero(steps < 0).tolist():
            self._fell.add(found[int(np.searchsorted(ends, row, side="right"))][0][1])
        self._of_count.setdefault(key, set()).update(group[1] for group, _ in found)
        self._counts[key] = self._counts.get(key, 0.0) + float(steps.sum())

    def samples(self, ranks: tuple[RankFigures, ...]) -> ServerSamples:
        """All that was added, without the counts of replicas of which one fell.

        Behind a balancer each page may be another server's, and what a restarted one counted is not known.
        """
        times = sorted(self._times)
        return ServerSamples(
            np.array(times, np.int64),
            len(self._replicas),
            {key: sums.over_time(times) for key, sums in self._levels.items()},
            {key: sums.level() for key, sums in self._levels.items()},
            {key: count for key, count in self._counts.items() if self._of_count[key].isdisjoint(self._fell)},
            tuple(sorted(self._fell)),
            self._unnamed(),
            ranks,
        )

    def _unnamed(self) -> dict[str, tuple[str, ...]]:
        known: dict[str, set[str]] = {url: set() for url in self._began}
        expected: dict[str, tuple[str, ...]] = {}
        for name, url, labels in self._groups:
            known[url].add(quantity_of(name, labels))
            expected.setdefault(url, _ALWAYS.get(name.partition(":")[0], ()))
        if not any(known.values()):
            return dict.fromkeys(known, ())
        asked = {url for (_, url, _), count in self._last.items() if count > 0}
        found = {url: tuple(key for key in expected.get(url, ()) if key not in known[url]) for url in asked}
        return {url: keys for url, keys in sorted(found.items()) if keys}


def server_load(
    samples: ServerSamples,
    without: Mapping[str, str],
    scenario: Scenario,
    output_tokens: int,
    *,
    waiting: float = 0.0,
) -> ServerLoad:
    """The figures for the record of the run; ``output_tokens`` of all answers.

    ``waiting``: the part of the run in which queries waited for a slot of --max-concurrency.
    """
    millijoules = samples.counts.get("gpu_energy")
    load = ServerLoad(
        rounds=len(samples.times_ns),
        servers=samples.servers,
        without=dict(without),
        levels={key: samples.figures[key] for key in QUANTITIES if key in samples.figures},
        gpus_j_per_token=millijoules / 1000 / output_tokens if millijoules and output_tokens else None,
        counts={key: samples.counts[key] for key in QUANTITIES if key in samples.counts},
        fell=samples.fell,
        ranks=samples.ranks,
        notes=tuple(_unnamed_notes(samples.unnamed)) if output_tokens else (),
    )
    if load.rounds < _FEWEST_ROUNDS:
        return load
    notes = (
        *load.notes,
        *_cache_notes(load),
        *_queue_notes(load, scenario, waiting),
        *_engine_notes(load),
        *_gpu_notes(load),
    )
    return replace(load, notes=notes)


def _unnamed_notes(servers: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Of the first server: the others are mostly of the same version."""
    if not servers:
        return
    url, keys = next(iter(servers.items()))
    more = f" and {len(servers) - 1} more" if len(servers) > 1 else ""
    what = f" of {', '.join(QUANTITIES[key].meaning for key in keys)}" if keys else ""
    yield (
        f"the metrics of {url}{more} have no known name{what}: what rests on it is not noticed. Names change "
        "between versions (the end of docs/reference/run_json.md)"
    )


def cache_warnings(load: ServerLoad) -> tuple[str, ...]:
    """A warning where the servers took prompts from a prefix cache, or where that is not known.

    MLPerf Inference Rules, LLM benchmarks: a KV cache does not apply across queries.
    """
    return (*_unknown(load), *_own_cache(load), *_external_cache(load))


def _unknown(load: ServerLoad) -> Iterator[str]:
    if load.fell:
        more = f" and {len(load.fell) - 1} more" if len(load.fell) > 1 else ""
        yield (
            f"counts in the metrics of {load.fell[0]}{more} fell: it was restarted, or several servers "
            "answer there, one at a time. How many tokens they made, drafted or took from caches is not "
            "known, and each reading is of one of them; name the servers themselves"
        )


def _own_cache(load: ServerLoad) -> Iterator[str]:
    tokens = load.counts.get("cached_tokens", 0.0)
    rate = load.levels.get("cache_hit_rate")
    if tokens <= 0 and (rate is None or rate.max <= 0 or "cached_tokens" in load.counts):
        return
    amount = _of_prompts(tokens, load) if tokens > 0 else "prompt tokens"
    yield (
        f"the servers took {amount} from their prefix caches: the rules of the closed division allow no KV "
        "cache across queries (SGLang: --disable-radix-cache; vLLM: --no-enable-prefix-caching)"
    )


def _external_cache(load: ServerLoad) -> Iterator[str]:
    """vLLM counts these apart, and --no-enable-prefix-caching does not end them."""
    tokens = load.counts.get("external_cached_tokens", 0.0)
    if tokens > 0:
        yield (
            f"a KV connector brought the servers the KV cache of {_of_prompts(tokens, load)} which only "
            "prefill servers of the same query may do: the rules of the closed division allow no KV cache "
            "across queries (vLLM: start it without --kv-transfer-config and --kv-offloading-size)"
        )


def _of_prompts(tokens: float, load: ServerLoad) -> str:
    prompts = load.counts.get("prompt_tokens", 0.0)
    part = f", {tokens / prompts:.1%} of all" if 0 < tokens <= prompts else ""
    return f"{tokens:,.0f} prompt tokens{part},"


def _cache_notes(load: ServerLoad) -> Iterator[str]:
    full = max((load.levels[key].share for key in _PARTS if key in load.levels), default=0.0)
    gauge = load.levels.get("retracted")
    lost = load.counts.get("retractions", 0.0)
    retracted = f"{lost:,.0f} requests" if lost > 0 else "requests" if gauge and gauge.max > 0 else ""
    remedy = (
        "lower --max-running-requests (vLLM: --max-num-seqs), or give the cache more memory "
        "(SGLang: --mem-fraction-static; vLLM: --gpu-memory-utilization)"
    )
    if full >= _OFTEN:
        computed = f", and {retracted} lost their part of it and were computed again" if retracted else ""
        yield f"KV cache at least {_FULL:.0%} full for {full:.0%} of the run{computed}: {remedy}"
    elif retracted:
        most = max((load.levels[key].max for key in _PARTS if key in load.levels), default=1.0)
        if most < _AMPLE:
            remedy = (
                f"not for lack of it, at most {most:.1%} was in use. The engine was paused or its cache "
                "reset (vLLM: /pause, /reset_prefix_cache; SGLang: /pause_generation)"
            )
        yield f"{retracted} lost their KV cache and were computed again: {remedy}"


def _queue_notes(load: ServerLoad, scenario: Scenario, waiting: float) -> Iterator[str]:
    queued = load.levels.get("queued")
    if queued is None:
        return
    if scenario.one_query:
        if queued.share < _MOSTLY <= waiting:
            yield (
                f"no request waited in the servers' queues for {1 - queued.share:.0%} of the run: a higher "
                "--max-concurrency may give more throughput"
            )
    elif queued.share >= _MOSTLY:
        yield (
            f"requests waited in the servers' queues for {queued.share:.0%} of the run, {queued.mean:,.1f} "
            "in each on average: the servers' capacity is the limit"
        )


def _engine_notes(load: ServerLoad) -> Iterator[str]:
    graph, plain = (load.counts.get(name, 0.0) for name in ("graph_steps", "plain_steps"))
    if graph > 0 and plain >= _OFTEN * (graph + plain):
        yield (
            f"{plain / (graph + plain):.0%} of the decoding steps had no CUDA graph: batches are larger than "
            "those captured (SGLang: --cuda-graph-max-bs-decode)"
        )
    drafted, accepted = load.counts.get("draft_tokens", 0.0), load.counts.get("accepted_tokens", 0.0)
    if drafted > 0:
        yield f"{accepted / drafted:.0%} of the drafted tokens were accepted"
    length = load.levels.get("accept_length")
    if length is not None and length.max > 0:
        yield f"each step of the draft model gave {length.mean:.2f} tokens on average"


def _gpu_notes(load: ServerLoad) -> Iterator[str]:
    slowed, limited = load.levels.get("gpu_slowed"), load.levels.get("gpu_power_limited")
    # The mean fits both: NVML reports 0 or 1, an AMD GPU the part of the time.
    if slowed is not None and slowed.mean >= _SHOWS:
        yield f"GPUs were slowed down by heat or power supply for {slowed.mean:.0%} of the run: check both"
    elif load.counts.get("gpu_heat", 0.0) > 0:
        yield "GPUs were slowed down by heat at times: check the cooling"
    if limited is not None and limited.mean >= _OFTEN:
        yield f"GPUs ran at their power limit for {limited.mean:.0%} of the run"
    if load.gpus_j_per_token is not None:
        yield f"the GPUs took {load.gpus_j_per_token:.3g} J for each output token (not MLPerf Power)"
