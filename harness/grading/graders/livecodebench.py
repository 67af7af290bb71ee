"""LiveCodeBench: the program in an output, which must pass all tests of its problem.

Official: in the final section the last ```python block, else the last plain one; the complete text likewise
where there is none. Strict: the last program among the fenced blocks of the final channel, as Markdown reads
them.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.config.benchmark import load_benchmark
from harness.errors import GradingError
from harness.grading.decoding.output import Output
from harness.grading.decoding.screen import Screen
from harness.grading.evaluation_options import EvaluationOptions
from harness.grading.grade import (
    BOTH_MODES,
    RIGHT,
    RIGHT_OR_WRONG,
    WRONG,
    FailedTest,
    Grade,
    Mode,
    Progress,
    Reason,
    Task,
    unanswered,
)
from harness.grading.graders import code_blocks
from harness.grading.livecodebench import packages
from harness.grading.livecodebench.index import ProblemIndex, prepared
from harness.grading.livecodebench.journal import ResultJournal, journal_path
from harness.grading.livecodebench.release import find_release, only_file
from harness.grading.livecodebench.run_solution import ProgramResult
from harness.grading.livecodebench.runner import (
    ExecutionConfig,
    ProgramTask,
    require_problems,
    run_programs,
    usable_cores,
)
from harness.grading.sandbox.probe import choose_sandbox
from harness.grading.sandbox.tiers import Sandbox

METRICS = RIGHT_OR_WRONG
MODES = BOTH_MODES
FIRST_ENTRY_COUNTS = False
MISSING_ARE_WRONG = True
NAMES_QUESTION = True

_OFFICIAL_PYTHON = re.compile(r"```python(.*?)```", re.DOTALL)
_OFFICIAL_PLAIN = re.compile(r"```(.*?)```", re.DOTALL)
_FENCE_SCREEN = Screen(("```",))
_OFFICIAL_TAG = re.compile(r"^(?:python|py)\s*\n", re.IGNORECASE)


def check_reference(value: object) -> str:
    """The question_id."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a LiveCodeBench question_id")
    return value


def official(output: Output, truth: str) -> Grade | Task:
    """The task for the program by the published rules; a grade where there is none."""
    return task(Mode.OFFICIAL, truth, official_code(output))


def strict(output: Output, truth: str) -> Grade | Task:
    """The task for the program that the final channel ends with; a grade where there is none."""
    return task(Mode.STRICT, truth, strict_code(output))


def task(mode: Mode, question_id: str, found: "Extraction") -> Grade | Task:
    """The task for a program; the grade where none was found."""
    if not found.code:
        return unanswered(found.reason)
    return ProgramTask(mode, question_id, found.code, found.above)


@dataclass(frozen=True, slots=True)
class Programs:
    """The batch of programs; the journal keeps their results for the next call."""

    execution: ExecutionConfig
    journal: Path
    restart: bool

    @property
    def sandbox(self) -> Sandbox:
        """As SandboxedBatch."""
        return self.execution.sandbox

    def grade(self, tasks: Iterable[Task], progress: Progress) -> Mapping[Task, Grade]:
        """As Batch."""
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


def prepare(truths: Sequence[str], options: EvaluationOptions) -> Programs:
    """As BatchGrader: find the release, choose a sandbox and prepare the tests."""
    rule = load_benchmark(options.benchmark, options.round).dataset(accuracy=True)
    release = options.lcb_data or find_release(options.references)
    if release is None:
        raise GradingError(
            f"{options.references}: {len(truths)} LiveCodeBench samples, but no tests; "
            "pass --lcb-data (datasets/download.sh --what livecodebench fetches them)"
        )
    sandbox = _sandbox(options.allow_unsandboxed)
    index = prepared(
        only_file(release, rule.release_file), _cache_folder(), lambda text: print(text, file=sys.stderr)
    )
    require_problems(index, truths)
    execution = ExecutionConfig(index, sandbox, options.num_lcb_workers or usable_cores(), rule.program_s)
    return Programs(execution, journal_path(options.output_file, options.mlperf_log), options.restart)


def _sandbox(allow_unsandboxed: bool) -> Sandbox:
    chosen = choose_sandbox(allow_unsandboxed)
    print(f"sandbox: {chosen.tier}", file=sys.stderr)
    found = ", ".join(f"{name} {version or 'NOT INSTALLED'}" for name, version in packages.versions().items())
    print(f"programs run with {found}", file=sys.stderr)
    return chosen


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "mlperf-llm-harness"


@dataclass(frozen=True, slots=True)
class Extraction:
    """The program that was found; ``code`` is None where there is none, for the ``reason``.

    ``above``: the blocks above it, one of which is the program where ``code`` is not.
    """

    code: str | None
    reason: Reason = Reason.NO_ANSWER
    above: tuple[str, ...] = ()


def official_code(output: Output) -> Extraction:
    """The program by the published rules."""
    code = _official_block(output.official_final) if output.official_final is not None else None
    if code is None and output.may_match(_FENCE_SCREEN):
        code = _official_block(output.text)
    return Extraction(code, output.defect or Reason.NO_ANSWER)


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
