"""The registry of graders, by benchmark and kind of data set.

A grader is a module or an object with the members of Grader. A benchmark's evaluation is its definition in
``configs/`` (metrics, references, repeats), its graders here and, in ``output_decoder``, its tokenizer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NewType, Protocol, runtime_checkable

from harness.errors import ConfigError
from harness.grading.decoding.output import Output
from harness.grading.evaluation_options import EvaluationOptions
from harness.grading.grade import Grade, Metric, Mode, Progress, Task
from harness.grading.graders import aime, gpqa, livecodebench, summaries
from harness.grading.graders.deepseek_r1 import aime as r1_aime
from harness.grading.graders.deepseek_r1 import livecodebench as r1_livecodebench
from harness.grading.graders.deepseek_r1 import math500
from harness.grading.graders.deepseek_r1 import multiple_choice as r1_multiple_choice
from harness.grading.sandbox.tiers import Sandbox

# A part of the names of all data sets of one kind.
DatasetKind = NewType("DatasetKind", str)
AIME, GPQA, LIVECODEBENCH = map(DatasetKind, ("aime", "gpqa", "livecodebench"))
MMLU_PRO, MATH500 = map(DatasetKind, ("mmlu_pro", "math500"))
CNN_DAILYMAIL = DatasetKind("cnn_dailymail")


class Grader(Protocol):
    """Grades the outputs for one kind of data set. All graders of a benchmark have the same metrics."""

    METRICS: Mapping[str, Metric]  # what is in the scores of each grade
    MODES: Sequence[Mode]  # the modes that it has rules for; a text metric has official ones alone
    FIRST_ENTRY_COUNTS: bool  # whether a sample's later entries are left out, as officially; else an error
    MISSING_ARE_WRONG: bool  # whether samples without an entry count as wrong; else no score meets the target
    NAMES_QUESTION: bool  # whether a reference names its question; else the prompt distinguishes questions

    def check_reference(self, value: object) -> str:
        """The reference as the grader takes it. Raises ValueError with what was expected."""

    def official(self, output: Output, truth: str) -> Grade | Task:
        """The grade by the published rules, or the task that leads to it."""

    def strict(self, output: Output, truth: str) -> Grade | Task:
        """The grade of what the output really answers."""


class Batch(Protocol):
    """Grades tasks; has everything that it needs."""

    def grade(self, tasks: Iterable[Task], progress: Progress) -> Mapping[Task, Grade]:
        """The grade of each task, in processes of its own. Raises GradingError."""


@runtime_checkable
class SandboxedBatch(Batch, Protocol):
    """A batch that runs what a model wrote. The tier is that of the machine, so all have the same."""

    @property
    def sandbox(self) -> Sandbox:
        """The place where it runs."""


@runtime_checkable
class BatchGrader(Grader, Protocol):
    """A grader that needs processes: its tasks are graded together once the log is read."""

    def prepare(self, truths: Sequence[str], options: EvaluationOptions) -> Batch:
        """The batch for these references. Raises GradingError when something that it needs is missing."""


@runtime_checkable
class RemarkingGrader(Grader, Protocol):
    """A grader that remarks on outputs what their scores do not show."""

    REMARKS: Mapping[str, str]  # what each remark means

    def remarks(self, output: Output, prompt: str | None) -> tuple[str, ...]:
        """The remarks on an output. ``prompt``: the reference's, where its file has one."""


# The kinds of a benchmark in the order in which they are looked for in a data set's name.
GRADERS: dict[tuple[str, DatasetKind], Grader] = {
    ("gpt-oss-120b", AIME): aime,
    ("gpt-oss-120b", GPQA): gpqa,
    ("gpt-oss-120b", LIVECODEBENCH): livecodebench,
    ("deepseek-r1", GPQA): r1_multiple_choice.gpqa,
    ("deepseek-r1", MMLU_PRO): r1_multiple_choice.mmlu_pro,
    ("deepseek-r1", MATH500): math500,
    ("deepseek-r1", AIME): r1_aime,
    ("deepseek-r1", LIVECODEBENCH): r1_livecodebench,
    ("llama3.1-8b", CNN_DAILYMAIL): summaries,
    ("llama3.1-8b-edge", CNN_DAILYMAIL): summaries,
}


def graders_of(benchmark: str) -> dict[DatasetKind, Grader]:
    """The graders of a benchmark. Raises ConfigError where it has none."""
    found = {kind: grader for (name, kind), grader in GRADERS.items() if name == benchmark}
    if not found:
        graded = ", ".join(dict.fromkeys(name for name, _ in GRADERS))
        raise ConfigError(
            f"--benchmark {benchmark}: its accuracy logs cannot be graded yet; there are graders for {graded}"
        )
    return found
