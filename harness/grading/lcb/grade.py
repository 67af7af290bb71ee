"""Grades many solutions on several workers: each distinct task once, timeouts once more and alone."""

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import GradingError
from harness.grading.jail import wire
from harness.grading.lcb.index import ProblemIndex
from harness.grading.lcb.journal import OutcomeJournal, task_key
from harness.grading.lcb.trial import TEST_CPU_S, Outcome, try_twice
from harness.grading.sandbox import Sandbox
from harness.grading.session import Session
from harness.grading.verdict import Mode, Reason


@dataclass(frozen=True, slots=True)
class Task:
    """A solution to a problem, to be judged by one mode's rules."""

    mode: Mode
    question_id: str
    code: str


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and how solutions are tried."""

    index: Path
    sandbox: Sandbox
    workers: int
    cpu_limit_s: float = TEST_CPU_S


Progress = Callable[[int, int, str], None]  # done, total, what


def workers_there() -> int:
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


def grade(
    tasks: Iterable[Task], bench: Bench, journal: OutcomeJournal, progress: Progress
) -> dict[Task, Outcome]:
    """Outcome of every task; those that the journal knows are not run."""
    with contextlib.closing(ProblemIndex(bench.index)) as problems:
        keys = {task: _key(task, problems, bench) for task in tasks}
    waiting = {key: task for task, key in keys.items() if key not in journal.known}
    late = _grade_together(waiting, bench, journal, progress)
    _retry_alone({key: waiting[key] for key in late}, bench, journal, progress)
    return {task: journal.known[key] for task, key in keys.items()}


def _key(task: Task, problems: ProblemIndex, bench: Bench) -> str:
    facts = problems.find(task.question_id)
    if facts is None:
        raise GradingError(f"problem {task.question_id}: not in the LiveCodeBench index")
    return task_key(task.mode, bench.cpu_limit_s, facts.digest, task.code, bench.sandbox.tier)


class _Pool:
    """Threads that take tasks from one queue, each with its own sandbox."""

    def __init__(self, waiting: dict[str, Task], bench: Bench) -> None:
        self.bench = bench
        self.todo: queue.SimpleQueue[tuple[str, Task]] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[tuple[str, Outcome] | BaseException] = queue.SimpleQueue()
        self.stopped = threading.Event()
        self.sessions: list[Session] = []
        for item in waiting.items():
            self.todo.put(item)

    def work(self) -> None:
        try:
            with (
                Session(self.bench.sandbox) as session,
                contextlib.closing(ProblemIndex(self.bench.index)) as problems,
            ):
                self.sessions.append(session)
                while not self.stopped.is_set():
                    key, task = self.todo.get_nowait()
                    self.done.put((key, _outcome(task, session, problems, self.bench)))
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the caller raises it
            self.done.put(error)


def _grade_together(
    waiting: dict[str, Task], bench: Bench, journal: OutcomeJournal, progress: Progress
) -> list[str]:
    pool = _Pool(waiting, bench)
    threads = [threading.Thread(target=pool.work) for _ in range(min(bench.workers, len(waiting)))]
    for thread in threads:
        thread.start()
    late = []
    try:
        for count in range(len(waiting)):
            result = pool.done.get()
            if isinstance(result, BaseException):
                raise result
            key, outcome = result
            if outcome.reason is Reason.TIMEOUT:
                late.append(key)
            else:
                journal.add(key, outcome)
            progress(count + 1, len(waiting), "solutions")
    except BaseException:
        for session in pool.sessions:
            session.abort()
        raise
    finally:
        pool.stopped.set()
        for thread in threads:
            thread.join()
    return late


def _retry_alone(late: dict[str, Task], bench: Bench, journal: OutcomeJournal, progress: Progress) -> None:
    """A time limit that was hit next to other workers says little; alone it counts."""
    with Session(bench.sandbox) as session, contextlib.closing(ProblemIndex(bench.index)) as problems:
        for count, (key, task) in enumerate(late.items(), 1):
            journal.add(key, _outcome(task, session, problems, bench))
            progress(count, len(late), "timeouts, one at a time")


def _outcome(task: Task, session: Session, problems: ProblemIndex, bench: Bench) -> Outcome:
    facts = problems.find(task.question_id)
    assert facts is not None  # _key found it
    job = wire.Job(task.mode, facts.function, task.code)
    return try_twice(session, job, lambda: problems.tests(task.question_id), bench.cpu_limit_s)
