"""The official client of Endpoints, where it is installed: HARNESS_ENDPOINTS_CLIENT is its executable."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

CLIENT = os.environ.get("HARNESS_ENDPOINTS_CLIENT", "")


def run_official(
    folder: Path, url: str, prompts: Sequence[list[int]], *, tokens: int, concurrency: int, requests: int
) -> Path:
    """The run folder of the client, which sends token ids to /v1/completions.

    ``folder``/tokenizer holds its reference tokenizer.
    """
    pq.write_table(
        pa.table({"prompt": ["-"] * len(prompts), "input_tokens": prompts}), folder / "perf.parquet"
    )
    (folder / "config.yaml").write_text(yaml.safe_dump(_config(url, tokens, concurrency, requests)))
    subprocess.run(
        [CLIENT, "benchmark", "from-config", "-c", "config.yaml"],
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
        check=True,
        timeout=300,
    )
    return folder / "run"


def _config(url: str, tokens: int, concurrency: int, requests: int) -> dict[str, object]:
    return {
        "name": "rehearsal",
        "version": "1.0",
        "type": "online",
        "model_params": {
            "name": "gpt-oss-120b",
            "temperature": 1.0,
            "top_p": 1.0,
            "max_new_tokens": tokens,
            "streaming": "on",
            "tokenizer_name": "tokenizer",
        },
        "datasets": [{"name": "perf", "type": "performance", "path": "perf.parquet"}],
        "settings": {
            "runtime": {
                "min_duration_ms": 0,
                "max_duration_ms": 0,
                "n_samples_to_issue": requests,
                "scheduler_random_seed": 42,
                "dataloader_random_seed": 42,
            },
            "load_pattern": {"type": "concurrency", "target_concurrency": concurrency},
            "client": {"num_workers": 1, "warmup_connections": 0},
            "service_ready_timeout_s": 120.0,
        },
        "endpoint_config": {"endpoints": [url], "api_type": "openai_completions"},
        "report_dir": "run",
        "enable_cpu_affinity": False,
    }
