"""LiveCodeBench: the program in an output, which must pass all tests of its problem.

Official: in the final section the last ```python block, else the last plain one; the complete text likewise
where there is none. Strict: the last fenced block of the final channel, as Markdown reads it.
"""

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.benchmark import load_benchmark
from harness.errors import GradingError
from harness.grading.decoding.output import Output
from harness.grading.decoding.screen import Screen
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
from harness.grading.livecodebench import packages
from harness.grading.livecodebench.index import prepared
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
from harness.grading.options import EvaluationOptions
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
_FENCE = re.compile(r"^([ \t>]*+(?:(?:[-*+]|\d{1,3}[.)])[ \t]++)?+)(`{3,}+|~{3,}+)[ \t]*+([\w+-]*+)[^`]*+$")
_FENCE_BEHIND_TEXT = re.compile(r"()(?<!`)(`{3,}+)(python3?|py3?)[ \t]*+$", re.IGNORECASE)
_CLOSED_BEHIND_CODE = re.compile(r"^([^`]*[^`\s][^`]*)`{3,}[ \t]*$")
_QUOTED = re.compile(r"^[ \t]*+> ?", re.MULTILINE)
_PYTHON_NAMES = frozenset({"python", "python3", "py", "py3"})


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
    return ProgramTask(mode, question_id, found.code) if found.code else unanswered(found.reason)


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
        programs = [task for task in tasks if isinstance(task, ProgramTask)]
        journal = ResultJournal(self.journal, self.restart)
        try:
            results = run_programs(programs, self.execution, journal, progress)
        finally:
            journal.close()
        return {task: _grade(task.code, result) for task, result in results.items()}


def _grade(code: str, result: ProgramResult) -> Grade:
    detail, failed = result.detail, None
    if result.failed_test is not None:
        detail = f"test {result.failed_test + 1}: {result.detail}".removesuffix(": ")
        failed = FailedTest(result.failed_test, result.output)
    scores = RIGHT if result.passed else WRONG
    return Grade(scores, result.passed, code, result.reason, detail, result.raced, failed)


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
    """The program that was found; ``code`` is None where there is none, for the ``reason``."""

    code: str | None
    reason: Reason = Reason.NO_ANSWER


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
    """The program that the final channel ends with."""
    if output.strict_final is None:
        return Extraction(None, output.defect or Reason.NO_FINAL)
    blocks = fenced_blocks(output.strict_final)
    python = [code for name, code in blocks if name in _PYTHON_NAMES]
    chosen = python or [code for name, code in blocks if not name]
    if not chosen:
        return Extraction(None, output.defect or Reason.NO_ANSWER)
    return Extraction(chosen[-1])


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Language in lower case and content of each closed block, in order."""
    blocks: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        closes = opening is not None and (_closes(fence, opening) if fence else None)
        if opening is None or (fence and fence[3]):
            opening, lines = fence or _FENCE_BEHIND_TEXT.search(line), []
        elif closes or (not fence and (last := _CLOSED_BEHIND_CODE.match(line))):
            content = lines if closes else [*lines, last[1].rstrip()]  # type: ignore[index]
            blocks.append((opening[3].lower(), _outdented("\n".join(content), opening[1])))
            opening = None
        else:
            lines.append(line)
    return blocks


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    """A fence closes one of the same kind that is no longer than itself."""
    return fence[2][0] == opening[2][0] and len(fence[2]) >= len(opening[2])


def _outdented(code: str, lead: str) -> str:
    """The code without the quotation marks or the indentation of the list item around the block."""
    if ">" in lead:
        code = _QUOTED.sub("", code)
    return textwrap.dedent(code) if lead or code[:1] in (" ", "\t") else code
