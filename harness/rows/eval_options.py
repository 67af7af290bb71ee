"""The options of run_eval.py as one frozen value. Imports stay light."""

from dataclasses import dataclass
from pathlib import Path

from harness.config.run_options import ClientOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions(ClientOptions):
    """The options of run_eval.py, named as its flags."""

    output_file: Path | None = None
    num_samples: int | None = None
    skip_samples: int = 0
    tokenizer: str | None = None
