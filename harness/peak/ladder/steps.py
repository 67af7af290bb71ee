"""Steps of a ladder: what was measured at one number of requests in flight. Not MLPerf results."""

import msgspec

NOT_A_RESULT = "not an MLPerf result"


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles as LoadGen takes them, in ns, of ``count`` requests."""

    count: int
    p50_ns: int
    p90_ns: int
    p99_ns: int


class ReplicaStep(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's part of a step.

    ``ended_tokens_per_s``: tokens of the answers that ended in the window. ``in_flight``: the mean by
    Little's law, requests per second times their mean latency.
    """

    url: str
    queries: int
    queries_per_s: float
    ended_tokens_per_s: float
    in_flight: float
    ttft: Latency | None
    tpot: Latency | None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """``concurrency`` requests in flight, measured over a window of ``seconds`` after ``filling_s``.

    ``steady``: whether the window passed the test of steady_state.py. ``queries`` completed in
    the window. ``tokens_per_s`` counts the tokens that arrived in it, of whatever request. ``in_flight``:
    the mean that the client really held. ``latency_s``: mean from issue to end. ``ttft`` and ``tpot`` are of
    the requests that were issued at this concurrency and ended in the window, one for each in
    ``ttft_samples_ns`` and ``tpot_samples_ns`` (measurement.py explains them); ``osl_samples``
    are of all that ended in it. ``failures``: by kind, since the step began. ``client_bound``: the client was
    the bottleneck. ``notes``: what to know before relying on the step.
    """

    concurrency: int
    seconds: float
    filling_s: float
    steady: bool
    queries: int
    queries_per_s: float
    tokens_per_s: float
    in_flight: float
    client_bound: bool = False
    failures: dict[str, int] = {}
    latency_s: float | None = None
    osl_mean: float | None = None
    ttft: Latency | None = None
    tpot: Latency | None = None
    replicas: tuple[ReplicaStep, ...] = ()
    notes: tuple[str, ...] = ()
    ttft_samples_ns: tuple[int, ...] = ()
    tpot_samples_ns: tuple[int, ...] = ()
    osl_samples: tuple[int, ...] = ()

    @property
    def failed(self) -> int:
        """Failed requests."""
        return sum(self.failures.values())
