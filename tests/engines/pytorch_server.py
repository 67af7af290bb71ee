"""The PyTorch reference server for tests: an interpreter with torch, tiny models, a running server."""

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.engines import sglang_server as sglang
from tests.runs import ROOT

SMALL = 512  # ids of the models whose tokens are compared
KINDS = ("deepseek", "gpt-oss")
BATCH = 4
# Without importing them, which takes seconds.
_HAS = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"


@functools.cache
def interpreter(*packages: str) -> Path | None:
    """A Python with torch, or None: HARNESS_PYTORCH_PYTHON names it, else it is that of SGLang on the CPU."""
    named = os.environ.get("HARNESS_PYTORCH_PYTHON")
    path = Path(named) if named else sglang.VENV / "bin/python"
    is_complete = path.exists() if named else (sglang.VENV / "installed").exists()
    if not is_complete:  # or another process is about to install it
        return None
    needed = ("torch", "transformers", "aiohttp", "msgspec", *packages)
    done = subprocess.run([path, "-P", "-c", _HAS, *needed], check=False, capture_output=True)
    return None if done.returncode else path


def _found() -> Path:
    """The interpreter of a test that runs: where there is none, the tests are skipped."""
    path = interpreter()
    assert path is not None
    return path


def environment() -> dict[str, str]:
    """One thread: two on busy cores are slower."""
    return os.environ | {"PYTHON": str(_found()), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def make_models(*models: tuple[str, int, Path]) -> None:
    """Tiny models, each of a kind, with a vocabulary of a size, in a folder."""
    words = (word for model in models for word in model)
    sglang.python(sglang.HERE / "models/make_tiny_models.py", *words, interpreter=_found())


def generated(*jobs: dict[str, Any]) -> list[list[list[int]]]:
    """transformers' own answers to the prompts of each job; see ``job``."""
    script, given = sglang.HERE / "models/generate.py", json.dumps(jobs)
    return json.loads(sglang.python(script, stdin=given, interpreter=_found()))


def job(
    model: Path, prompts: list[list[int]], tokens: int, seed: int | None = None, **options: Any
) -> dict[str, Any]:
    """Exactly ``tokens`` new ids for each prompt: greedy in one batch, or sampled alone with a seed."""
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": seed is not None} | options
    return {"model": str(model), "prompts": prompts, "seed": seed, "options": options}


class PyTorchServer(sglang.ServerProcess):
    """A context manager around one server, started by pytorch/run_server.sh; ``url``."""

    def __init__(self, model: Path, port: int, log_path: Path, *arguments: str) -> None:
        script = str(ROOT / "pytorch/run_server.sh")
        words = [script, "--model_path", str(model), "--port", str(port), "--device", "cpu", *arguments]
        super().__init__(words, port, environment(), log_path)
