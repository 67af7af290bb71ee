"""Steps of a ladder: what was measured at one number of requests in flight. Not MLPerf results."""

import msgspec

from harness.analysis.statistics import user_tokens_per_s

NOT_A_RESULT = "not an MLPerf result"


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles as LoadGen takes them, in ns."""

    count: int
    """requests"""
    p50_ns: int
    p90_ns: int
    p99_ns: int


class ReplicaStep(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's part of a step."""

    url: str
    queries: int
    queries_per_s: float
    ended_tokens_per_s: float
    """tokens of the answers that ended in the window"""
    in_flight: float
    """the mean by Little's law: requests per second times their mean latency"""
    ttft: Latency | None
    tpot: Latency | None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A number of requests in flight, measured over a window (see measurement.py)."""

    concurrency: int
    seconds: float
    """length of the window"""
    filling_s: float
    """time before the window"""
    steady: bool
    """whether the window passed the test of steady_state.py"""
    queries: int
    """requests that completed in the window"""
    queries_per_s: float
    tokens_per_s: float
    """tokens that arrived in the window, of any request"""
    in_flight: float
    """the mean that the client really held"""
    client_bound: bool = False
    """the client was the bottleneck"""
    failures: dict[str, int] = {}
    """failed requests by kind, since the step began"""
    latency_s: float | None = None
    """mean from issue to end"""
    osl_mean: float | None = None
    ttft: Latency | None = None
    """of the requests that were issued at this concurrency and ended in the window, as are the next ones"""
    tpot: Latency | None = None
    replicas: tuple[ReplicaStep, ...] = ()
    notes: tuple[str, ...] = ()
    """facts to know before relying on the step"""
    ttft_samples_ns: tuple[int, ...] = ()
    """one value for each request in `ttft`"""
    tpot_samples_ns: tuple[int, ...] = ()
    """one value for each request in `tpot`"""
    osl_samples: tuple[int, ...] = ()
    """one value for each request that ended in the window"""

    @property
    def failed(self) -> int:
        """Failed requests."""
        return sum(self.failures.values())

    @property
    def user_tokens_per_s(self) -> float | None:
        """Tokens per second of one stream, by TPOT p90; None where there is none."""
        return None if self.tpot is None else user_tokens_per_s(self.tpot.p90_ns)
