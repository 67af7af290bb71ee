"""The options of the evaluator: its flags as one frozen value. Imports stay light."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.config.options import DEFAULT_BENCHMARK

Rules = Literal["official", "strict", "both"]
RULES: tuple[Rules, ...] = ("official", "strict", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """Named as the flags. ``lcb_data`` None: where datasets/download.sh puts the LiveCodeBench release."""

    mlperf_log: Path
    reference_data: Path
    benchmark: str = DEFAULT_BENCHMARK
    tokenizer: str | None = None
    lcb_data: Path | None = None
    output_file: Path | None = None
    save_outputs: Path | None = None
    disagreements: Path | None = None
    verbose: bool = False
    mode: Rules = "both"
    num_lcb_workers: int | None = None
    restart: bool = False
    allow_unsandboxed: bool = False
