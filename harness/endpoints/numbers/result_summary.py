"""performance/result_summary.json: a point's numbers in the official definitions, and by those of its window.

Percentiles are observed values, int(p * (n - 1)) of the sorted ones. Times are ns. A failed request is not a
completed one, which the submission checker asks for; the official client counts it as both.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.endpoints.numbers.count_cache import FINISH_REASONS
from harness.endpoints.numbers.event_reader import RunEvents
from harness.endpoints.run_folder import SUMMARY
from harness.endpoints.samples import Samples, latency_ns, tpot_ns, ttft_ns
from harness.json_files import write_json
from harness.peak.ladder.steps import NOT_A_RESULT

Values = npt.NDArray[Any]

PERCENTILES = (99.9, 99.0, 97.0, 95.0, 90.0, 80.0, 75.0, 50.0, 25.0, 10.0, 5.0, 1.0)
_BUCKETS = 30


def write_summary(
    folder: Path,
    events: RunEvents,
    *,
    client: str,
    window: tuple[int, int] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Write result_summary.json of a run folder, and return it.

    ``client`` names the program that sent the requests. ``window`` is the first request of the steady
    state and the one after its last, in the order of issue. ``more`` are further keys, such as
    ``steady_state``. Raises OSError.
    """
    summary = {"label": NOT_A_RESULT, "client": client, **summarize(events, window), **more}
    (folder / SUMMARY).parent.mkdir(parents=True, exist_ok=True)
    write_json(folder / SUMMARY, summary)
    return summary


def summarize(events: RunEvents, window: tuple[int, int] | None = None) -> dict[str, Any]:
    """The official keys, and ``window`` with those of the steady state, if there is one."""
    samples, isl = events.samples, events.isl
    counts = _counts(samples)
    found = {
        "version": "",
        "git_sha": None,
        "test_started_at": int(samples["issued_ns"][0]) if len(samples) else 0,
        **counts,
        "duration_ns": events.duration_ns or None,
        "state": "complete" if events.ended else "interrupted",
        "complete": events.ended and not events.notes,
        **_blocks(samples, isl),
        "legacy_loadgen_window_duration_ns": None,
        **_rates(samples, events.duration_ns, counts["n_samples_completed"]),
        "finish_reason_counts": _finished(events),
    }
    if window is not None:
        some = slice(*window)
        found["window"] = _of_window(samples[some], isl[some], window)
    return found


def _of_window(samples: Samples, isl: npt.NDArray[np.int64], window: tuple[int, int]) -> dict[str, Any]:
    """Numbers of the requests that were issued in it, over its time of issuing: the drain is outside."""
    issued = samples["issued_ns"]
    duration_ns = int(issued[-1] - issued[0]) if len(issued) else 0
    counts = _counts(samples)
    return {
        "first_request": window[0],
        **counts,
        "duration_ns": duration_ns or None,
        **_blocks(samples, isl),
        **_rates(samples, duration_ns, counts["n_samples_completed"]),
    }


def _counts(samples: Samples) -> dict[str, Any]:
    return {
        "n_samples_issued": len(samples),
        "n_samples_completed": int(((samples["complete_ns"] > 0) & ~samples["failed"]).sum()),
        "n_samples_failed": int(samples["failed"].sum()),
    }


def _blocks(samples: Samples, isl: npt.NDArray[np.int64]) -> dict[str, Any]:
    return {
        "ttft": stat_block(ttft_ns(samples)),
        "tpot": stat_block(tpot_ns(samples)),
        "latency": stat_block(latency_ns(samples)),
        "output_sequence_lengths": stat_block(samples["output_tokens"][samples["output_tokens"] > 0]),
        "input_sequence_lengths": stat_block(isl[isl > 0]),
    }


def _rates(samples: Samples, duration_ns: int, completed: int) -> dict[str, Any]:
    if duration_ns <= 0:
        return {"qps": None, "tps": None}
    tokens = int(samples["output_tokens"].sum())
    seconds = duration_ns / 1e9
    return {"qps": completed / seconds, "tps": tokens / seconds if tokens else None}


def _finished(events: RunEvents) -> dict[str, int]:
    counts = np.bincount(events.finish, minlength=len(FINISH_REASONS)).tolist()
    return dict(zip(FINISH_REASONS[1:], counts[1:], strict=True))


def stat_block(values: Values) -> dict[str, Any]:
    """An official block of statistics; empty without values."""
    if not len(values):
        return {}
    ordered = np.sort(values)
    percentiles = {str(p): float(ordered[math.floor(p / 100 * (len(ordered) - 1))]) for p in PERCENTILES}
    total = values.sum().item()
    return {
        "total": total,
        "min": ordered[0].item(),
        "max": ordered[-1].item(),
        "median": percentiles["50.0"],
        "avg": total / len(values),
        "std_dev": float(np.std(values.astype(np.float64), ddof=1)) if len(values) > 1 else 0.0,
        "percentiles": percentiles,
        "histogram": _histogram(ordered),
    }


def _histogram(ordered: Values) -> dict[str, Any]:
    """Counts in ranges of equal ratio between the least and the largest value."""
    low = max(float(ordered[0]), 1.0)
    high = max(float(ordered[-1]), 10 * low)
    edges = np.exp(np.linspace(math.log(low), math.log(high), _BUCKETS + 1))
    counts, _ = np.histogram(np.clip(ordered, edges[0], edges[-1]), bins=edges)
    buckets = [[begin, end] for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
    return {"buckets": buckets, "counts": counts.tolist()}
