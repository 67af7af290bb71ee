"""Real SGLang on the CPU for tests: the environment, the model, the reference answers and the server."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

import httpx

from tests.runs import ROOT

HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".cache"
VENV = Path(os.environ.get("HARNESS_SGLANG_VENV", CACHE / "sglang-cpu"))
# Raise the version with every change of what make_tiny_gpt_oss.py writes.
MODEL = CACHE / "tiny-gpt-oss-hf-v2"

START_SECONDS = 600
STOP_SECONDS = 10
MAX_RUNNING_REQUESTS = 128
CONTEXT_LENGTH = 8192

# The likeliest token's logit is 0.65 to 0.82, where bfloat16 has steps of 0.004. Measured over 60 greedy
# steps: the second is 0.035 below it on average (within 0.02 in 42 % of the steps, equal in 5 %), a token
# drawn at random 0.73 (within 0.02 once in 60,000). The gap tells foreign ids from greedy ones, not the
# best from the second: where transformers and SGLang agree to the last bit, ask for 0.
GREEDY_GAP = 0.02

RANKS = 2
PORTS = 31_000  # where no other test looks: SGLang listens at some more ports from 233 further on
# Stream shapes that a client has to cope with; --stream_interval is run_server.sh's. With 8, the first event
# has one token and the others several. A start takes half a minute and 30 to 42 s of CPU. "rust-ranks" are of
# the Rust server and listen at a port each. The last one lives until all tests have ended: not that of two
# ranks, whose controller never sleeps.
CONFIGURATIONS: dict[str, tuple[str, ...]] = {
    "cumulative-8": ("--stream_interval", "8", "--skip-tokenizer-init"),
    "dp-2": ("--stream_interval", "8", "--incremental-streaming-output", "--dp", str(RANKS)),
    "rust-ranks": ("--stream_interval", "1", "--tp", str(RANKS), "--attn-dp-size", str(RANKS)),
    "cumulative": ("--stream_interval", "1", "--chat-template", str(HERE / "models/gpt_oss.jinja")),
}


def install() -> None:
    """Install SGLang once. Raises subprocess.CalledProcessError with the last lines in ``stderr``."""
    script = HERE / "install_sglang_cpu.sh"
    subprocess.run([script, VENV], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def python(*arguments: object, stdin: str = "", interpreter: Path = VENV / "bin/python") -> str:
    """Run the SGLang environment's Python with the repository off ``sys.path``; returns its stdout."""
    words = [str(interpreter), "-P", *map(str, arguments)]
    done = subprocess.run(words, input=stdin, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def environment(replicas: int = 1, *, rust: bool = False) -> dict[str, str]:
    """One thread each: with two on two busy cores the engine is several times slower."""
    return os.environ | {
        "SGLANG_RUST_SERVER": str(int(rust)),
        "PYTHON": str(VENV / "bin/python"),
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_CPU_OMP_THREADS_BIND": "|".join(str(core) for core in range(replicas)),
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "TIKTOKEN_ENCODINGS_BASE": str(MODEL),
    }


def make_model() -> Path:
    """The tiny gpt-oss, written once."""
    if not MODEL.exists():
        partial = MODEL.with_name(f"{MODEL.name}.partial-{os.getpid()}")
        python(HERE / "models/make_tiny_gpt_oss.py", partial)
        try:
            partial.rename(MODEL)
        except OSError:  # another process of the tests was quicker; both write the same
            shutil.rmtree(partial)
    return MODEL


def greedy_gaps(answers: list[tuple[list[int], list[int]]]) -> list[list[float]]:
    """For (prompt, output) pairs, each output token's distance in logits from transformers' greedy choice."""
    return json.loads(python(HERE / "models/greedy_gaps.py", make_model(), stdin=json.dumps(answers)))


class ServerProcess:
    """A context manager around one server of a process group of its own; ``url``."""

    def __init__(self, command: list[str], port: int, environment: dict[str, str], log_path: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._command = command
        self._environment = environment
        self._log_path = log_path

    def __enter__(self) -> Self:
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def log(self) -> str:
        """The end of its output."""
        return self._log_path.read_text(errors="replace")[-4000:]

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"{self.url}/health"):
            code = self.process.poll()
            assert code is None, f"the server ended with exit code {code}: {self.log}"
            assert time.monotonic() < deadline, f"not healthy after {START_SECONDS} s: {self.log}"
            time.sleep(0.5)

    def _stop(self) -> None:
        """The whole group: SGLang's schedulers are processes of their own."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)


class SglangServer(ServerProcess):
    """One SGLang, started by sglang/run_server.sh."""

    def __init__(self, port: int, log_path: Path, arguments: tuple[str, ...]) -> None:
        replicas = RANKS if {"--dp", "--attn-dp-size"} & set(arguments) else 1
        command = [
            str(ROOT / "sglang/run_server.sh"),
            *("--model_path", str(MODEL), "--host", "127.0.0.1", "--port", str(port)),
            *("--served-model-name", "openai/gpt-oss-120b"),
            *("--device", "cpu", "--attention-backend", "intel_amx", "--sleep-on-idle"),
            *("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"),
            *("--mem-fraction-static", "0.3", "--max-total-tokens", "65536"),
            # The torch backend reads the smaller pool of the sliding window by the indices of the other one:
            # beyond 33,797 tokens the scheduler dies.
            "--disable-hybrid-swa-memory",
            *("--max-running-requests", str(MAX_RUNNING_REQUESTS)),
            *("--context-length", str(CONTEXT_LENGTH)),
            *arguments,
        ]
        rust = "--attn-dp-size" in arguments
        self.ranks = RANKS if rust else 1  # that share a model
        super().__init__(command, port, environment(replicas, rust=rust), log_path)


def _answers(url: str) -> bool:
    try:
        # A context of TLS takes 20 ms of CPU, and this asks a hundred times.
        return httpx.get(url, timeout=5, trust_env=False, verify=False).status_code == 200
    except httpx.TransportError:
        return False
