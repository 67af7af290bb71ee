"""A ladder in the layout of MLPerf Endpoints, as its public viewer mlperf-viz 2.0.0 reads it: a rehearsal.

``<org>/<submission>/results/<system>/<model>/r<concurrency>/`` holds point.yaml, result_summary.json and
system_desc.json. The viewer computes tokens/s of the system from the total of the output lengths over the
duration, and those of a user from TPOT p90. ``unmet`` names the rules of Endpoints that it breaks.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.files import atomic_write
from harness.peak.ladder.ladder_result import Ladder
from harness.peak.ladder.steps import NOT_A_RESULT, Latency, Step

ENDPOINTS = "endpoints"  # folder beside ladder.json
UNMET = "NOT_A_RESULT.txt"

# MLPerf Endpoints, endpoints_policies of 2026-10: points of a curve, seconds of steady state, passes.
_LEAST_POINTS = 8
_ULTRA_LOW, _ULTRA_LOW_S, _OTHERS_S = 32, 600.0, 1200.0
_LEAST_PASSES = 4

Value = str | int | float | bool | None


def write_endpoints(folder: Path, ladder: Ladder) -> None:
    """Write the tree and a warning about its status. Raises OSError."""
    root = folder / ENDPOINTS
    system, model = _system(ladder), _safe(ladder.benchmark)
    curve = root / _safe(NOT_A_RESULT) / "ladder" / "results" / _safe(system) / model
    for step in ladder.steps:
        point = curve / f"r{step.concurrency}"
        point.mkdir(parents=True, exist_ok=True)
        _write(
            point / "point.yaml", "".join(f"{key}: {json.dumps(one)}\n" for key, one in _point(step, ladder))
        )
        _write(point / "result_summary.json", json.dumps(_summary(step), indent=1) + "\n")
        _write(point / "system_desc.json", json.dumps(_description(ladder), indent=1) + "\n")
    root.mkdir(exist_ok=True)
    lines = [f"This is {NOT_A_RESULT}, and no submission to MLPerf Endpoints:", *unmet(ladder)]
    _write(root / UNMET, "\n- ".join(lines) + "\n")


def unmet(ladder: Ladder) -> Iterator[str]:
    """Rules of MLPerf Endpoints that this ladder does not keep."""
    if len(ladder.steps) < _LEAST_POINTS:
        yield f"{len(ladder.steps)} points were measured, a curve has {_LEAST_POINTS} at least"
    short = [str(step.concurrency) for step in ladder.steps if step.seconds < _least_s(step)]
    if short:
        yield (
            f"steady state lasts {_ULTRA_LOW_S:g} s up to {_ULTRA_LOW} in flight and {_OTHERS_S:g} s above; "
            f"it was measured for less at {', '.join(short)}"
        )
    few = [str(one.concurrency) for one in ladder.steps if one.queries < _LEAST_PASSES * ladder.samples]
    if few:
        shown = ", ".join(few)
        yield f"a point is of {_LEAST_PASSES} passes of the dataset at least; fewer were seen at {shown}"
    unsteady = [str(step.concurrency) for step in ladder.steps if not step.steady]
    if unsteady:
        yield f"no steady state was seen at {', '.join(unsteady)}"
    yield "steady state is found by the ladder's own test, not by the policies' plateau of TPOT p50 and p90"
    yield "there is no Offline point, no accuracy run, no power description"
    yield "prompts are token ids without a salt, not text with a chat template"
    yield "tokens are counted by the server's ids, not by the reference tokenizer over the answer's text"
    yield "the client is this one, not the reference client"


def _least_s(step: Step) -> float:
    return _ULTRA_LOW_S if step.concurrency <= _ULTRA_LOW else _OTHERS_S


def _point(step: Step, ladder: Ladder) -> Iterator[tuple[str, Value]]:
    yield "concurrency", step.concurrency
    yield "run_date", ladder.started.strftime("%Y-%m-%d")
    yield "division", NOT_A_RESULT
    yield "model_name", ladder.benchmark
    yield "model_notes", NOT_A_RESULT
    yield "dataset_name", Path(ladder.input_file).name
    yield "max_supported_concurrency", max(one.concurrency for one in ladder.steps)
    yield "output_token_average", step.osl_mean


def _summary(step: Step) -> Mapping[str, object]:
    """The window of a step; times in ns."""
    return {
        "version": NOT_A_RESULT,
        "complete": True,
        "n_samples_issued": step.queries + step.failed,
        "n_samples_completed": step.queries,
        "n_samples_failed": step.failed,
        "duration_ns": round(step.seconds * 1e9),
        "output_sequence_lengths": {"total": round(step.tokens_per_s * step.seconds)},
        "ttft": _block(step.ttft),
        "tpot": _block(step.tpot),
    }


def _block(latency: Latency | None) -> Mapping[str, object]:
    if latency is None:
        return {}
    return {"percentiles": {"50": latency.p50_ns, "90": latency.p90_ns, "99": latency.p99_ns}}


def _description(ladder: Ladder) -> Mapping[str, object]:
    frameworks = sorted({f"{one.engine} {one.version or ''}".strip() for one in ladder.servers})
    return {
        "submitter_org_names": NOT_A_RESULT,
        "system_name": _system(ladder),
        "system_category": NOT_A_RESULT,
        "serving_framework": ", ".join(frameworks),
        "config_summary_notes": NOT_A_RESULT,
        "node_types": [],
    }


def _system(ladder: Ladder) -> str:
    """The servers are known by their number and engine only."""
    count = len(ladder.servers)
    return f"{count} {ladder.servers[0].engine} server{'' if count == 1 else 's'}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text.encode())
