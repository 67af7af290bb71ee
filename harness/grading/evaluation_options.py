"""The options of the evaluator: its flags as one frozen value. Imports stay light."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.config.rounds import current_round
from harness.config.run_options import DEFAULT_BENCHMARK

Rules = Literal["official", "strict", "both"]
RULES: tuple[Rules, ...] = ("official", "strict", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """Named as the flags. ``lcb_data`` None: where datasets/download.sh puts the LiveCodeBench release.

    ``mlperf_log`` may be a table of outputs, which is its own ``reference_data`` where that is None.
    """

    mlperf_log: Path
    reference_data: Path | None = None
    benchmark: str = DEFAULT_BENCHMARK
    round: str = current_round()
    tokenizer: str | None = None
    lcb_data: Path | None = None
    output_file: Path | None = None
    evaluated_file: Path | None = None  # of eval_accuracy.py: the rows with their grades
    save_outputs: Path | None = None
    disagreements: Path | None = None
    verbose: bool = False
    mode: Rules = "both"
    num_lcb_workers: int | None = None
    restart: bool = False
    allow_unsandboxed: bool = False

    @property
    def references(self) -> Path:
        """The file of the true answers."""
        return self.reference_data or self.mlperf_log
