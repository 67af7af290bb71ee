"""One solution on one problem: every test is run until the first that fails."""

import contextlib
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from harness.grading.livecodebench import compare
from harness.grading.livecodebench.release import Example
from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.sandbox_process import SandboxLostError, SandboxProcess
from harness.grading.scoring.grade import GradingMode, Reason
from harness.machine import memory_kills

# A thread that is not joined races with the end of a test of the official runner: it may finish first.
RACE_RUNS = 3
# Without a user of its own a program shares its number of threads with all others of the grader's user.
_CONTENDED = (protocol.STARVED, protocol.THREADS)
_REPEATED = (Reason.CORRECT, Reason.WRONG)  # a thread that is not joined leads to one or the other
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


class ProgramResult(msgspec.Struct, frozen=True):
    """The result of a program on the tests of its problem."""

    reason: Reason
    failed_test: int | None
    """The number of the first failing test, from 0; None: all passed."""
    detail: str
    """One line of evidence, such as the last line of stderr."""
    output: str = ""
    """The start of what the failing test printed or returned."""
    raced: bool = False
    """Whether it both passed and failed, repeated on the same tests."""
    contended: bool = False
    """Whether other programs may be the cause, which had the processors or the threads: not reused later."""

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return self.reason is Reason.CORRECT


class RunLimits(msgspec.Struct, frozen=True):
    """The limits of one test."""

    seconds: float
    memory: int = 0
    """The bytes above which it waits for ``more_memory``; 0: never."""
    more_memory: Callable[[], None] = lambda: None
    """Returns when the program may have more."""


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
    for number, test in enumerate(tests):
        test_run = protocol.TestRun(limits.seconds, test.input, limits.memory)
        result = process.attempt(test_run, limits.more_memory)
        reason = _reason(result, job, test)
        if reason is not Reason.CORRECT:
            shown = result.output[:_SHOWN_OUTPUT].decode("utf-8", "replace")
            return ProgramResult(reason, number, result.detail, shown, contended=result.status in _CONTENDED)
    return ProgramResult(Reason.CORRECT, None, "")


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
    """As run_solution, with a second sandbox where the first was lost; losing both is a result.

    The second one may have more memory at once, since the kernel ends what has none left.
    """
    try:
        return _run_unless_lost(process, job, tests(), limits)
    except SandboxLostError:
        process.stop()
    try:
        limits.more_memory()
        return _run_unless_lost(process, job, tests(), replace(limits, memory=0))
    except SandboxLostError as lost:
        process.stop()
        return ProgramResult(Reason.SANDBOX_LOST, 0, str(lost))


def _run_unless_lost(
    process: SandboxProcess, job: protocol.Job, tests: Iterable[Example], limits: RunLimits
) -> ProgramResult:
    killed = memory_kills()
    result = run_solution(process, job, tests, limits)
    if result.reason is Reason.KILLED and memory_kills() != killed:
        raise SandboxLostError("killed for want of memory, of the machine or of this container or job")
    return result
