"""Many programs on several workers: interruptions, time and memory limits, lost sandboxes, progress."""

import contextlib
import io
import itertools
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import GradingError
from harness.grading.grade import Mode, Reason
from harness.grading.livecodebench.journal import ResultJournal
from harness.grading.livecodebench.run_solution import ProgramResult
from harness.grading.livecodebench.runner import (
    ExecutionConfig,
    ProgramTask,
    _share,
    free_memory,
    run_programs,
)
from harness.grading.reports.progress import ProgressBar
from harness.grading.sandbox import users
from harness.grading.sandbox.tiers import MIB, Tier, sandbox
from tests.harness.grading.conftest import quiet
from tests.harness.grading.samples import solutions
from tests.kit import PATIENCE_S


def execution(index: Path, tier: Tier, cpu_s: float = 10.0) -> ExecutionConfig:
    return ExecutionConfig(index, sandbox(tier), 2, cpu_s)


@pytest.fixture
def run(index: Path, tier: Tier, tmp_path: Path):
    """Run programs with a new journal; their results, and the programs of each step."""

    def run(tasks: list[ProgramTask], cpu_s: float = 10.0) -> tuple[list[ProgramResult], dict[str, int]]:
        steps: dict[str, int] = {}
        journal = ResultJournal(tmp_path / "new")
        there = execution(index, tier, cpu_s)
        found = run_programs(tasks, there, journal, lambda _, total, what: steps.update({what: total}))
        return [found[task] for task in tasks], steps

    return run


def test_reference_solutions_pass_and_equal_code_runs_once(run):
    tasks = [ProgramTask(mode, name, source) for mode in Mode for name, source in solutions().items()]
    results, steps = run(tasks * 3)
    assert {result.reason for result in results} == {Reason.CORRECT}
    assert steps == {"solutions": len(tasks)}


def test_an_interrupted_grading_resumes(index: Path, tier: Tier, tmp_path: Path):
    tasks = [ProgramTask(Mode.STRICT, name, source) for name, source in solutions().items()]
    hang = ProgramTask(Mode.STRICT, tasks[0].question_id, "while True: pass")
    path, there = tmp_path / "journal", execution(index, tier, 3600.0)

    def interrupt(done: int, total: int, what: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # the hanging one, an hour, is not waited for
        run_programs([hang, *tasks], there, ResultJournal(path), interrupt)
    with path.open("a") as file:
        file.write('{"key": "cut by a cra')
    again = ResultJournal(path)
    assert len(again.known) >= 2
    steps: list[int] = []
    results = run_programs(tasks, there, again, lambda done, total, what: steps.append(done))
    assert all(result.passed for result in results.values())
    assert len(steps) <= len(tasks) - 2


AGAIN = "failures by time, memory or threads, with fewer at a time"


def test_programs_that_waited_or_were_refused_a_thread_are_tried_again(run):
    """Where the grader is not root, and has no namespaces, all sandboxes share the threads of its user."""
    name = next(iter(solutions()))
    waits = ProgramTask(Mode.OFFICIAL, name, "import time\ntime.sleep(99)")
    refused = ProgramTask(Mode.STRICT, name, 'raise RuntimeError("can\'t start new thread")')
    results, steps = run([waits, refused], 0.2)
    assert [result.reason for result in results] == [Reason.TIMEOUT, Reason.THREAD_LIMIT]
    assert steps[AGAIN] == 2
    (loop,), _ = run([ProgramTask(Mode.STRICT, name, "while True: pass")], 0.2)
    assert loop.reason is Reason.TIMEOUT


def test_a_program_that_outgrows_its_share_of_memory_is_tried_again(run, monkeypatch: pytest.MonkeyPatch):
    name = "sample-mirror-steps"  # has the fewest tests
    source = solutions()[name]
    kept = "import time\nx = bytes(range(256)) * (3 << 18)\ntime.sleep(0.3)"  # long enough to be looked at
    killer = "import os\nos.kill(os.getppid(), 9)\nos.abort()"
    tasks = [ProgramTask(Mode.STRICT, name, code) for code in (f"{kept}\n{source}", source)]
    tasks += [ProgramTask(mode, name, killer) for mode in Mode]
    shared = 256 * MIB  # 128 for each of two
    monkeypatch.setattr("harness.grading.livecodebench.runner.free_memory", lambda: shared)
    results, steps = run(tasks, 60.0)
    assert (steps["solutions"], steps[AGAIN]) == (4, 1)
    assert [result.passed for result in results] == [True, True, False, False]


def test_a_cpu_limit_counts_at_once(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = next(iter(solutions()))
    tasks = [ProgramTask(Mode.STRICT, name, code) for code in ("busy", "waits", "waits and passes")]
    tried: list[str] = []

    def outcome(task: ProgramTask, *_: object) -> ProgramResult:
        tried.append(task.code)
        if task.code == "waits and passes" and tried.count(task.code) == 2:
            return ProgramResult(Reason.CORRECT, None, "", 1.0)
        return ProgramResult(Reason.TIMEOUT, 0, "", 1.0, contended=task.code != "busy")

    monkeypatch.setattr("harness.grading.livecodebench.runner._outcome", outcome)
    there = ExecutionConfig(index, sandbox(Tier.UNSANDBOXED), 4)
    outcomes = run_programs(tasks, there, ResultJournal(tmp_path / "j"), quiet)
    assert [outcomes[task].passed for task in tasks] == [False, False, True]
    assert [tried.count(task.code) for task in tasks] == [1, 3, 2]


@pytest.mark.parametrize(
    ("memory_gib", "workers", "share_gib"),
    [(1000, 64, 0), (51, 64, 51 / 64), (8, 2, 0), (7, 2, 3.5), (1, 1, 0), (1, 64, 1 / 8)],
)
def test_programs_share_the_machines_memory(memory_gib: int, workers: int, share_gib: float):
    assert _share(memory_gib << 30, workers) == int(share_gib * (1 << 30))
    assert 0 < free_memory() < 1 << 50


def test_the_progress_line_says_the_time_left():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream in (Terminal(), io.StringIO()):
        clock = iter(range(0, 10_000, 61)).__next__
        with ProgressBar(stream, clock) as bar:
            for done in range(1, 5):
                bar.show(done, 4, "solutions")
        assert "2/4 solutions, about 1 min 01 s left" in stream.getvalue()
        assert "4/4 solutions\n" in stream.getvalue().replace("\033[K", "")


def test_a_lost_sandbox_costs_one_verdict(index: Path, tmp_path: Path):
    name, source = next(iter(solutions().items()))
    killer = ProgramTask(Mode.STRICT, name, "import os\nos.kill(os.getppid(), 9)")
    good = ProgramTask(Mode.STRICT, name, source)
    there = ExecutionConfig(index, sandbox(Tier.UNSANDBOXED), 1)
    results = run_programs([killer, good], there, ResultJournal(tmp_path / "j"), quiet)
    assert results[killer].reason is Reason.SANDBOX_LOST
    assert results[good].passed


def test_each_sandbox_of_the_machine_has_a_user_of_its_own(monkeypatch: pytest.MonkeyPatch):
    """Those of another process too, whose turn begins with the same user; when it ends they are free."""
    lock = f"\0test-{secrets.token_hex(8)}-{{}}"  # no user of this machine is taken
    take = f"""
import contextlib, itertools, os, sys
from harness.grading.sandbox import users
os.geteuid, users._turn, users._LOCK = lambda: 0, itertools.count(5), {lock!r}
with contextlib.ExitStack() as held:
    print(*(held.enter_context(users.own_user()) for _ in range(20)), flush=True)
    sys.stdin.read()
"""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name, value in (("turn", itertools.count(5)), ("LOCK", lock), ("UNUSED", range(60_578, 60_608)),
                        ("FURTHER", range(61_184, 61_194))):  # fmt: skip
        monkeypatch.setattr(users, f"_{name}", value)
    words = [sys.executable, "-c", take]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
        contextlib.ExitStack() as held,
    ):
        assert other.stdout
        theirs = set(map(int, other.stdout.readline().split()))
        ours = {held.enter_context(users.own_user()) for _ in range(20)}
        assert (len(theirs), len(ours), len(ours | theirs)) == (20, 20, 40)
        with pytest.raises(GradingError, match="all 40 user"):
            held.enter_context(users.own_user())
        other.kill()
        other.wait(PATIENCE_S)
        assert {held.enter_context(users.own_user()) for _ in range(20)} == theirs
