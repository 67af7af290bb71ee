"""A made-up rehearsal whose tree MLCommons's checker takes without an error: eight points from 1 to 1 024."""

import json
from pathlib import Path
from typing import Any

import msgspec

from harness.yaml_files import write_yaml

SAMPLES, PASSES, OSL = 6396, 4, 500
LEVELS = {
    1: "low_latency",
    8: "low_concurrency",
    32: "med_concurrency",
    64: "med_concurrency",
    256: "high_concurrency",
    512: "high_concurrency",
    1024: "high_concurrency",
    SAMPLES: "submitters_choice",  # the dedicated Offline run
}
SCORED = (1, 8, 64, 1024, SAMPLES)
LOGGED = 64  # the point whose log is there
MODEL = "gpt-oss-120b"
RESULTS = Path("tree/results/8xH200") / MODEL
SEEDS = {
    "scheduler_rng_seed": 10487924139932647040,
    "sample_index_rng_seed": 586478644936801402,
    "model_seed": 9315206023656308754,
}


def write_passing(root: Path) -> Path:
    """tree/ and the run folder of one point. Returns the rehearsal's folder."""
    tree = root / "tree"
    for name in ("src/sglang", "docs"):
        (tree / name).mkdir(parents=True)
    (tree / "src/sglang/README.md").write_text("How to build and to run it.\n")
    highest = max(rate(level) for level in LEVELS)
    for level in LEVELS:
        folder = root / RESULTS / f"r{level}"
        folder.mkdir(parents=True)
        write(folder / "point.yaml", point(level))
        write(folder / "config.yaml", config(level))
        write(folder / "result_summary.json", summary(level))
        write(folder / "system_desc.json", system() | {"tps_utilization": round(rate(level) / highest, 6)})
        if level in SCORED:
            write(folder / "accuracy_results.json", accuracy(seconds=900.0 + level))
    write(root / RESULTS.parent / "system_power.json", power())
    curve = RESULTS.relative_to("tree").as_posix()
    write(tree / "tree.json", {"curve": curve, "points": {f"r{LOGGED}": f"../runs/r{LOGGED}"}})
    write_log(root / f"runs/r{LOGGED}/events.jsonl")
    return root


def write_run(folder: Path, level: int = LOGGED, samples: int = 100) -> Path:
    """A run folder as the official client leaves it, of a dataset of a few samples."""
    settings, count = config(level), PASSES * samples
    settings["datasets"][0]["samples"] = samples
    (folder / "performance").mkdir(parents=True, exist_ok=True)
    write(folder / "config.yaml", settings)
    counts = {"n_samples_issued": count, "n_samples_completed": count}
    tokens = {"output_sequence_lengths": {"total": count}}  # of the log's answers, one each
    write(folder / "performance/result_summary.json", summary(level) | counts | tokens)
    write_log(folder / "events.jsonl", count=count)
    return folder


def write(path: Path, content: Any) -> None:
    """As JSON or YAML, by its name."""
    path.write_text(write_yaml(content) if path.suffix == ".yaml" else json.dumps(content))


def required_s(level: int) -> float:
    return 600.0 if level <= 32 else 1200.0


def issue_s(level: int) -> float:
    return 1.02 * required_s(level)


def issued(level: int) -> int:
    return SAMPLES if level == SAMPLES else PASSES * SAMPLES


def rate(level: int) -> float:
    """Output tokens per second."""
    return issued(level) * OSL * (4 if level == SAMPLES else 1) / (issue_s(level) + 2)


def point(level: int) -> dict[str, Any]:
    offline = level == SAMPLES
    made: dict[str, Any] = {
        "concurrency": level,
        "region": LEVELS[level],
        "dataset": "mlperf_gpt_oss_performance",
        "division": "Standardized",
        "max_supported_concurrency": 1024,
        "model_name": MODEL,
        "model_precision": "MXFP4",
        "link_to_model": "https://example.com/model",
        "dataset_name": "gpt-oss performance",
        "dataset_type": "Performance",
        "dataset_link": "https://example.com/data",
        "shared_src": "src/sglang",
        "shared_docs": "docs",
        "seed_set": "A",
        "target_cohort": "2026-10-C1",
        "offline": "dedicated" if offline else "none",
        "runtime_settings": {
            "load_pattern": "max_throughput" if offline else "concurrency",
            "min_duration_ms": round(required_s(level) * 1000),
            "stream_all_chunks": True,
            "salt": {"bits": 128},
            "runtime": dict(SEEDS),
        },
        "warmup": {
            "duration_s": 20.0,
            "requests_issued": 64,
            "requests_completed": 64,
            "data_source": "accuracy dataset",
            "concurrency": 64,
            "initialization_steps": [],
            "logs_retained": True,
        },
    }
    if not offline:
        made["steady_state"] = steady_state(level)
    return made


def steady_state(level: int) -> dict[str, Any]:
    window = {
        "super_pass_start": 0,
        "super_pass_end": PASSES - 1,
        "super_pass_size": SAMPLES,
        "n_samples": issued(level),
        "duration_s": issue_s(level),
    }
    state = {"tpot_p50": "Plateau", "tpot_p90": "Plateau"}
    return {"status": "windowable", "verdict": "STEADY STATE", "window": window, "state": state}


def config(level: int) -> dict[str, Any]:
    offline = level == SAMPLES
    load = {"type": "max_throughput"} if offline else {"type": "concurrency", "target_concurrency": level}
    return {
        "name": f"{MODEL}-r{level}",
        "type": "offline" if offline else "online",
        "submission_ref": {"model": MODEL, "ruleset": "mlperf-endpoints-v1.0-2026-10-C1-A"},
        "model_params": {"name": f"openai/{MODEL}", "streaming": "off" if offline else "on"},
        "datasets": [{"name": "perf", "type": "performance", "path": "perf.parquet", "samples": SAMPLES}],
        "settings": {
            "runtime": {
                "min_duration_ms": round(required_s(level) * 1000),
                "scheduler_random_seed": SEEDS["scheduler_rng_seed"],
                "dataloader_random_seed": SEEDS["sample_index_rng_seed"],
            },
            "load_pattern": load,
            "client": {"stream_all_chunks": True},
            "warmup": {"enabled": False},
        },
    }


def summary(level: int) -> dict[str, Any]:
    count, seconds = issued(level), issue_s(level) + 2
    made: dict[str, Any] = {
        "test_started_at": level * 10**12,
        "n_samples_issued": count,
        "n_samples_completed": count,
        "n_samples_failed": 0,
        "duration_ns": round(seconds * 1e9),
        "state": "complete",
        "complete": True,
        "output_sequence_lengths": {"total": round(rate(level) * seconds)},
    }
    if level != SAMPLES:
        made["ttft"] = {"percentiles": {"50.0": 1e8, "90.0": 1e8}}
        made["tpot"] = {"percentiles": {"50.0": 2e7, "90.0": 2.2e7}}
    return made


def accuracy(score: float = 83.5, seconds: float = 900.0) -> dict[str, Any]:
    entry = {
        "dataset_name": "mlperf_gpt_oss_accuracy",
        "dataset_type": "accuracy",
        "score": {"exact_match": score},
        "unit_samples": 4395,
        "num_repeats": 1,
        "duration_s": seconds,
    }
    return {"accuracy_scores": [entry]}


def system() -> dict[str, Any]:
    accelerator = {"accelerator_model_name": "NVIDIA H200", "accelerators_per_node": 8}
    node = {
        "system_node_ensemble_id": 1,
        "number_of_nodes": 1,
        "host_processor_core_count": 56,
        "host_memory_configuration": "32x 64 GB",
        "host_network_card_count": "1",
        "driver": "580",
        "filesystem": "ext4",
        "cooling": "air",
        "accelerator_info": [accelerator],
    }
    return {
        "system_name": "8x NVIDIA H200",
        "shortened_system_name": "8xH200",
        "system_availability_status": "Available",
        "availability_url": "https://example.com/h200",
        "max_supported_concurrency": 1024,
        "system_size": "1 node",
        "system_node_ensemble_count": 1,
        "system_node_ensemble_total": 1,
        "division": "Standardized",
        "tensor_parallel": 1,
        "data_parallel": 8,
        "node_types": [node],
    }


def power() -> dict[str, Any]:
    published = {"value_kw": 10.2, "source_type": "vendor_spec", "source": "https://example.com/h200"}
    node_set = {
        "node_set_id": 1,
        "system_node_ensemble_id": 1,
        "nodes_provisioned": 1,
        "power_method": "published_system",
        "published_power": published,
    }
    made = {"system_desc_id": "8xH200", "cooling": "air", "node_sets": [node_set]}
    return made | {"scale_out": {"present": False}}


def write_log(
    path: Path, *, count: int = PASSES * SAMPLES, seconds: float = issue_s(LOGGED), salted: bool = True
) -> None:
    """events.jsonl of requests at even distances, each answered after a second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start, gap = 10**15, seconds * 1e9 / (count - 1)
    lines: list[tuple[int, str, str, object]] = [
        (start, "session.started", "", None),
        (start, "session.start_performance_tracking", "", None),
    ]
    for number in range(count):
        at, name = start + round(number * gap), f"sample{number}"
        prompt = ["PromptData", None, [number if salted else number % (count // PASSES)], None]
        lines.append((at, "sample.issued", name, prompt))
        lines.append((at + 10**8, "sample.recv_first", name, None))
        lines.append((at + 10**9, "sample.complete", name, ["TextModelOutput", "text"]))
    end = start + round((seconds + 2) * 1e9)
    lines += [(end, "session.stop_performance_tracking", "", None), (end, "session.ended", "", None)]
    keys = ("timestamp_ns", "event_type", "sample_uuid", "data")
    path.write_bytes(
        msgspec.json.Encoder().encode_lines([dict(zip(keys, line, strict=True)) for line in lines])
    )
