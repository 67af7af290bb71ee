"""Whether and when the client was the bottleneck, from its CPU time and its share of LoadGen's times."""

from collections.abc import Iterator, Mapping

import msgspec
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


class ClientReadings(msgspec.Struct, frozen=True):
    """What was read of the process that issues the queries, the workers and their encoders, in this order."""

    cpu: Integers = np.empty((0, 2), np.int64)
    """a row for each second: CLOCK_MONOTONIC ns, then the CPU ns of each process"""
    machine: Integers = np.empty((0, 2), np.int64)
    """a row for each of `cpu`, where it is known: the machine's CPU ns, then the ns that each process waited
    for a core"""
    encoders: int = 0
    """the last columns of these are theirs"""
    loop_lag_ns: int = 0
    """this and what follows: as in ClientLoad"""
    gc_runs: int = 0
    throttled: float = 0.0


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
    readings: ClientReadings,
    calls: npt.NDArray[np.void],
    start_ns: int,
    ttft_limit_ns: int | None,
    *,
    issuer: str = "LoadGen",
) -> ClientLoad:
    """``calls``: LOADGEN_CALL_ROWs; ``issuer`` names the process that issues the queries."""
    course, throttled = _Course(readings, start_ns, issuer), readings.throttled
    busy = dict(zip(course.names, course.cores.max(axis=0, initial=0.0).tolist(), strict=True))
    found = [*_busy_stretches(course)]
    if ttft_limit_ns is not None:
        late = _late_stretches(calls, start_ns, int(LARGEST_PART * ttft_limit_ns))
        # What the quota keeps from running waits for a core, too.
        found += late if throttled >= _THROTTLED else map(course.blamed, late)
    found.sort(key=lambda stretch: (stretch.from_s, stretch.to_s))
    return ClientLoad(busy, tuple(found), readings.loop_lag_ns, readings.gc_runs, throttled)


def late_tokens_text(late: int, tokens: int, readings: ClientReadings) -> str:
    """That LoadGen got ``late`` of the latest first ``tokens`` after LARGEST_PART; "" where these are few.

    ``readings`` are of the same time.
    """
    if late < _FEWEST_LATE or late <= _LATE_TOKENS * tokens or len(readings.cpu) < 2:
        return ""
    tokens = max(tokens, late)  # which may have arrived just before that time
    course, throttled = _Course(readings, int(readings.cpu[0, 0])), readings.throttled
    reason = (
        f"in the last half minute the client reported {late / tokens:.0%} of the first tokens to LoadGen "
        f"more than {LARGEST_PART:.0%} of the TTFT limit late"
    )
    stretch = Bottleneck(0, int(course.seconds[-1]), reason)
    if throttled < _THROTTLED:
        stretch = course.blamed(stretch)
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


def _busy_stretches(course: "_Course") -> Iterator[Bottleneck]:
    seconds, cores = course.seconds, course.cores
    for column, name in enumerate(course.names):
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


class _Course:
    """What the processes did in each interval between two readings."""

    def __init__(self, readings: ClientReadings, start_ns: int, issuer: str = "LoadGen") -> None:
        cpu, encoders = readings.cpu, readings.encoders
        parts = {"worker": cpu.shape[1] - 2 - encoders, "encoder": encoders}
        numbered = (f"{part} {index}" for part, count in parts.items() for index in range(count))
        self.names = [issuer, *numbered]
        steps = np.diff(cpu, axis=0)
        span = np.maximum(steps[:, :1], 1)
        self.seconds: Integers = (cpu[1:, 0] - start_ns) // _SECOND
        """since the start, at the end of each interval"""
        self.cores: npt.NDArray[np.float64] = steps[:, 1:] / span
        """that each process used"""
        is_known = readings.machine.shape == cpu.shape
        busy = np.diff(readings.machine if is_known else np.zeros_like(cpu), axis=0)
        self._taken = (busy[:, 0] - steps[:, 1:].sum(axis=1)).clip(min=0) / span[:, 0]  # cores, by others
        # Part of the time: a process has several threads, which may wait together.
        self._waited = (busy[:, 1:] / span).clip(max=1.0)

    def blamed(self, stretch: Bottleneck) -> Bottleneck:
        """The stretch, as the machine's where a process waited for a core and none had much to do."""
        inside = (self.seconds > stretch.from_s - 1) & (self.seconds <= stretch.to_s)
        if not inside.any():
            return stretch
        waited = self._waited[inside].mean(axis=0)
        worst = int(waited.argmax())
        if waited[worst] < _WAITED or self.cores[inside].max() >= _LITTLE:
            return stretch
        taken = float(self._taken[inside].mean())
        reason = (
            f"other programs took {taken:.1f} cores, and {self.names[worst]} waited for one "
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
