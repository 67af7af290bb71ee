"""Steps and ladders with known figures."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from harness.peak.ladder.ladder_result import Ladder
from harness.peak.ladder.steps import Latency, ReplicaStep, Step
from tests.kit import parameters
from tests.records import ENDED

MS = 10**6
LIMITS = {"TTFT": 3000 * MS, "TPOT": 80 * MS}
URLS = ("http://a:30000", "http://b:30000")


def latency(p50_ms: float, p99_ms: float | None = None) -> Latency:
    top = round((p99_ms or 1.2 * p50_ms) * MS)
    return Latency(count=100, p50_ns=round(p50_ms * MS), p90_ns=(round(p50_ms * MS) + top) // 2, p99_ns=top)


def step(concurrency: int, tokens_per_s: float, **fields: Any) -> Step:
    """A steady step; ``ttft`` and ``tpot`` are p50 in ms, or a Latency."""
    times = fields.pop("ttft", 200), fields.pop("tpot", 20)
    ttft, tpot = (time if isinstance(time, Latency) else latency(time) for time in times)
    replicas = tuple(
        ReplicaStep(
            url=url,
            queries=50,
            queries_per_s=tokens_per_s / 400,
            ended_tokens_per_s=tokens_per_s / 2,
            in_flight=concurrency / 2,
            ttft=ttft,
            tpot=tpot,
        )
        for url in URLS
    )
    given: dict[str, Any] = {
        "seconds": 60.0,
        "filling_s": 12.0,
        "steady": True,
        "queries": 100,
        "queries_per_s": tokens_per_s / 200,
        "in_flight": float(concurrency),
        "ttft": ttft,
        "tpot": tpot,
        "latency_s": 4.0,
        "osl_mean": 200.0,
        "replicas": replicas,
    }
    return Step(concurrency=concurrency, tokens_per_s=tokens_per_s, **given | fields)


def uneven(*tpot_ms: float | None) -> Step:
    """A step whose replica ``http://<i>`` has this median TPOT, or none."""
    one = step(4, 200)
    replicas = tuple(
        replace(one.replicas[0], url=f"http://{number}", tpot=median and latency(median))
        for number, median in enumerate(tpot_ms)
    )
    return replace(one, replicas=replicas)


# Tokens per second and TPOT in ms of a server that batches up to 64 requests; above, they wait.
CURVE = {4: (200, 20, 100), 8: (380, 21, 110), 16: (700, 22.5, 130), 32: (1150, 27, 200), 64: (1600, 39, 400),
         128: (1610, 40, 4200)}  # fmt: skip


def curve() -> tuple[Step, ...]:
    return tuple(step(n, rate, tpot=tpot, ttft=ttft) for n, (rate, tpot, ttft) in CURVE.items())


def ladder(*steps: Step, **fields: Any) -> Ladder:
    """A complete ladder of these steps, or of CURVE."""
    shown = steps or curve()
    given: dict[str, Any] = {
        "benchmark": "gpt-oss-120b",
        "scenario": "server",
        "input_file": "/data/perf.parquet",
        "dataset_sha256": "0" * 64,
        "samples": 6396,
        "parameters": parameters(),
        "seconds": 60.0,
        "wanted": tuple(one.concurrency for one in shown),
        "limits_ns": LIMITS,
        "servers": ENDED.servers,
        "provenance": ENDED.provenance,
        "started": datetime(2026, 1, 1, tzinfo=UTC),
        "ended": datetime(2026, 1, 1, 1, tzinfo=UTC),
        "steps": shown,
        "stopped": "every step was measured",
        "complete": True,
    }
    return Ladder(**given | fields)
