"""LiveCodeBench: the program in an output, which must pass all tests of its problem.

Official for gpt-oss: in the final section the last ```python block, else the last plain one; the complete
text likewise where there is none. Official for deepseek-r1: the first ```python block of the complete text,
which may be a draft. Strict: the last program among the fenced blocks of the final part, as Markdown reads
them.
"""

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.errors import GradingError
from harness.grading.decoding.output import Output
from harness.grading.graders import code_blocks
from harness.grading.graders.grader import TaskOptions
from harness.grading.livecodebench import packages
from harness.grading.livecodebench.index import ProblemIndex, prepared
from harness.grading.livecodebench.program_journal import ResultJournal
from harness.grading.livecodebench.release import find_release, only_file
from harness.grading.livecodebench.run_solution import ProgramResult
from harness.grading.livecodebench.runner import (
    ExecutionConfig,
    ProgramTask,
    require_problems,
    run_programs,
)
from harness.grading.sandbox.tier_probe import choose_sandbox
from harness.grading.sandbox.tiers import Sandbox
from harness.grading.scoring.grade import (
    RIGHT,
    WRONG,
    FailedTest,
    Grade,
    GradingMode,
    Progress,
    Reason,
    Task,
    unanswered,
)

_OFFICIAL_PYTHON = re.compile(r"```python(.*?)```", re.DOTALL)
_OFFICIAL_PLAIN = re.compile(r"```(.*?)```", re.DOTALL)
_OFFICIAL_TAG = re.compile(r"^(?:python|py)\s*\n", re.IGNORECASE)


class ProgramGrader(msgspec.Struct, frozen=True):
    """The grader of programs."""

    official_code: Callable[[Output], "Extraction"]
    """The program by the published rules of one benchmark."""

    def check_reference(self, value: object) -> str:
        """The question_id."""
        if not isinstance(value, str) or not value.strip():
            raise ValueError("a LiveCodeBench question_id")
        return value

    def official(self, output: Output, truth: str) -> Grade | Task:
        """The task for the program by the published rules; a grade where there is none."""
        return _task(GradingMode.OFFICIAL, truth, self.official_code(output))

    def strict(self, output: Output, truth: str) -> Grade | Task:
        """The task for the program that the final part ends with; a grade where there is none."""
        return _task(GradingMode.STRICT, truth, strict_code(output))

    def prepare(self, truths: Sequence[str], options: TaskOptions) -> "ProgramRunner":
        """As GraderWithTasks: find the release, choose a sandbox and prepare the tests."""
        release = options.lcb_data or find_release(options.references)
        if release is None:
            fetch = f"datasets/download.sh --benchmark {options.benchmark} --what livecodebench"
            raise GradingError(
                f"{options.references}: {len(truths)} LiveCodeBench samples, but no tests; "
                f"pass --lcb-data ({fetch} fetches them)"
            )
        sandbox = _sandbox(options.allow_unsandboxed)
        index = prepared(
            only_file(release, options.dataset.release_file),
            lambda text: print(text, file=sys.stderr),
        )
        require_problems(index, truths)
        execution = ExecutionConfig(index, sandbox, options.workers, options.dataset.program_s)
        return ProgramRunner(execution, options.journal, options.restart)


def _task(mode: GradingMode, question_id: str, found: "Extraction") -> Grade | Task:
    """The task for a program; the grade where none was found."""
    if not found.code:
        return unanswered(found.reason)
    return ProgramTask(mode, question_id, found.code, found.above)


class ProgramRunner(msgspec.Struct, frozen=True):
    """Runs the programs of a log; the journal keeps their results for the next call."""

    execution: ExecutionConfig
    journal: Path
    restart: bool

    @property
    def sandbox(self) -> Sandbox:
        """As SandboxedTaskRunner."""
        return self.execution.sandbox

    def grade(self, tasks: Iterable[Task], progress: Progress) -> Mapping[Task, Grade]:
        """As TaskRunner."""
        chosen = self._chosen(task for task in tasks if isinstance(task, ProgramTask))
        journal = ResultJournal(self.journal, self.restart)
        try:
            results = run_programs(dict.fromkeys(chosen.values()), self.execution, journal, progress)
        finally:
            journal.close()
        return {task: _grade(program.code, results[program]) for task, program in chosen.items()}

    def _chosen(self, tasks: Iterable[ProgramTask]) -> dict[ProgramTask, ProgramTask]:
        """Each task with the one of its blocks that is the program: that depends on the problem."""
        chosen = {}
        with contextlib.closing(ProblemIndex(self.execution.index)) as problems:
            for task in tasks:
                code = task.code
                if task.above and (facts := problems.find(task.question_id)):
                    code = code_blocks.program((*task.above, task.code), facts.function)
                chosen[task] = replace(task, code=code, above=())
        return chosen


def _grade(code: str, result: ProgramResult) -> Grade:
    detail, failed = result.detail, None
    if result.failed_test is not None:
        detail = f"test {result.failed_test + 1}: {result.detail}".removesuffix(": ")
        failed = FailedTest(result.failed_test, result.output)
    scores = RIGHT if result.passed else WRONG
    starved = result.contended and result.reason is Reason.TIMEOUT
    return Grade(
        scores, result.passed, code, result.reason, detail, raced=result.raced, starved=starved, failed=failed
    )


def _sandbox(allow_unsandboxed: bool) -> Sandbox:
    chosen = choose_sandbox(allow_unsandboxed)
    print(f"sandbox: {chosen.tier}", file=sys.stderr)
    found = ", ".join(f"{name} {version or 'NOT INSTALLED'}" for name, version in packages.versions().items())
    print(f"programs run with {found}", file=sys.stderr)
    return chosen


class Extraction(msgspec.Struct, frozen=True):
    """The program that was found in an output."""

    code: str | None
    """None: there is none, for the ``reason``."""
    reason: Reason = Reason.NO_ANSWER
    above: tuple[str, ...] = ()
    """The blocks above ``code``, one of which may be the program instead: that depends on the problem."""


def _last_official_code(output: Output) -> Extraction:
    code = None if output.official_final is None else _official_block(output.official_final)
    if code is None:
        code = _official_block(output.text)
    return Extraction(code, output.defect or Reason.NO_ANSWER)


def _first_official_code(output: Output) -> Extraction:
    found = _OFFICIAL_PYTHON.search(output.text)
    return Extraction(found[1].strip() if found else None, output.defect or Reason.NO_ANSWER)


def _official_block(text: str) -> str | None:
    if blocks := _OFFICIAL_PYTHON.findall(text):
        return str(blocks[-1]).strip()
    if blocks := _OFFICIAL_PLAIN.findall(text):
        return _OFFICIAL_TAG.sub("", str(blocks[-1]).strip())
    return None


def strict_code(output: Output) -> Extraction:
    """The blocks of the final channel that can be the program, of which the last one is it as a rule."""
    if output.strict_final is None:
        return Extraction(None, output.defect or Reason.NO_FINAL)
    blocks = code_blocks.candidates(output.strict_final)
    if not blocks:
        return Extraction(None, output.defect or Reason.NO_ANSWER)
    *above, last = (block.code for block in blocks)
    return Extraction(last, above=tuple(above))


gpt_oss = ProgramGrader(_last_official_code)
deepseek_r1 = ProgramGrader(_first_official_code)
