"""Runs of a point with known TPOT: as arrays, and as the events.jsonl and config.yaml of a run folder."""

import json
import random
from typing import NamedTuple

import numpy as np

from harness.endpoints.run_folder import CONFIG, EVENTS
from harness.endpoints.samples import SAMPLE

MS = 1_000_000


class Shape(NamedTuple):
    """A made-up run: the mean TPOT of each pass in ms, and what surrounds it."""

    tpot_ms: tuple[float, ...]
    size: int = 40
    pass_s: float = 200.0  # over which a pass issues
    noise: float = 0.02  # of the mean TPOT of a pass, as a part
    scatter: float = 0.2  # of a request's TPOT
    ttft_ms: tuple[float, ...] = (200.0,)  # of each pass; the last one of all further passes
    latency_tokens: int = 200  # the longest answer
    left_out: int = 0  # requests that the last pass lacks
    streamed: bool = True
    unanswered: int = 0  # of every this many requests one never answers
    failing: int = 0  # of every this many requests one fails after its first fragment


def run_of(shape, seed):
    """Samples in the order of issue."""
    draw = random.Random(seed)
    rows: list[tuple[float, ...]] = []
    issued, step = 10**12, int(shape.pass_s * 1e9 / shape.size)
    for number, tpot in enumerate(shape.tpot_ms):
        mean = tpot * draw.gauss(1, shape.noise)
        ttft = shape.ttft_ms[min(number, len(shape.ttft_ms) - 1)]
        last = number == len(shape.tpot_ms) - 1
        for _ in range(shape.size - (shape.left_out if last else 0)):
            issued += step
            rows.append(_request(shape, draw, issued, ttft, mean, len(rows) + 1))
    return np.array(rows, SAMPLE)


def _request(shape, draw, issued, ttft_ms, tpot_ms, number):
    tokens = draw.randint(2, shape.latency_tokens)
    first = issued + int(ttft_ms * draw.uniform(0.5, 2) * MS)
    complete = first + int(tokens * max(0, tpot_ms * draw.gauss(1, shape.scatter)) * MS)
    if not shape.streamed:
        return issued, 0, complete, tokens + 1, 0, False
    if shape.unanswered and number % shape.unanswered == 0:
        return issued, 0, 0, 0, 0, True
    if shape.failing and number % shape.failing == 0:
        return issued, first, complete, 0, 0, True
    return issued, first, complete, tokens + 1, tokens, False


def write_run(folder, samples, concurrency=64):
    """The files that the official detector reads; an answer of n tokens is n words."""
    folder.mkdir(parents=True)
    events = [(0, _event("session.start_performance_tracking", 0))]
    for number, row in enumerate(samples):
        events += _events_of(f"{number:032x}", row)
    events.sort(key=lambda event: event[0])
    (folder / EVENTS).write_text("".join(line for _, line in events))
    (folder / CONFIG).write_text(
        "type: online\nmodel_params: {name: made-up/words}\n"
        f"settings: {{load_pattern: {{type: concurrency, target_concurrency: {concurrency}}}}}\n"
    )


def _events_of(uuid, row):
    issued, first, complete, tokens, suffix, failed = row.tolist()
    yield issued, _event("sample.issued", issued, uuid)
    if first:
        yield first, _event("sample.recv_first", first, uuid)
    if complete and failed:
        yield complete, _event("error.generic", complete, uuid)
    if complete:
        words = ["w", " w" * suffix] if first else " ".join("w" * tokens)
        yield (
            complete,
            _event("sample.complete", complete, uuid, None if failed else ["TextModelOutput", words]),
        )


def _event(kind, at, uuid="", data=None):
    fields = {"event_type": kind, "timestamp_ns": at, "sample_uuid": uuid, "data": data}
    return json.dumps(fields) + "\n"


def line(first, last, count):
    """A mean TPOT for each pass, on a straight line."""
    return tuple(first + (last - first) * i / (count - 1) for i in range(count))


SHAPES = {
    "plateau": Shape((20.0,) * 9),
    "long plateau": Shape((20.0,) * 30, noise=0.01),
    "drifts up": Shape(line(20, 40, 16), noise=0.01),
    "drifts down": Shape(line(40, 20, 16), noise=0.01),
    "drifts slowly up": Shape(line(20, 22.5, 24), noise=0.005, scatter=0.05),
    "drifts slowly down": Shape(line(22.5, 20, 24), noise=0.005, scatter=0.05),
    "steps up": Shape((20.0,) * 8 + (26.0,) * 8, noise=0.005, scatter=0.05),
    "steps down": Shape((26.0,) * 8 + (20.0,) * 8, noise=0.005, scatter=0.05),
    "steps up late": Shape((20.0,) * 26 + (26.0,) * 8, noise=0.005, scatter=0.05),
    "steps down late": Shape((26.0,) * 26 + (20.0,) * 8, noise=0.005, scatter=0.05),
    "climbs after a plateau": Shape((20.0,) * 12 + line(20, 20.8, 12), noise=0.002, scatter=0.02),
    "steps early": Shape((20.0,) * 3 + (26.0,) * 12),
    "staircase": Shape((20.0,) * 6 + (24.0,) * 6 + (30.0,) * 6, noise=0.005, scatter=0.05),
    "ramp-up": Shape((8.0, 12.0, 16.0, 19.0) + (20.0,) * 12),
    "burst": Shape((20.0,) * 6 + (60.0,) + (20.0,) * 7),
    "late burst": Shape((20.0,) * 9 + (60.0,)),
    "few passes": Shape((20.0,) * 4),
    "one pass": Shape((20.0,)),
    "part of a pass": Shape((20.0,), left_out=10),
    "too short": Shape((20.0,) * 9, pass_s=30.0),
    "short for 1 200 s": Shape((20.0,) * 6, pass_s=180.0, noise=0.005),
    "first plateau short": Shape((20.0,) * 5 + (60.0,) + (20.0,) * 13, pass_s=110.0),
    "noisy": Shape((20.0,) * 16, noise=0.15),
    "noise at the bound": Shape((20.0,) * 16, noise=0.07),
    "precision": Shape((20.0,) * 16, noise=0.06, pass_s=150.0),
    "long answers": Shape((20.0,) * 10, latency_tokens=20_000),
    "constant": Shape((20.0,) * 10, noise=0.0, scatter=0.0),
    "zero": Shape((0.0,) * 10, noise=0.0, scatter=0.0),
    "TTFT drifts": Shape((20.0,) * 14, ttft_ms=line(200, 2000, 14)),
    "incomplete last pass": Shape((20.0,) * 9, left_out=27),
    "unanswered": Shape((20.0,) * 9, unanswered=7),
    "failing": Shape((20.0,) * 9, failing=5),
    "not streamed": Shape((20.0,) * 9, streamed=False),
}
