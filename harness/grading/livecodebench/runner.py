"""Many solutions on several workers; failures that other programs may have caused are run again."""

import contextlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import GradingError
from harness.grading.grade import Mode, Progress, Task
from harness.grading.livecodebench.index import ProblemIndex
from harness.grading.livecodebench.journal import ResultJournal, task_key
from harness.grading.livecodebench.run_solution import TEST_CPU_S, ProgramResult, RunLimits, run_with_retry
from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.process import SandboxProcess
from harness.grading.sandbox.tiers import MEMORY_LIMIT, MIB, Sandbox

_MEMORY_SHARE = 0.8  # of what is free: programs are checked ten times a second and grow in between
_SMALLEST_SHARE = 128 * MIB
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class ProgramTask(Task):
    """A solution to a problem, to be graded by one mode's rules."""

    mode: Mode
    question_id: str
    code: str


@dataclass(frozen=True, slots=True)
class ExecutionConfig:
    """The tests, the sandbox, the number of workers and the CPU limit for running solutions."""

    index: Path
    sandbox: Sandbox
    workers: int
    cpu_limit_s: float = TEST_CPU_S


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def require_problems(index: Path, question_ids: Iterable[str]) -> None:
    """GradingError when the release lacks problems that the references name."""
    wanted = sorted(set(question_ids))
    with contextlib.closing(ProblemIndex(index)) as problems:
        absent = [name for name in wanted if problems.find(name) is None]
    if absent:
        raise GradingError(
            f"{index}: {len(absent)} of {len(wanted)} problems are not in this LiveCodeBench release"
            f" (first: {', '.join(absent[:3])}); pass the release that the references were made from"
        )


def run_programs(
    tasks: Iterable[ProgramTask], execution: ExecutionConfig, journal: ResultJournal, progress: Progress
) -> dict[ProgramTask, ProgramResult]:
    """The result of every task; tasks with a result in the journal are not run.

    A failure that other programs may have caused, by the machine's time, memory or threads, is run again
    beside half as many, then alone, where it counts. Programs at their CPU limit fail at once.
    """
    with contextlib.closing(ProblemIndex(execution.index)) as problems:
        keys = {task: _key(task, problems, execution) for task in tasks}
    # Programs with numpy come last: a warden that has loaded it forks more slowly.
    order = sorted(keys.items(), key=lambda item: "numpy" in item[0].code)
    waiting = {key: task for task, key in order if key not in journal.known}
    memory, step = free_memory(), "solutions"
    for workers in dict.fromkeys((execution.workers, max(1, execution.workers // 2), 1)):
        current = _Round(execution, workers, _share(memory, workers), step)
        waiting = _grade_together(waiting, current, journal, progress)
        step = "failures by time, memory or threads, with fewer at a time"
    return {task: journal.known[key] for task, key in keys.items()}


def free_memory() -> int:
    """Bytes that all programs together may use: most of the free memory of machine and container."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = [int(fields["MemAvailable"].split()[0]) * 1024, *_container_memory()]
    return int(_MEMORY_SHARE * min(free))


def _container_memory() -> Iterator[int]:
    """Bytes that the control group still allows, by version 2 or 1 of its files."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            yield int((_CGROUPS / limit).read_text()) - int((_CGROUPS / used).read_text())


def _share(memory: int, workers: int) -> int:
    """Bytes for each program; 0 for a single one, and where there is enough for the limit of each sandbox."""
    if workers == 1 or memory // workers >= MEMORY_LIMIT:
        return 0
    return max(_SMALLEST_SHARE, memory // workers)


def _key(task: ProgramTask, problems: ProblemIndex, execution: ExecutionConfig) -> str:
    facts = problems.find(task.question_id)
    if facts is None:
        raise GradingError(f"problem {task.question_id}: not in the LiveCodeBench index")
    return task_key(task.mode, execution.cpu_limit_s, facts.digest, task.code, execution.sandbox.tier)


@dataclass(frozen=True, slots=True)
class _Round:
    """One pass over tasks: the number of workers, and the memory of each program (0: no share)."""

    execution: ExecutionConfig
    workers: int
    memory: int
    what: str

    @property
    def is_last(self) -> bool:
        """Whether programs run alone, so that every result counts."""
        return self.workers == 1


class _Pool:
    """Threads that take tasks from one queue, each with its own sandbox."""

    def __init__(self, waiting: dict[str, ProgramTask], current: _Round) -> None:
        self.execution, self.limits = (
            current.execution,
            RunLimits(current.execution.cpu_limit_s, current.memory),
        )
        self.todo: queue.SimpleQueue[tuple[str, ProgramTask]] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[tuple[str, ProgramResult] | BaseException] = queue.SimpleQueue()
        self.stopped = threading.Event()
        self.processes: list[SandboxProcess] = []
        for item in waiting.items():
            self.todo.put(item)

    def work(self) -> None:
        try:
            with (
                SandboxProcess(self.execution.sandbox) as process,
                contextlib.closing(ProblemIndex(self.execution.index)) as problems,
            ):
                self.processes.append(process)
                while not self.stopped.is_set():
                    key, task = self.todo.get_nowait()
                    self.done.put((key, _outcome(task, process, problems, self.limits)))
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the caller raises it
            self.done.put(error)


def _grade_together(
    waiting: dict[str, ProgramTask], current: _Round, journal: ResultJournal, progress: Progress
) -> dict[str, ProgramTask]:
    """Run tasks side by side. Returns those that must be run again."""
    pool = _Pool(waiting, current)
    threads = [threading.Thread(target=pool.work) for _ in range(min(current.workers, len(waiting)))]
    for thread in threads:
        thread.start()
    again = {}
    try:
        for count in range(len(waiting)):
            result = pool.done.get()
            if isinstance(result, BaseException):
                raise result
            key, outcome = result
            if outcome.contended and not current.is_last:
                again[key] = waiting[key]
            else:
                journal.add(key, outcome)
            progress(count + 1, len(waiting), current.what)
    except BaseException:
        for process in pool.processes:
            process.abort()
        raise
    finally:
        pool.stopped.set()
        for thread in threads:
            thread.join()
    return again


def _outcome(
    task: ProgramTask, process: SandboxProcess, problems: ProblemIndex, limits: RunLimits
) -> ProgramResult:
    facts = problems.find(task.question_id)
    assert facts is not None  # _key found it
    job = protocol.Job(task.mode, facts.function, task.code)
    return run_with_retry(process, job, lambda: problems.tests(task.question_id), limits)
