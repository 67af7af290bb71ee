"""The workloads, described once for every client."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PROMPTS = 512
# With text: other clients ignore events without.
_BURST = {"text": 1, "cumulative": 0}
# One core of the stub then sends more than one core of a client takes.
_JOINED = _BURST | {"events_per_send": 8}
_POISSON = _BURST | {"gap_us": 20_000, "first_us": 100_000, "jitter_us": 20_000}
_HELD = _BURST | {"gap_us": 10_000, "first_us": 50_000}


@dataclass(frozen=True)
class Workload:
    """``count`` requests, at Poisson arrivals of ``qps`` or with ``concurrency`` in flight."""

    name: str
    count: int
    """a multiple of the prompts where LoadGen issues them all"""
    tokens: int
    """of each answer, an event each"""
    prompt_tokens: int
    concurrency: int
    """the number in flight where ``qps`` is None, otherwise one that is never reached"""
    qps: float | None = None
    stream: bool = True
    """False: a client may leave out streaming, as LoadGen's Offline needs no times"""
    ladder_s: int | None = None
    """ours is a step of the ladder of this length, not a LoadGen run"""
    words: int = 256
    """of the tokenizer; clients that make their prompts draw ids below it"""
    knobs: Mapping[str, int] = field(default_factory=lambda: _BURST)
    """the stub's"""


WORKLOADS = {
    load.name: load
    for load in (
        Workload("burst", PROMPTS * 20, 100, 200, 256),
        Workload("burst-8", PROMPTS * 20, 100, 200, 256, knobs=_JOINED),
        Workload("prompts", PROMPTS * 60, 1, 2000, 256, stream=False, words=101_000),
        Workload("poisson-120", 2_560, 100, 200, 2000, qps=120.0, knobs=_POISSON),
        Workload("poisson-480", 7_680, 100, 200, 4000, qps=480.0, knobs=_POISSON),
        Workload("poisson-240", 512, 1000, 200, 4000, qps=240.0, knobs=_POISSON),
        Workload("held-1000", 15_000, 100, 200, 1000, ladder_s=16, knobs=_HELD),
        Workload("held-100", 1_500, 100, 200, 100, ladder_s=16, knobs=_HELD),
        Workload("start-up", 1, 2, 200, 1, stream=False),
    )
}
