"""What a grader is, for every kind of data set: the interfaces that the evaluation calls."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NewType, Protocol, runtime_checkable

import msgspec

from harness.config.benchmark import DatasetRule
from harness.grading.decoding.output import Output
from harness.grading.sandbox.tiers import Sandbox
from harness.grading.scoring.grade import Grade, Progress, Task

# A part of the names of all data sets of one kind.
DatasetKind = NewType("DatasetKind", str)
AIME, GPQA, LIVECODEBENCH = map(DatasetKind, ("aime", "gpqa", "livecodebench"))
MMLU_PRO, MATH500 = map(DatasetKind, ("mmlu_pro", "math500"))
CNN_DAILYMAIL = DatasetKind("cnn_dailymail")


class Grader(Protocol):
    """The rules for one kind of data set: a module or an object with these functions."""

    def check_reference(self, value: object) -> str:
        """The reference as the grader takes it. Raises ValueError with what was expected."""

    def official(self, output: Output, truth: str) -> Grade | Task:
        """The grade by the published rules, or the task that leads to it."""

    def strict(self, output: Output, truth: str) -> Grade | Task:
        """The grade of what the output really answers."""


class TaskRunner(Protocol):
    """Grades tasks; has everything that it needs."""

    def grade(self, tasks: Iterable[Task], progress: Progress) -> Mapping[Task, Grade]:
        """The grade of each task, in processes of its own. Raises GradingError."""


@runtime_checkable
class SandboxedTaskRunner(TaskRunner, Protocol):
    """A runner of what a model wrote. The tier is that of the machine, so all runners have the same."""

    @property
    def sandbox(self) -> Sandbox:
        """The place where it runs."""


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one call of the evaluator that decide how tasks are run."""

    references: Path
    """The file of the true answers; the tests of its programs are looked for beside it."""
    benchmark: str
    dataset: DatasetRule
    """The benchmark's accuracy dataset."""
    journal: Path
    """The file that keeps the results of programs for the next call."""
    lcb_data: Path | None
    """The LiveCodeBench release; None: where the download puts it."""
    workers: int
    """Processors to use."""
    restart: bool
    """Whether results in the journal are forgotten."""
    allow_unsandboxed: bool
    """Whether model-written code may run where no sandbox works."""


@runtime_checkable
class GraderWithTasks(Grader, Protocol):
    """A grader that needs processes: its tasks are graded together once the log is read."""

    def prepare(self, truths: Sequence[str], options: TaskOptions) -> TaskRunner:
        """The runner for these references. Raises GradingError when something that it needs is missing."""


@runtime_checkable
class RemarkingGrader(Grader, Protocol):
    """A grader that remarks on outputs what their scores do not show."""

    REMARKS: Mapping[str, str]
    """The meaning of each remark."""

    def remarks(self, output: Output, prompt: str | None) -> tuple[str, ...]:
        """The remarks on an output. ``prompt``: the reference's, where its file has one."""
