"""Whether and when the client was the bottleneck, from its CPU time and its share of LoadGen's times."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from harness.analysis.statistics import distribution
from harness.arrays import Integers
from harness.record.journal import FIRST_TOKEN, Rows
from harness.record.run_record import Bottleneck, ClientLoad, Distribution
from harness.text import counted, milliseconds

# If the client's p99 exceeds this part of the TTFT limit, the client is part of what was measured.
LARGEST_PART = 0.01
_SUSPENDED = "it was suspended meanwhile; measure again"
# Of the first tokens of half a minute, and the fewest of them: that is no pause of a moment.
_LATE_TOKENS, _FEWEST_LATE = 0.1, 5


def client_share(calls: npt.NDArray[np.void]) -> Distribution | None:
    """The time from a token's arrival to LoadGen's call, in ns, over LOADGEN_CALL_ROWs; None without one."""
    return distribution(calls["reported_ns"] - calls["arrived_ns"])


def share_warnings(
    share: Distribution | None,
    ttft_limit_ns: int | None,
    load: ClientLoad | None,
    *,
    suspended: bool = False,
) -> Iterator[str]:
    """A warning when the client took too large a part of the TTFT that the rules allow.

    ``suspended``: it was, which no core mends.
    """
    if share is None or ttft_limit_ns is None:
        return
    p99, bound = share.percentiles["99"], LARGEST_PART * ttft_limit_ns
    if p99 > bound:
        yield (
            f"the client added {milliseconds(p99)} ms at p99, more than {milliseconds(bound)} ms "
            f"({LARGEST_PART:.0%} of the TTFT limit): {_SUSPENDED if suspended else _remedy(load)}"
        )


def _remedy(load: ClientLoad | None) -> str:
    """More workers do not help against other programs."""
    if load is not None and load.throttled >= _THROTTLED:
        return "raise the quota of CPU time of this container or job"
    if load is not None and load.bottlenecks and all(stretch.machine for stretch in load.bottlenecks):
        return "the machine was busy with other programs; give the client cores of its own"
    return "give it more cores or workers"


_SECOND = 1_000_000_000
_SATURATED = 0.95  # part of a core; each process does its work in one thread
_SHORTEST_BUSY_S = 2  # a process is busy for one second when it starts
_LARGEST_GAP_S = 2
_FEWEST = 10  # calls in a second; fewer give no figure for that second
_SHOWN = 4
# Others take the cores where a process waits this part of the time for one and none uses more than this.
_WAITED, _LITTLE = 0.02, 0.6
_THROTTLED = 0.01  # part of the periods of a quota


def client_load(
    cpu: Integers,
    calls: npt.NDArray[np.void],
    start_ns: int,
    ttft_limit_ns: int | None,
    *,
    issuer: str = "LoadGen",
    loop_lag_ns: int = 0,
    gc_runs: int = 0,
    throttled: float = 0.0,
    machine: Integers | None = None,
    encoders: int = 0,
) -> ClientLoad:
    """``cpu``: rows of CLOCK_MONOTONIC ns and each process's CPU ns; ``calls``: LOADGEN_CALL_ROWs.

    The first process is the one that issues the queries; ``issuer`` names it. ``machine``, of as many rows:
    the machine's CPU ns, then the ns that each process waited for a core. ``encoders``: the last processes.
    """
    (seconds, cores), names = _cores(cpu, start_ns), _names(cpu, issuer, encoders)
    busy = dict(zip(names, cores.max(axis=0, initial=0.0).tolist(), strict=False))
    found = [*_busy_stretches(seconds, cores, names)]
    if ttft_limit_ns is not None:
        others = _Others(cpu, machine, seconds, names)
        late = _late_stretches(calls, start_ns, int(LARGEST_PART * ttft_limit_ns))
        # What the quota keeps from running waits for a core, too.
        found += late if throttled >= _THROTTLED else [others.blamed(stretch, cores) for stretch in late]
    found.sort(key=lambda stretch: (stretch.from_s, stretch.to_s))
    return ClientLoad(busy, tuple(found), loop_lag_ns, gc_runs, throttled)


def late_tokens_text(
    late: int, tokens: int, cpu: Integers, machine: Integers, *, encoders: int = 0, throttled: float = 0.0
) -> str:
    """That LoadGen got ``late`` of the latest first ``tokens`` after LARGEST_PART; "" where these are few.

    ``cpu`` and ``machine``, of the same time, and ``throttled`` as in ``client_load``.
    """
    if late < _FEWEST_LATE or late <= _LATE_TOKENS * tokens or len(cpu) < 2:
        return ""
    tokens = max(tokens, late)  # which may have arrived just before that time
    names, (seconds, cores) = _names(cpu, "LoadGen", encoders), _cores(cpu, int(cpu[0, 0]))
    reason = (
        f"in the last half minute the client reported {late / tokens:.0%} of the first tokens to LoadGen "
        f"more than {LARGEST_PART:.0%} of the TTFT limit late"
    )
    stretch = Bottleneck(0, int(seconds[-1]), reason)
    if throttled < _THROTTLED:
        stretch = _Others(cpu, machine, seconds, names).blamed(stretch, cores)
    return f"{stretch.reason}: {_remedy(ClientLoad({}, (stretch,), throttled=throttled))}"


def load_warnings(load: ClientLoad) -> Iterator[str]:
    """One line for each of the longest stretches."""
    longest = sorted(load.bottlenecks, key=lambda s: s.from_s - s.to_s)[:_SHOWN]
    for s in sorted(longest, key=lambda s: s.from_s):
        what = "the machine was busy" if s.machine else "the client was the bottleneck"
        yield f"{what} from {s.from_s} s to {s.to_s} s: {s.reason}"
    left = len(load.bottlenecks) - len(longest)
    if left:
        yield f"and in {left} shorter stretches (run.json names them)"
    if load.throttled >= _THROTTLED:
        yield (
            f"the quota of CPU time of this container or job was used up in {load.throttled:.0%} of its "
            "periods, and its processes stood still for the rest of each: raise it, or use a set of cores"
        )
    if load.gc_runs:
        ran = counted(load.gc_runs, "time")
        yield f"the garbage collector ran {ran} in LoadGen's process and the workers"


def _names(cpu: Integers, issuer: str, encoders: int) -> list[str]:
    """Of the processes, in their order."""
    parts = {"worker": max(cpu.shape[1] - 2, 0) - encoders, "encoder": encoders}
    return [issuer, *(f"{part} {index}" for part, count in parts.items() for index in range(count))]


def _cores(cpu: Integers, start_ns: int) -> tuple[Integers, npt.NDArray[np.float64]]:
    """Seconds since the start at the end of each interval, and the cores that each process used in it."""
    width = max(cpu.shape[1] - 1, 1)
    if len(cpu) < 2:
        return np.empty(0, dtype=np.int64), np.empty((0, width))
    steps = np.diff(cpu, axis=0)
    seconds: Integers = (cpu[1:, 0] - start_ns) // _SECOND
    return seconds, steps[:, 1:] / np.maximum(steps[:, :1], 1)


def _busy_stretches(
    seconds: Integers, cores: npt.NDArray[np.float64], names: Sequence[str]
) -> Iterator[Bottleneck]:
    for column, name in enumerate(names):
        busy = cores[:, column] >= _SATURATED
        for first, last in _stretches(seconds[busy]):
            if last - first + 1 >= _SHORTEST_BUSY_S:
                inside = busy & (seconds >= first) & (seconds <= last)
                share = float(cores[inside, column].mean())
                yield Bottleneck(max(first - 1, 0), last, f"{name} used {share:.0%} of a core")


def _late_stretches(calls: npt.NDArray[np.void], start_ns: int, bound_ns: int) -> list[Bottleneck]:
    if not len(calls):
        return []
    share = calls["reported_ns"] - calls["arrived_ns"]
    second = (calls["reported_ns"] - start_ns) // _SECOND
    order = np.lexsort((share, second))
    present, starts = np.unique(second[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    counts = ends - starts
    # The p99 of a second with few calls would be a single call.
    p90 = share[order][starts + np.ceil(counts * 0.9).astype(np.int64) - 1]
    late = (p90 > bound_ns) & (counts >= _FEWEST)
    found = []
    for first, last in _stretches(present[late]):
        worst_ns = int(p90[(present >= first) & (present <= last)].max())
        reason = f"it added up to {milliseconds(worst_ns)} ms to one call in ten"
        found.append(Bottleneck(first, last + 1, reason))
    return found


class _Others:
    """The cores that other programs took, and how long this client's processes waited for one."""

    def __init__(
        self, cpu: Integers, machine: Integers | None, seconds: Integers, names: Sequence[str]
    ) -> None:
        self._seconds, self._names = seconds, names
        self._known = machine is not None and machine.shape == cpu.shape
        if machine is None or not self._known:
            return
        steps, busy = np.diff(cpu, axis=0), np.diff(machine, axis=0)
        span = np.maximum(steps[:, 0], 1)
        self._taken = (busy[:, 0] - steps[:, 1:].sum(axis=1)).clip(min=0) / span  # cores
        # Part of the time: a process has several threads, which may wait together.
        self._waited = (busy[:, 1:] / span[:, None]).clip(max=1.0)

    def blamed(self, stretch: Bottleneck, cores: npt.NDArray[np.float64]) -> Bottleneck:
        """The stretch, as the machine's where a process waited for a core and none had much to do."""
        if not self._known:
            return stretch
        inside = (self._seconds > stretch.from_s - 1) & (self._seconds <= stretch.to_s)
        if not inside.any():
            return stretch
        waited = self._waited[inside].mean(axis=0)
        worst = int(waited.argmax())
        if waited[worst] < _WAITED or cores[inside].max() >= _LITTLE:
            return stretch
        taken = float(self._taken[inside].mean())
        reason = (
            f"other programs took {taken:.1f} cores, and {self._names[worst]} waited for one "
            f"{waited[worst]:.0%} of the time; {stretch.reason}"
        )
        return Bottleneck(stretch.from_s, stretch.to_s, reason, machine=True)


def _stretches(seconds: Integers) -> Iterator[tuple[int, int]]:
    """Seconds in order as (first, last) of runs; small gaps are bridged."""
    if not len(seconds):
        return
    cuts = np.flatnonzero(np.diff(seconds) > _LARGEST_GAP_S) + 1
    for part in np.split(seconds, cuts):
        yield int(part[0]), int(part[-1])


_FIGURE = "Mean First Token latency (ns)"


def mean_schedule_lag(
    rows: Rows, calls: npt.NDArray[np.void], figures: Mapping[str, float | None]
) -> float | None:
    """How late LoadGen issued its queries on average, in ns.

    None where LoadGen gives no mean TTFT, or gives it for other queries: one failed, or is missing.
    """
    firsts = calls[calls["kind"] == FIRST_TOKEN]
    same = len(firsts) == len(rows) > 0 and not rows["failure"].any()
    if not same or (mean := figures.get(_FIGURE)) is None:
        return None
    start = rows["issued_ns"].min()  # sums of absolute clock values overflow 64 bits
    ours = (firsts["reported_ns"] - start).mean() - (rows["issued_ns"] - start).mean()
    return float(mean - ours)


def lag_warnings(
    lag_ns: float | None, ttft_limit_ns: int | None, *, suspended: bool = False
) -> Iterator[str]:
    """A warning when queries were sent too late on average for the TTFT that the rules allow."""
    if lag_ns is None or ttft_limit_ns is None:
        return
    bound = LARGEST_PART * ttft_limit_ns
    if lag_ns > bound:
        yield (
            f"LoadGen issued its queries {milliseconds(lag_ns)} ms behind its schedule on average, more than "
            f"{milliseconds(bound)} ms ({LARGEST_PART:.0%} of the TTFT limit): "
            f"{_SUSPENDED if suspended else 'its process needs a core of its own'}"
        )
