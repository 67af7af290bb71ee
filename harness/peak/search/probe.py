"""The measurements of a search: steps at a fixed concurrency, and probes, ordinary runs at a rate."""

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from harness.peak.ladder.steps import Step
from harness.record.outcome import FailureKind

# In the reasons of a run that this client, not a server, could not carry.
NO_ROOM = FailureKind.LOCAL_LIMIT.label

ProbeVerdict = Literal["VALID", "INVALID"]


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A run of official length at one rate, with the verdict of its own record."""

    rate: float
    """`target_qps`, queries per second"""
    datasets: int
    """the run's queries as a multiple of the dataset; 0 where LoadGen does not fill up"""
    queries: int
    planned_s: float
    """when its last query is to be issued"""
    seconds: float
    """time from the first query to the last answer, or to the cut"""
    cost_s: float
    """time in all, with start, end and emptying of the servers"""
    verdict: ProbeVerdict
    reasons: tuple[str, ...] = ()
    cut_after_s: float | None = None
    """time at which it was ended, since more queries were over a limit than a VALID run may have"""
    ttft_p99_ns: float | None = None
    tpot_p99_ns: float | None = None
    over_ttft: int = 0
    """queries over the limit; of a cut run those until then"""
    over_tpot: int = 0
    most_over: int = -1
    """t_max: the most queries over each limit with which the run can be VALID"""
    tokens_per_s: float | None = None
    """LoadGen's completed tokens per second, None where it reports none"""
    client_bound: bool = False
    """this client was a bottleneck for a part of it"""
    deviations: int = 0
    """from the benchmark's rules: with any the run is not official"""
    folder: str = ""
    """of the run, relative to the search's"""
    started: str = ""
    """UTC, ISO 8601; "" in simulations"""

    @property
    def no_room(self) -> str:
        """Its queries for which this client had no room; "" without any."""
        return next((reason for reason in self.reasons if NO_ROOM in reason), "")

    def p99_shares(self, limits_ns: Mapping[str, int]) -> dict[str, float]:
        """Each p99 over its limit."""
        values = {"TTFT": self.ttft_p99_ns, "TPOT": self.tpot_p99_ns}
        return {name: value / limits_ns[name] for name, value in values.items() if value is not None}

    @property
    def binding(self) -> Literal["TTFT", "TPOT"] | None:
        """The limit that more queries miss; None where none misses any."""
        if not max(self.over_ttft, self.over_tpot):
            return None
        return "TTFT" if self.over_ttft >= self.over_tpot else "TPOT"


class Prober(Protocol):
    """Measures. Raises HarnessError where no measurement is possible any more, such as without a server."""

    def ladder(self, concurrency: int) -> Step:
        """A step with this many requests in flight, over all replicas."""
        ...

    def probe(self, rate: float) -> Probe:
        """A run of official length at this rate. Raises RunError for one that shows nothing about it."""
        ...
