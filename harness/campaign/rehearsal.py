"""The sample datasets and settings of a rehearsal, which runs a campaign's steps in minutes without a GPU."""

from pathlib import Path

from harness.config.run_options import Backend
from harness.files import CONFIG_DIR, ROOT

SAMPLES = ROOT / "datasets" / "samples"
CONF = CONFIG_DIR / "rehearsal.conf"
BACKEND: Backend = "embedded"

_LLAMA = {"performance": "cnn_sample.json", "accuracy": "cnn_sample.json"}
_FILES = {
    "gpt-oss-120b": {
        "performance": "perf_sample.parquet",
        "accuracy": "acc_sample.parquet",
        "compliance": "compliance_sample.parquet",
    },
    "deepseek-r1": {"performance": "r1_sample.parquet", "accuracy": "r1_sample.parquet"},
    "llama3.1-8b": _LLAMA,
    "llama3.1-8b-edge": _LLAMA,
}


def sample_file(benchmark: str, role: str) -> Path | None:
    """The sample dataset of a benchmark; None where it has none."""
    name = _FILES.get(benchmark, {}).get(role)
    return None if name is None else SAMPLES / name


def max_new_tokens(benchmark: str) -> int:
    """Enough for an answer of the tiny model; that of gpt-oss, whose tokens take longest, ends none."""
    return 8 if benchmark == "gpt-oss-120b" else 32
