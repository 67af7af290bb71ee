"""The options of run_eval.py as one frozen value, and the plan that they make. Imports stay light."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.options import DEFAULT_BACKEND, DEFAULT_BENCHMARK, Backend, LogLevel, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """Named as the flags; times are in seconds. What RunOptions has, too, means the same there."""

    input_file: Path
    benchmark: str = DEFAULT_BENCHMARK
    output_file: Path | None = None
    output_dir: Path = Path("mlperf_results")
    num_samples: int | None = None
    skip_samples: int = 0
    resume: bool = False
    tokenizer: str | None = None
    generation_config: Path | None = None
    max_new_tokens: int | None = None
    stream: Stream = "auto"
    backend: Backend = DEFAULT_BACKEND
    server_url: Sequence[str] = ()
    ca_file: Path | None = None
    preflight_timeout: float = 60.0
    trial_timeout: float = 900.0
    num_workers: int | None = None
    max_concurrency: int | None = None
    timeout: float | None = None
    first_token_timeout: float | None = None
    stall_timeout: float | None = None
    progress_timeout: float | None = None
    retries: int = 0
    fail_fast: bool | None = None
    max_failures: int | None = None
    dry_run: bool = False
    log_level: LogLevel = "info"
    warnings: tuple[str, ...] = ()
