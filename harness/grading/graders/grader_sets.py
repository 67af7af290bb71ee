"""The registry of graders, by benchmark and kind of data set.

A benchmark's evaluation is its definition in ``configs/`` (metrics, references, repeats), its graders here
and, in ``output_decoder``, its tokenizer.
"""

from collections.abc import Mapping, Sequence

import msgspec

from harness.errors import ConfigError
from harness.grading.graders import aime, math500, multiple_choice, programs, summaries
from harness.grading.graders.grader import (
    AIME,
    CNN_DAILYMAIL,
    GPQA,
    LIVECODEBENCH,
    MATH500,
    MMLU_PRO,
    DatasetKind,
    Grader,
)
from harness.grading.scoring.grade import (
    BOTH_MODES,
    OF_LOGGED,
    RIGHT_OR_WRONG,
    AccuracyMetric,
    GradingMode,
)


class GraderSet(msgspec.Struct, frozen=True):
    """The graders of a benchmark, and what is the same for all of them."""

    by_kind: Mapping[DatasetKind, Grader]
    """The graders, in the order in which their kinds are looked for in a data set's name."""
    metrics: Mapping[str, AccuracyMetric]
    """What is in the scores of each grade."""
    first_entry_counts: bool = False
    """Whether the official evaluator ignores a sample's later entries in the log; else they are an error."""
    missing_are_wrong: bool = True
    """Whether samples without an entry count as wrong; else no score of the others meets the target."""
    modes: Sequence[GradingMode] = BOTH_MODES
    """The modes that there are rules for; a text metric has official ones alone."""


_SUMMARIES = GraderSet(
    {CNN_DAILYMAIL: summaries},
    summaries.METRICS,
    first_entry_counts=True,
    missing_are_wrong=False,
    modes=(GradingMode.OFFICIAL,),
)
GRADERS: dict[str, GraderSet] = {
    "gpt-oss-120b": GraderSet(
        {AIME: aime, GPQA: multiple_choice.gpt_oss_gpqa, LIVECODEBENCH: programs.gpt_oss}, RIGHT_OR_WRONG
    ),
    # Official: the complete decoded text is graded, drafts in the thinking included. Strict: what follows
    # the thinking.
    "deepseek-r1": GraderSet(
        {
            GPQA: multiple_choice.deepseek_gpqa,
            MMLU_PRO: multiple_choice.deepseek_mmlu_pro,
            MATH500: math500,
            AIME: aime,
            LIVECODEBENCH: programs.deepseek_r1,
        },
        OF_LOGGED,
        first_entry_counts=True,
        missing_are_wrong=False,
    ),
    "llama3.1-8b": _SUMMARIES,
    "llama3.1-8b-edge": _SUMMARIES,
}


def graders_of(benchmark: str) -> GraderSet:
    """The graders of a benchmark. Raises ConfigError where it has none."""
    found = GRADERS.get(benchmark)
    if found is None:
        raise ConfigError(
            f"--benchmark {benchmark}: its accuracy logs cannot be graded yet; there are graders for "
            f"{', '.join(GRADERS)}"
        )
    return found
