"""The figures of several replicas in run.json."""

from typing import Literal

import msgspec

StragglerTime = Literal["TPOT", "TTFT", "time per token"]


class Straggler(msgspec.Struct, frozen=True):
    """A replica of which a median time was above that of all replicas for at least 60 s."""

    url: str
    ratio: float
    """the greatest ratio of the two medians"""
    from_s: float
    """since the first query"""
    to_s: float
    """the last time it was seen so"""
    time: StragglerTime = "TPOT"
    """`TPOT`, above 1.1 x; `TTFT`, from the request on, above 2 x and by 50 ms or more; `time per token` of
    answers that were not streamed, from the request on, above 1.1 x"""


class ReplicaFigures(msgspec.Struct, frozen=True):
    """Figures of one replica, times in ns; `null` where no answer has the quantity."""

    queries: int
    failed: int
    output_tokens: int
    in_flight: float
    """mean number of requests on it"""
    ttft_p99: int | None
    tpot_p50: int | None
    tpot_p99: int | None


class ReplicaBalance(msgspec.Struct, frozen=True, kw_only=True):
    """The balance of the replicas' loads, and the differences of their speed."""

    imbalance: float | None
    """the largest of the replicas' mean numbers in flight over the mean of all: 1 is even"""
    stragglers: tuple[Straggler, ...] | None
    """`null`: not judged: the replicas could not be compared for 60 s; the run was shorter, or fewer than ten
    answers of a replica ended in a minute"""
    replicas: dict[str, ReplicaFigures]
    """by URL"""


class RankFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one data-parallel rank from its server's metrics; `null` where it does not report one."""

    server: str
    """URL"""
    rank: int
    """SGLang's `dp_rank`, vLLM's `engine`"""
    running: float | None
    """requests running, mean over the run"""
    queued: float | None
    """requests waiting, mean over the run"""
    kv_use: float | None
    """part of its KV cache in use, mean over the run"""
    tokens_per_s: float | None
    """output tokens, mean over the run"""
    share: float | None
    """of the output tokens of all listed ranks of all servers"""

    @property
    def name(self) -> str:
        """``dp_rank 1 of http://node1:30000``."""
        return f"dp_rank {self.rank} of {self.server}"
