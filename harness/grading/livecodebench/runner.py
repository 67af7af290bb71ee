"""Many solutions on several workers, which share the machine's processors and memory.

A worker is a thread with a sandbox of its own. A program that waits, or that other programs of the machine
keep from running, leaves its processor to a further worker, so that a few that hang do not hold up the
others; the time limit does not count what a program waits for a processor.
"""

import collections
import contextlib
import queue
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from harness.errors import GradingError
from harness.grading.livecodebench.index import ProblemIndex
from harness.grading.livecodebench.program_journal import ResultJournal, task_key
from harness.grading.livecodebench.run_solution import ProgramResult, RunLimits, run_with_retry
from harness.grading.sandbox.jail import protocol
from harness.grading.sandbox.sandbox_process import SandboxLostError, SandboxProcess
from harness.grading.sandbox.tiers import GIB, MEMORY_LIMIT, MIB, Sandbox
from harness.grading.scoring.grade import GradingMode, Progress, Reason, Task
from harness.machine import container_memory, machine_memory
from harness.text import first_few

_MEMORY_SHARE = 0.8  # the share of free memory to use: programs are checked ten times a second
_LARGEST_SHARE, _SMALLEST_SHARE = GIB, 128 * MIB
_LOOK_S = 0.5
_MOST_WORKERS = 4  # when programs wait: a multiple of the number of processors
_WORTH = 0.5  # the share of a processor that must be free for a further worker


class ProgramTask(Task, frozen=True):
    """A solution to a problem, to be graded by the rules of one mode."""

    mode: GradingMode
    question_id: str
    code: str
    above: tuple[str, ...] = ()
    """The blocks above ``code`` in the answer, where it is not yet known which of them is the solution."""


class ExecutionConfig(msgspec.Struct, frozen=True):
    """The settings for running programs."""

    index: Path
    """The prepared tests."""
    sandbox: Sandbox
    workers: int
    """The number of processors that programs may use."""
    limit_s: float
    """The time limit of a test."""


def require_problems(index: Path, question_ids: Iterable[str]) -> None:
    """GradingError when the release lacks problems that the references name."""
    wanted = sorted(set(question_ids))
    with contextlib.closing(ProblemIndex(index)) as problems:
        absent = [name for name in wanted if problems.find(name) is None]
    if absent:
        raise GradingError(
            f"{index}: {len(absent)} of {len(wanted)} problems are not in this LiveCodeBench release"
            f" ({first_few(absent, 3)}); pass the release that the references were made from"
        )


def run_programs(
    tasks: Iterable[ProgramTask], execution: ExecutionConfig, journal: ResultJournal, progress: Progress
) -> dict[ProgramTask, ProgramResult]:
    """The result of every task; tasks with a result in the journal are not run.

    A program that was refused a thread is run again, and that result counts.
    """
    with contextlib.closing(ProblemIndex(execution.index)) as problems:
        keys = {task: _key(task, problems, execution) for task in tasks}
    if line := journal.reused(set(keys.values())):
        print(line, file=sys.stderr)
    # A warden that has loaded numpy, as for all official ones, forks more slowly: strict ones come first.
    order = sorted(keys.items(), key=lambda item: _needs_numpy(item[0]))
    waiting = {key: task for task, key in order if key not in journal.known}
    with _Pool(waiting, execution) as pool:
        while pool.left:
            if found := pool.result():
                journal.add(*found)
            progress(len(waiting) - pool.left, len(waiting), pool.what)
    return {task: journal.known[key] for task, key in keys.items()}


def _needs_numpy(task: ProgramTask) -> bool:
    return task.mode is GradingMode.OFFICIAL or "numpy" in task.code


def free_memory() -> int:
    """Bytes that all programs together may use: most of the free memory of machine and container.

    0 where neither is known, with which large programs run one after another.
    """
    known = [size for size in (machine_memory(), *container_memory()) if size is not None]
    return int(_MEMORY_SHARE * min(known, default=0))


class Shares(msgspec.Struct, frozen=True):
    """Bytes that a program may fill, and the number of programs at a time that may fill more."""

    first: int
    large: int

    @classmethod
    def of(cls, memory: int, workers: int) -> "Shares":
        """A large program has the sandbox's limit; what it leaves is divided among the others."""
        at_once = _MOST_WORKERS * workers
        first = min(_LARGEST_SHARE, max(_SMALLEST_SHARE, (memory - MEMORY_LIMIT) // at_once))
        room = (memory - at_once * first) // MEMORY_LIMIT
        return cls(first, max(1, min(room, workers // 2)))


def _key(task: ProgramTask, problems: ProblemIndex, execution: ExecutionConfig) -> str:
    facts = problems.find(task.question_id)
    if facts is None:
        raise GradingError(f"problem {task.question_id}: not in the LiveCodeBench index")
    return task_key(task.mode, execution.limit_s, facts.digest, task.code, execution.sandbox.tier)


class _Item(msgspec.Struct, frozen=True):
    """A program to run."""

    key: str
    task: ProgramTask
    again: bool = False
    """Whether it was refused a thread at its first time."""


class _Worker(threading.Thread):
    """Runs programs until there is none for it."""

    def __init__(self, pool: "_Pool", item: _Item) -> None:
        super().__init__()
        self.pool, self.process = pool, SandboxProcess(pool.execution.sandbox)
        self.item: _Item | None = item
        self._is_large = False

    def run(self) -> None:
        pool = self.pool
        try:
            with self.process as process, contextlib.closing(ProblemIndex(pool.execution.index)) as problems:
                limits = RunLimits(pool.execution.limit_s, pool.shares.first, self._more_memory)
                while item := self.item:
                    pool.done.put((item, _outcome(item.task, process, problems, limits)))
                    self._less_memory()
                    pool.assign(self)
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the caller raises it
            pool.done.put(error)

    def _more_memory(self) -> None:
        while not self._is_large:
            if self.pool.stopped.is_set():
                raise SandboxLostError("grading was aborted")
            self._is_large = self.pool.large.acquire(timeout=_LOOK_S)

    def _less_memory(self) -> None:
        if self._is_large:
            self.pool.large.release()
        self._is_large = False


class _Pool:
    """Workers that take programs from one queue, as many as keep the processors asked for busy."""

    def __init__(self, waiting: dict[str, ProgramTask], execution: ExecutionConfig) -> None:
        self.execution, self.shares = execution, Shares.of(free_memory(), execution.workers)
        self.done: queue.SimpleQueue[tuple[_Item, ProgramResult] | BaseException] = queue.SimpleQueue()
        self.large, self.stopped = threading.Semaphore(self.shares.large), threading.Event()
        self._todo = collections.deque(_Item(key, task) for key, task in waiting.items())
        self._again: collections.deque[_Item] = collections.deque()
        self.left, self._is_slow = len(waiting), False
        self._workers: set[_Worker] = set()
        self._started: list[_Worker] = []
        self._lock = threading.Lock()

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the workers, which after an exception are stopped."""
        if kind is not None:
            self.stopped.set()
            with self._lock:
                self._todo.clear()
                self._again.clear()
            for worker in self._started:
                worker.process.abort()
        for worker in self._started:
            if worker.is_alive():  # one for which there was no thread cannot be joined
                worker.join()

    @property
    def what(self) -> str:
        """The steps of the progress."""
        if self._todo or not self._is_slow:
            return "solutions"
        return f"solutions; slow ones have {self.execution.limit_s:.0f} s for a test"

    def result(self) -> tuple[str, ProgramResult] | None:
        """The next final result; None where there is none yet. Raises what a worker raised."""
        self._hire()
        try:
            result = self.done.get(timeout=_LOOK_S)
        except queue.Empty:
            self._is_slow = True
            return None
        if isinstance(result, BaseException):
            raise result
        item, outcome = result
        if outcome.contended and outcome.reason is Reason.THREAD_LIMIT and not item.again:
            self._again.append(_Item(item.key, item.task, again=True))
            return None
        self.left -= 1
        return item.key, outcome

    def assign(self, worker: _Worker) -> None:
        """Give a worker its next program, or none where it is not needed any longer."""
        with self._lock:
            worker.item = None
            if self._is_room(self._workers - {worker}):
                worker.item = self._next()
            if worker.item is None:
                self._workers.discard(worker)

    def _next(self) -> _Item | None:
        waiting = self._again or self._todo
        return waiting.popleft() if waiting else None

    def _is_room(self, others: Iterable[_Worker]) -> bool:
        """Whether the other workers leave a processor free."""
        used = sum(worker.process.processor_share for worker in others)
        return used <= self.execution.workers - _WORTH

    def _hire(self) -> None:
        """Start further workers where there are programs and processors for them."""
        most = _MOST_WORKERS * self.execution.workers
        with self._lock:
            while len(self._workers) < most and self._is_room(self._workers) and (item := self._next()):
                worker = _Worker(self, item)
                self._workers.add(worker)
                self._started.append(worker)
                worker.start()


def _outcome(
    task: ProgramTask, process: SandboxProcess, problems: ProblemIndex, limits: RunLimits
) -> ProgramResult:
    facts = problems.find(task.question_id)
    assert facts is not None  # _key found it
    job = protocol.Job(task.mode, facts.function, task.code)
    return run_with_retry(process, job, lambda: problems.tests(task.question_id), limits)
