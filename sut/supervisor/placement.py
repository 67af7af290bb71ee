"""The number of workers of a run, and the cores to which they and LoadGen's process are pinned.

Both follow from the expected load, as far as flags and conf files show it before LoadGen starts.
"""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.config.loadgen_settings import Number, Setting, limits_ns
from harness.config.plans import ClientPlan, RunPlan
from harness.machine import cpu_quota, text_of
from harness.record.settled import Cpus, Placement, ServerInfo, running_limit
from harness.text import counted
from sut.client.native_streams import library
from sut.processes.machine_limits import SPARE_DESCRIPTORS, hard_descriptor_limit
from sut.servers.naming import any_is_here

# Half of one worker's measured capacity (docs/design/performance.md): at half load p99 stays near the mean.
_EVENTS_PER_S = 25_000
_QUERIES_PER_S = 10_000
_STREAMS = 256
_MOST_WORKERS = 32
# With fewer cores nothing is pinned: server, supervisor and kernel need some, too.
PIN_FROM_CORES = 4
_LOADGEN_QPS = 1.0  # LoadGen's own target_qps of Server
_CPUS = Path("/sys/devices/system/cpu")


class Machine(msgspec.Struct, frozen=True):
    """What the machine has for this client."""

    cores: tuple[Cpus, ...]
    """the CPUs that this process may use, a tuple for each physical core"""
    quota: float | None
    """CPU time that the container may use, in cores; None without a bound"""
    descriptors: int
    """open files of one process"""
    native: bool = False
    """whether the client's C library was compiled"""


class Load(msgspec.Struct, frozen=True):
    """The load of the client; None where it is not known before the run."""

    open_at_most: int | None = None
    """a given limit of requests in flight"""
    open_expected: int | None = None
    """an estimate of them"""
    queries_per_s: float | None = None
    events_per_s: float | None = None
    all_at_once: bool = False
    """all queries are issued at the start, and the times of tokens are not measured"""
    as_measured: bool = False
    """then: answers are streamed all the same, as those of the measurement that they belong to"""
    queries: int | None = None
    """in all: no more of them are in flight"""


def load_of_test(plan: RunPlan, settings: Mapping[str, Number]) -> Load:
    """The load; for Server it follows from the target rate, as if each token were a separate event."""
    if plan.scenario.one_at_a_time:
        return Load(open_at_most=1)
    limit = plan.client.max_concurrency
    if not plan.scenario.poisson:
        return Load(open_at_most=limit, all_at_once=True)
    qps = float(settings.get("target_qps", _LOADGEN_QPS))
    tokens = output_tokens(plan)
    streams = round(qps * _longest_s(plan, tokens)) or 1
    events = qps * (tokens if plan.client.parameters.stream else 1)
    return Load(limit, streams, qps, events)


def load_of_full(plan: RunPlan, servers: Sequence[ServerInfo], readback: Mapping[str, Setting]) -> Load:
    """The load of servers that run as many requests as they do at once, with tokens as slow as is allowed."""
    running = running_limit(servers)
    tpot_s = max(limits_ns(plan.scenario, readback)["TPOT"], 1) / 1e9
    return Load(plan.client.max_concurrency, running, events_per_s=running / tpot_s)


def output_tokens(plan: RunPlan) -> float:
    """The mean length of an answer where the benchmark states one, else the longest that is allowed."""
    longest = plan.client.parameters.max_new_tokens
    rule = plan.client.benchmark.length_rule
    return longest if plan.accuracy or rule is None else min(longest, rule.reference_mean_output_tokens)


def server_is_here(plan: ClientPlan) -> bool:
    """Whether a server shares this machine."""
    return plan.backend == "embedded" or any_is_here(plan.server_urls)


def _longest_s(plan: RunPlan, tokens: float) -> float:
    """Seconds that an answer takes at the benchmark's limits: valid runs are not slower."""
    limits = plan.client.benchmark.latency_limits.get(plan.scenario)
    if limits is None:
        return 0.0
    return (limits.ttft_ms + tokens * limits.tpot_ms) / 1000


def choose(machine: Machine, load: Load, asked: int | None, *, server_here: bool) -> Placement:
    """The placement of a run; a server on this machine keeps half of the cores."""
    ours = len(machine.cores) // 2 if server_here else len(machine.cores)
    if machine.quota is not None:
        ours = min(ours, math.floor(machine.quota))
    spare = max(1, min(ours - 1, _MOST_WORKERS))
    workers, reason = (asked, "as asked") if asked is not None else _wanted(load, spare, machine.descriptors)
    if load.open_at_most is not None and workers > load.open_at_most:
        workers, reason = load.open_at_most, _for_requests(load.open_at_most)
    if machine.quota is not None or len(machine.cores) < PIN_FROM_CORES or workers >= ours:
        return Placement(workers, reason, native=machine.native)
    # From the last core on: interrupts and other programs mostly run on the first.
    loadgen, *others = reversed(machine.cores)
    return Placement(workers, reason, loadgen, tuple(others[:workers]), machine.native)


def with_requests_for_all(placement: Placement, limit: int | None) -> Placement:
    """The placement without the workers that a limit of requests in flight leaves without one."""
    if limit is None or limit >= placement.workers:
        return placement
    cores = placement.worker_cores[:limit]
    return replace(placement, workers=limit, reason=_for_requests(limit), worker_cores=cores)


def _for_requests(limit: int) -> str:
    return f"for {counted(limit, 'request')} in flight"


def _wanted(load: Load, spare: int, descriptors: int) -> tuple[int, str]:
    workers, reason = max(_needs(load), default=(spare + 1, ""))
    if workers > spare:
        workers, reason = spare, "as many as the cores allow"
    files = math.ceil((load.open_at_most or 0) / max(1, descriptors - SPARE_DESCRIPTORS))
    return (files, f"with {descriptors} open files each") if files > workers else (workers, reason)


def _needs(load: Load) -> list[tuple[int, str]]:
    """Workers for each known part of the load. Streams count only where the rate of events is unknown."""
    parts: list[tuple[float | None, int, str, str]] = [
        (load.events_per_s, _EVENTS_PER_S, "event", "/s"),
        (load.queries_per_s, _QUERIES_PER_S, "query", "/s"),
        (load.open_at_most if load.events_per_s is None else None, _STREAMS, "request", " in flight"),
    ]
    return [
        (max(1, math.ceil(value / capacity)), f"for {counted(round(value), noun)}{rest}")
        for value, capacity, noun, rest in parts
        if value is not None
    ]


def this_machine() -> Machine:
    """The cores, CPU quota and open files that this process may use."""
    return Machine(
        physical_cores(sorted(os.sched_getaffinity(0)), _siblings),
        cpu_quota(),
        hard_descriptor_limit(),
        library() is not None,
    )


def physical_cores(cpus: Sequence[int], siblings: Callable[[int], str]) -> tuple[Cpus, ...]:
    """CPUs grouped by physical core; ``siblings`` gives the kernel's list for one, "" where it has none."""
    cores: list[Cpus] = []
    seen: set[int] = set()
    for cpu in cpus:
        if cpu not in seen:
            core = tuple(sorted(cpu_list(siblings(cpu)) & set(cpus) | {cpu}))
            seen.update(core)
            cores.append(core)
    return tuple(cores)


def cpu_list(text: str) -> set[int]:
    """``"0-1,64"`` as {0, 1, 64}."""
    parts = re.findall(r"([0-9]+)(?:-([0-9]+))?", text)
    return {cpu for first, last in parts for cpu in range(int(first), int(last or first) + 1)}


def _siblings(cpu: int) -> str:
    return text_of(_CPUS / f"cpu{cpu}/topology/thread_siblings_list")
