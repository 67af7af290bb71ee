"""One solution on one problem: every test is run until the first that fails."""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from harness.grading.livecodebench import compare
from harness.grading.livecodebench.release import Example
from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.sandbox_process import SandboxLostError, SandboxProcess
from harness.grading.scoring.grade import GradingMode, Reason

TEST_S = 60.0
# A thread that is not joined races with the end of the official runner's test and may finish first by chance.
RACE_RUNS = 3
_CONTENDED = (protocol.STARVED, protocol.THREADS)
_REPEATED = (Reason.CORRECT, Reason.WRONG)  # what an unjoined thread that was late or early leads to
# Without a user of its own a program shares its number of threads with all others of the grader's user.
_SHOWN_OUTPUT = 2_000  # bytes of a failing test's output that an outcome keeps
REASONS = {
    protocol.ERROR: Reason.RUNTIME_ERROR,
    protocol.TIMEOUT: Reason.TIMEOUT,
    protocol.STARVED: Reason.TIMEOUT,
    protocol.OUTPUT: Reason.OUTPUT_LIMIT,
    protocol.MEMORY: Reason.MEMORY_LIMIT,
    protocol.THREADS: Reason.THREAD_LIMIT,
    protocol.FILES: Reason.FILE_LIMIT,
    protocol.KILLED: Reason.KILLED,
}


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """``failed_test`` is the number of the first failing test (from 0), None when all passed.

    ``output`` is the start of what that test printed or returned. ``raced``: repeated on the same tests, it
    both passed and failed. ``contended``: other programs may be the cause, which had the processors or the
    threads; the result counts for one call.
    """

    reason: Reason
    failed_test: int | None
    detail: str
    cpu_s: float
    output: str = ""
    raced: bool = False
    contended: bool = False

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return self.reason is Reason.CORRECT


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one test: seconds, and the bytes above which it waits for ``more_memory`` (0: never)."""

    seconds: float
    memory: int = 0
    more_memory: Callable[[], None] = lambda: None

    def test_run(self, text: str) -> protocol.TestRun:
        """One test under these limits."""
        return protocol.TestRun(self.seconds, text, self.memory)


def run_solution(
    process: SandboxProcess, job: protocol.Job, tests: Iterable[Example], limits: RunLimits
) -> ProgramResult:
    """The result of a solution; ``tests`` is read once. Raises SandboxLostError when the sandbox died."""
    if job.mode == GradingMode.STRICT or not _may_race(job.code):
        return _run(process, job, tests, limits)
    cases = list(tests)
    runs = [_run(process, job, cases, limits)]
    while len(runs) < RACE_RUNS and len({run.passed for run in runs}) == 1 and runs[-1].reason in _REPEATED:
        runs.append(_run(process, job, cases, limits))
    failed = [run for run in runs if not run.passed]
    return replace((failed or runs)[0], raced=0 < len(failed) < len(runs))


def _may_race(code: str) -> bool:
    return "Thread(" in code and ".join(" not in code


def _run(
    process: SandboxProcess, job: protocol.Job, tests: Iterable[Example], limits: RunLimits
) -> ProgramResult:
    process.begin(job)
    cpu_s = 0.0
    for number, test in enumerate(tests):
        result = process.attempt(limits.test_run(test.input), limits.more_memory)
        cpu_s += result.cpu_s
        reason = _reason(result, job, test)
        if reason is not Reason.CORRECT:
            shown = result.output[:_SHOWN_OUTPUT].decode("utf-8", "replace")
            return ProgramResult(
                reason, number, result.detail, cpu_s, shown, contended=result.status in _CONTENDED
            )
    return ProgramResult(Reason.CORRECT, None, "", cpu_s)


def _reason(result: protocol.TestRunResult, job: protocol.Job, test: Example) -> Reason:
    if result.status != protocol.OK:
        return REASONS[result.status]
    with contextlib.suppress(ValueError):  # an expected value that is not JSON equals nothing
        if _matches(result.output, job, test):
            return Reason.CORRECT
    return Reason.WRONG


def _matches(output: bytes, job: protocol.Job, test: Example) -> bool:
    if job.function:
        return compare.same_value(output, test.expected)
    return compare.same_printout(output.decode("utf-8", "replace"), test.expected)


def run_with_retry(
    process: SandboxProcess, job: protocol.Job, tests: Callable[[], Iterable[Example]], limits: RunLimits
) -> ProgramResult:
    """As run_solution, with a second sandbox where the first was lost; losing both is a result."""
    try:
        return run_solution(process, job, tests(), limits)
    except SandboxLostError:
        process.stop()
    try:
        return run_solution(process, job, tests(), limits)
    except SandboxLostError as lost:
        process.stop()
        return ProgramResult(Reason.SANDBOX_LOST, 0, str(lost), 0.0)
