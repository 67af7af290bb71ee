"""config.yaml of a run folder: the settings with which the official client repeats the point.

Its form is that of the client's own resolved configuration (mlcommons/endpoints, config/schema.py), which
refuses unknown keys. Keys that were renamed between its versions are left to their defaults.

The client warms up with the performance dataset, and salts no prompt of token ids: its warm-up would break
the rule that performance samples are salted there. So it is off, and point.yaml declares ours.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.config.benchmark import load_benchmark
from harness.config.protocol import Protocol
from harness.endpoints.curve import Point, SeedSet
from harness.endpoints.official_files import OFFLINE_PATTERN
from harness.endpoints.point_run import PointRun
from harness.endpoints.run_folder import CONFIG
from harness.files import atomic_write
from harness.yaml_files import write_yaml

Yaml = dict[str, Any]

IDS = "input_tokens"  # the client's name of a prompt that is already tokenized
# The client's adapters that send token ids: one for SGLang's own API; all others get completions.
_API_TYPES = {Protocol("sglang", "generate"): "sglang"}
_COMPLETIONS = "openai_completions"


def write_config(folder: Path, run: PointRun, *, column: str) -> None:
    """Write config.yaml; ``column`` of the dataset holds the prompts' token ids. Raises OSError."""
    with atomic_write(folder / CONFIG) as file:
        file.write(write_yaml(client_config(run, column=column)).encode())


def client_config(run: PointRun, *, column: str) -> Yaml:
    """The content of config.yaml."""
    point, curve = run.point, run.curve
    offline = point.offline == "dedicated"
    return {
        "name": f"{curve.model_name}-{point.name}",
        "version": "1.0",
        "type": "offline" if offline else "online",
        "submission_ref": {"model": curve.model_name, "ruleset": ruleset(curve.seeds)},
        "model_params": _model_params(run),
        "datasets": [
            {
                "name": Path(run.input_file).stem,
                "type": "performance",
                "path": run.input_file,
                "samples": curve.samples,
                "parser": {IDS: column},
            }
        ],
        "settings": {
            "runtime": _runtime(run),
            "load_pattern": _load_pattern(point),
            "client": {"stream_all_chunks": run.parameters.stream},
            "warmup": {"enabled": False},
        },
        "endpoint_config": {
            "endpoints": [server.url for server in run.servers],
            "api_type": _api_type(run),
        },
    }


def ruleset(seeds: SeedSet) -> str:
    """The client's name for the rules with a seed set: that of the cohort of its publication."""
    return f"mlperf-endpoints-v1.0-{seeds.published}-{seeds.name}"


def _model_params(run: PointRun) -> Yaml:
    parameters, curve = run.parameters, run.curve
    benchmark = load_benchmark(curve.benchmark)
    named = next(iter(run.servers), None)
    found: Yaml = {
        "name": (named and (named.served_name or named.model)) or benchmark.model,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "top_k": parameters.top_k or -1,
        "max_new_tokens": parameters.max_new_tokens,
        "streaming": "on" if parameters.stream else "off",
        "tokenizer_name": benchmark.model,
    }
    if parameters.seed is not None:
        found["seed"] = parameters.seed
    if _api_type(run) == _COMPLETIONS:  # other adapters refuse these two
        found["skip_special_tokens"] = parameters.skip_special_tokens
        found["min_new_tokens"] = parameters.min_new_tokens or 0
    return found


def _runtime(run: PointRun) -> Mapping[str, int]:
    seeds = run.curve.seeds
    return {
        # As it was; before it ran, its fewest passes. It takes no shortest time beside it, and needs none.
        "n_samples_to_issue": run.issued or run.point.passes * run.curve.samples,
        "scheduler_random_seed": seeds.scheduler,
        "dataloader_random_seed": seeds.sample_index,
    }


def _load_pattern(point: Point) -> Yaml:
    if point.offline == "dedicated":
        return {"type": OFFLINE_PATTERN}
    return {"type": "concurrency", "target_concurrency": point.concurrency}


def _api_type(run: PointRun) -> str:
    return _API_TYPES.get(run.servers[0].protocol, _COMPLETIONS) if run.servers else _COMPLETIONS
