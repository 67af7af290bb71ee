"""Comparison of mathematical answers with the true ones in sandboxes: sympy evaluates what a model wrote.

One process in a sandbox compares many pairs, because sympy is 20 times as slow in a new one. A pair that
hangs, fills the memory or ends the process is a wrong answer, and the next pair gets a new process.
"""

import contextlib
import json
import queue
import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from harness.grading.livecodebench.run_solution import REASONS
from harness.grading.sandbox.jail import protocol, values
from harness.grading.sandbox.sandbox_process import SandboxLostError, SandboxProcess
from harness.grading.sandbox.tiers import GIB, Sandbox
from harness.grading.scoring.grade import WRONG, Grade, GradingMode, Progress, Reason, Task, answered

PAIR_S = 20.0  # the rules have no limit; simplifications that end take a second or two
PAIR_MEMORY = GIB
# The files of each mode's rules, of which the last defines ``same(given, truth)``; they run in the sandbox.
_RULES = {
    GradingMode.OFFICIAL: ("prm800k.py",),
    GradingMode.STRICT: ("units.py", "latex.py", "equivalence.py"),
}
_OWN_IMPORT = re.compile(r"^from harness\b.*$", re.MULTILINE)


class AnswerPair(Task, frozen=True):
    """An answer as it was written, to be compared with the true one by a mode's rules."""

    mode: GradingMode
    given: str
    truth: str
    read: str = ""
    """The text of the output that the answer was taken from."""


class MathJudge(msgspec.Struct, frozen=True):
    """Compares the pairs of a log."""

    sandbox: Sandbox
    workers: int
    limit_s: float = PAIR_S

    def grade(self, tasks: Iterable[Task], progress: Progress) -> Mapping[Task, Grade]:
        """As TaskRunner."""
        pairs = sorted((task for task in tasks if isinstance(task, AnswerPair)), key=lambda pair: pair.mode)
        grades: dict[Task, Grade] = {}
        with _Pool(self, pairs) as pool:
            while len(grades) < len(pairs):
                result = pool.done.get()
                if isinstance(result, BaseException):
                    raise result
                pair, grade = result
                grades[pair] = grade
                progress(len(grades), len(pairs), "answers compared")
        return grades


class _Pool:
    """Threads that take pairs from one queue, each with its own sandbox."""

    def __init__(self, judge: MathJudge, pairs: list[AnswerPair]) -> None:
        self._judge = judge
        self._todo: queue.SimpleQueue[AnswerPair] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[tuple[AnswerPair, Grade] | BaseException] = queue.SimpleQueue()
        self._processes: list[SandboxProcess] = []
        for pair in pairs:
            self._todo.put(pair)
        self._threads = [threading.Thread(target=self._work) for _ in range(min(judge.workers, len(pairs)))]

    def __enter__(self) -> "_Pool":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the threads; after an exception some still run."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._todo.get_nowait()
        for process in self._processes:
            process.abort()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        try:
            with SandboxProcess(self._judge.sandbox) as process:
                self._processes.append(process)
                loaded = None
                while True:
                    pair = self._todo.get_nowait()
                    if pair.mode is not loaded:
                        process.begin(_rules(pair.mode))
                        loaded = pair.mode
                    self.done.put((pair, self._grade(process, pair)))
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the caller raises it
            self.done.put(error)

    def _grade(self, process: SandboxProcess, pair: AnswerPair) -> Grade:
        """The grade of a pair; a second sandbox is tried where the first was lost."""
        run = protocol.TestRun(self._judge.limit_s, "\n".join(map(json.dumps, (pair.given, pair.truth))))
        for _ in range(2):
            try:
                return _grade(pair, process.attempt(run))
            except SandboxLostError as lost:
                reason = str(lost)
                process.stop()
                process.begin(_rules(pair.mode))
        return Grade(WRONG, False, pair.given, Reason.SANDBOX_LOST, reason, read=pair.read)


def _rules(mode: GradingMode) -> protocol.Job:
    """The rules as a solution whose tests are the pairs: the official runner keeps one process for them."""
    texts = [(Path(__file__).parent / name).read_text("utf-8") for name in _RULES[mode]]
    return protocol.Job(GradingMode.OFFICIAL, "same", _OWN_IMPORT.sub("", "\n".join(texts)))


def _grade(pair: AnswerPair, result: protocol.TestRunResult) -> Grade:
    if result.status != protocol.OK:
        return Grade(WRONG, False, pair.given, REASONS[result.status], result.detail, read=pair.read)
    is_same = bool(result.output) and values.decode(result.output) is True
    return answered(pair.given, is_same, pair.read)
