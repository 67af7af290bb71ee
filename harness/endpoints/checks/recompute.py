"""Tokens and steady state of a run folder, recomputed from its log with the reference tokenizer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.endpoints.numbers.event_reader import Progress, read_events, silent
from harness.endpoints.samples import Samples
from harness.endpoints.steady.steady_block import steady_block
from harness.endpoints.steady.steady_point import steady_state
from harness.endpoints.tree.run_facts import read_runs
from harness.errors import ConfigError, HarnessError
from harness.grading.decoding.output_decoder import tokenizer_file


def recounted(run: Path, progress: Progress = silent) -> Samples | str:
    """The requests of a log with their tokens; text where tokens cannot be counted here."""
    try:
        counted = read_events(run, _tokenizer(run), progress).samples
    except HarnessError as error:
        return str(error)
    return counted if counted["output_tokens"].any() else "the log holds no text, so tokens cannot be counted"


def recomputed_block(counted: Samples, samples: int, least_s: float) -> Mapping[str, Any] | str:
    """``steady_state`` as point.yaml should hold it; text where no answer was streamed.

    ``least_s``: the shortest time of issue of the point, by the rules of its curve.
    """
    if not counted["suffix_tokens"].any():
        return "the log holds no streamed text"
    return steady_block(steady_state(counted, samples, least_s))


def _tokenizer(run: Path) -> Path | None:
    """The one of the rehearsal; None is gpt-oss's, which is built in. Raises ConfigError."""
    (facts,) = read_runs([run])
    benchmark, ours = facts.benchmark, facts.run
    if benchmark is None:
        raise ConfigError(f"{run.name} is of no model that is known here, so its tokens cannot be counted")
    if ours is None:
        return tokenizer_file(benchmark, None, None)
    return tokenizer_file(benchmark, Path(ours.input_file), ours.tokenizer)
