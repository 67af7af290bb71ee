"""Made-up points of an Endpoints curve from 1 to 1 024 in flight, with numbers that agree.

Their run folders have the form of this client's, or of the official client's alone.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness.endpoints.curve import Band, Curve, Offline, Point, SeedSet
from harness.endpoints.point_run import IdleRoundTrip, OwnNumbers, PointRun, WarmUp, write_point_run
from harness.endpoints.run_folder import ACCURACY, CONFIG, RUNS, SUMMARY, WARM_UP_REQUESTS
from harness.endpoints.tree.client_config import IDS, client_config, write_config
from harness.endpoints.tree.system_file import EXAMPLE
from harness.files import ROOT
from harness.peak.ladder.steps import Latency
from harness.yaml_files import write_yaml
from tests.kit import parameters
from tests.records import ENDED

SEEDS = SeedSet(
    name="A",
    cohort="",
    published="2026-10-C1",
    scheduler=10487924139932647040,
    sample_index=586478644936801402,
    model=9315206023656308754,
)
# Requests in flight, the band (they end at 11, 103 and 1024), whether an accuracy run follows, passes of the
# dataset in units of the fewest: the server's throughput grows with its load.
LEVELS: tuple[tuple[int, Band, bool, int], ...] = (
    (1, "ultra_low", True, 1),
    (8, "low", True, 2),
    (32, "med", False, 3),
    (64, "med", True, 8),
    (256, "high", False, 9),
    (512, "high", False, 10),
    (1024, "high", True, 11),
)
SAMPLES, OSL, MS = 6396, 500, 10**6
SCORE = 83.5  # exact match of gpt-oss-120b; 82.30 is asked for
MODEL, BENCHMARK = "gpt-oss-120b", "gpt-oss-120b"
EPOCH_NS = 10**15  # where the monotonic clock stands when a point begins


def curve(
    offline: Offline = "dedicated", *, samples: int = SAMPLES, passes: int = 4, **changes: Any
) -> Curve:
    """Eight points with a dedicated Offline run, or seven of which the last is elected."""
    points = [
        Point(
            name=f"r{level}",
            concurrency=level,
            band=band,
            offline="elected" if offline == "elected" and level == LEVELS[-1][0] else "none",
            accuracy=accuracy,
            issue_s=600.0 if level <= 32 else 1200.0,
            passes=factor * passes,
        )
        for level, band, accuracy, factor in LEVELS
    ]
    if offline == "dedicated":
        points.append(
            Point(
                name="offline",
                concurrency=samples,
                band="offline",
                offline="dedicated",
                accuracy=True,
                issue_s=1200.0,
                passes=12 * passes,
            )
        )
    made = Curve(
        benchmark=BENCHMARK,
        model_name=MODEL,
        c_min=1,
        c_max=LEVELS[-1][0],
        points=tuple(points),
        samples=samples,
        accuracy_samples=4395,
        seeds=SEEDS,
    )
    return replace(made, **changes)


def latency_s(point: Point, samples: int = SAMPLES) -> float:
    """From issue to end, by Little's law the same for each request."""
    return point.concurrency * seconds_of(point) / (point.passes * samples)


def ttft_ms(point: Point, samples: int = SAMPLES) -> float:
    """A tenth of the latency."""
    return 100 * latency_s(point, samples)


def tpot_ms(point: Point, samples: int = SAMPLES) -> float:
    """The rest of the latency, over the other tokens."""
    return 900 * latency_s(point, samples) / (OSL - 1)


def seconds_of(point: Point) -> float:
    """From the first issue to the last: a little more than the rules ask for."""
    return 1.02 * point.issue_s


def point_run(point: Point, of: Curve | None = None, **changes: Any) -> PointRun:
    """The point as this client ran it, complete and without failures."""
    plan = of or curve()
    streamed = point.offline != "dedicated"
    seconds, issued = seconds_of(point), plan.samples * point.passes
    made = PointRun(
        curve=plan,
        point=point,
        input_file="/data/perf/perf_eval_ref.parquet",
        dataset_sha256="0" * 64,
        parameters=parameters(max_new_tokens=10240, stream=streamed),
        servers=tuple(replace(server, url=f"http://node{i}:30000") for i, server in enumerate(ENDED.servers)),
        provenance=ENDED.provenance,
        started=datetime(2026, 11, 23, 13, tzinfo=UTC),
        ended=datetime(2026, 11, 23, 14, tzinfo=UTC),
        warm_up=WarmUp(
            duration_s=20.0,
            requests_issued=64,
            requests_completed=64,
            data_source="accuracy dataset",
            concurrency=min(point.concurrency, 64),
        ),
        issued=issued,
        completed=issued,
        passes=point.passes,
        issue_s=seconds,
        drain_s=latency_s(point, plan.samples),
        own=_own(point, plan),
        network=IdleRoundTrip(count=100, min_ns=180_000, p50_ns=210_000),
        complete=True,
    )
    return replace(made, **changes)


def _own(point: Point, plan: Curve) -> OwnNumbers:
    streamed, n = point.offline != "dedicated", plan.samples
    queries, seconds = n * point.passes, seconds_of(point) + latency_s(point, n)
    return OwnNumbers(
        queries=queries,
        tokens=queries * OSL,
        seconds=seconds,
        tokens_per_s=queries * OSL / seconds,
        queries_per_s=queries / seconds,
        ttft=_latency(queries, ttft_ms(point, n)) if streamed else None,
        tpot=_latency(queries, tpot_ms(point, n)) if streamed else None,
        latency=_latency(queries, 1000 * latency_s(point, n)),
    )


def _latency(count: int, ms: float) -> Latency:
    return Latency(count=count, p50_ns=round(ms * MS), p90_ns=round(ms * MS), p99_ns=round(ms * MS))


def summary(run: PointRun) -> dict[str, Any]:
    """performance/result_summary.json of the point."""
    failed = run.issued - run.completed
    streamed = run.point.offline != "dedicated"
    point, samples, seconds = run.point, run.curve.samples, run.issue_s + run.drain_s
    found: dict[str, Any] = {
        "version": "0.5.0",
        "git_sha": "40b78bfe",
        "test_started_at": EPOCH_NS,
        "n_samples_issued": run.issued,
        "n_samples_completed": run.completed,
        "n_samples_failed": failed,
        "duration_ns": round(seconds * 1e9),
        "state": "complete",
        "complete": run.complete,
        "latency": _block(run.completed, latency_s(point, samples) * 1e9),
        "output_sequence_lengths": _block(run.completed, OSL),
        "qps": run.completed / seconds,
        "tps": run.completed * OSL / seconds,
    }
    if streamed:
        found["ttft"] = _block(run.completed, ttft_ms(point, samples) * MS)
        found["tpot"] = _block(run.completed, tpot_ms(point, samples) * MS)
        found["steady_state"] = steady_state(run)
    return found


def headline(run: PointRun) -> dict[str, Any]:
    """``steady_state`` of result_summary.json as the official client writes it."""
    block = steady_state(run)
    window = {
        "sp_lo": 0,
        "sp_hi": run.passes,
        "n_samples": block["window"]["n_samples"],
        "n_super_passes": run.passes,
        "plateau_index": 0,
        "n_plateaus": 1,
        "skipped_short": 0,
    }
    short = {
        "is_short": False,
        "window_duration_s": block["window"]["duration_s"],
        "min_duration_s": 600.0,
        "dominant": "floor",
    }
    return {
        "found": True,
        "window": window,
        "short_window": short,
        "global_trend": dict.fromkeys(block["state"], "flat"),
        "superpass_size": run.curve.samples,
        "n_super_passes": run.passes,
        "n_post_warmup": run.passes,
    }


def _block(count: int, value: float) -> dict[str, Any]:
    """Statistics of numbers that are all the same."""
    same = {"min": value, "max": value, "median": value, "avg": value, "std_dev": 0.0}
    return {"total": count * value, **same, "percentiles": dict.fromkeys(("50", "90", "95", "99"), value)}


def steady_state(run: PointRun) -> dict[str, Any]:
    """The official detector's block of a point that was steady throughout."""
    gates = ("tpot_p50", "tpot_p90")
    return {
        "status": "windowable",
        "verdict": "STEADY STATE",
        "window": {
            "super_pass_start": 0,
            "super_pass_end": run.passes - 1,
            "super_pass_size": run.curve.samples,
            "n_samples": run.completed,
            "duration_s": run.issue_s,
        },
        "state": dict.fromkeys(gates, "Plateau"),
    }


def accuracy(samples: int = 4395, score: float = SCORE, seconds: float = 900.0) -> dict[str, Any]:
    """accuracy/accuracy_results.json: one data set, as the official client writes it."""
    entry = {
        "dataset_name": "mlperf_gpt_oss_accuracy",
        "dataset_type": "accuracy",
        "score": {"exact_match": score},
        "unit_samples": samples,
        "num_repeats": 1,
        "total_samples": samples,
        "duration_s": seconds,
        "complete": True,
    }
    return {"osl_tokenization_s": 1.0, "accuracy_scores": [entry]}


def write_run(folder: Path, run: PointRun) -> Path:
    """A run folder of this client."""
    _write_measured(folder, run)
    write_config(folder, run, column=IDS)
    write_point_run(folder, run)
    (folder / WARM_UP_REQUESTS).touch()
    return folder


def write_official_run(folder: Path, run: PointRun) -> Path:
    """The same point as the official client alone leaves it."""
    _write_measured(folder, run)
    measured = summary(run)
    if run.point.offline != "dedicated":
        measured["steady_state"] = headline(run)
    (folder / SUMMARY).write_text(json.dumps(measured))
    config = client_config(run, column=IDS)
    config["datasets"][0] |= {"name": "mlperf_gpt_oss_performance"}
    config["model_params"]["seed"] = run.curve.seeds.model
    config["report_dir"], config["verbose"], config["enable_cpu_affinity"] = str(folder), False, True
    (folder / CONFIG).write_text(write_yaml(config))
    return folder


def _write_measured(folder: Path, run: PointRun) -> None:
    for name in (SUMMARY, ACCURACY):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).write_text(json.dumps(summary(run)))
    if run.point.accuracy:
        scored = accuracy(run.curve.accuracy_samples, seconds=900.0 + run.point.concurrency)
        (folder / ACCURACY).write_text(json.dumps(scored))


def write_runs(
    root: Path, offline: Offline = "dedicated", *, official: bool = False, **of: Any
) -> Sequence[Path]:
    """The run folders of a curve, ``root``/runs/<point>."""
    plan = curve(offline, **of)
    write = write_official_run if official else write_run
    return [write(root / RUNS / point.name, point_run(point, plan)) for point in plan.points]


SYSTEM = (ROOT / EXAMPLE).read_text()


def write_system(folder: Path, text: str = SYSTEM) -> Path:
    """The system's TOML."""
    path = folder / "system.toml"
    path.write_text(text)
    return path
