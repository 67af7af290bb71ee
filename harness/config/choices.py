"""What configs/ offers to choose from: benchmarks and models, and the flags that choose.

Imports stay light, since ``--help`` shows the defaults.
"""

import argparse
from pathlib import Path
from typing import Any, Literal

from harness.cli.door import called
from harness.cli.flags import flag
from harness.config.rounds import available_rounds, current_round
from harness.files import CONFIG_DIR

DEFAULT_BENCHMARK = "gpt-oss-120b"
OUTPUT_DIR = Path("mlperf_results")  # the folder of all runs; a folder in it for each benchmark
DEFAULT_OUTPUT = f"{OUTPUT_DIR}/<benchmark>"

LogLevel = Literal["debug", "info", "warning", "error"]


def available_benchmarks() -> dict[str, Path]:
    """The definition of each benchmark in configs/, by its name, sorted."""
    return dict(sorted((path.stem, path) for path in CONFIG_DIR.glob("*.toml")))


def available_models() -> dict[str, Path]:
    """The definition of each model without a benchmark in configs/models/, by its name, sorted."""
    return dict(sorted((path.stem, path) for path in (CONFIG_DIR / "models").glob("*.toml")))


def benchmark_flag(default: str | None = DEFAULT_BENCHMARK, shown: str = "%(default)s") -> Any:
    """The field for a benchmark that configs/ defines; ``shown`` describes what holds without the flag."""
    return flag(
        f"benchmark definition in configs/ (default: {shown})",
        default=default,
        type=_benchmark,
        choices=available_benchmarks,
    )


def round_flag(*, of_run: bool = False) -> Any:
    """The field for a round that configs/rounds/ defines; ``of_run``: without the flag it is a run's own."""
    current = current_round()
    shown = f"that of the run, else {current}" if of_run else current
    return flag(
        f"round of MLPerf Inference whose rules hold, from configs/rounds/ (default: {shown})",
        default=None if of_run else current,
        choices=available_rounds,
    )


def results_folder(given: Path | None, benchmark: str) -> Path:
    """The folder of a benchmark's runs: benchmarks share none unless they are given the same."""
    return OUTPUT_DIR / benchmark if given is None else given


def _benchmark(name: str) -> str:
    if name in available_models():
        raise argparse.ArgumentTypeError(
            f"{name} is a model without an MLPerf benchmark; {called('run_batch.py')} run --model {name} "
            "takes plain prompts"
        )
    return name
