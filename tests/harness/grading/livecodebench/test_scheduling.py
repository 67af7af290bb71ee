"""Many programs on several workers: interruptions, time and memory limits, lost sandboxes, progress."""

import contextlib
import io
import itertools
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
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
from harness.grading.sandbox.tiers import MIB, Tier, sandbox
from tests.harness.grading.conftest import quiet
from tests.harness.grading.samples import solutions
from tests.kit import PATIENCE_S


def execution(index: Path, tier: Tier, cpu_s: float = 10.0) -> ExecutionConfig:
    return ExecutionConfig(index, sandbox(tier), 2, cpu_s)


def test_reference_solutions_pass_and_equal_code_runs_once(index: Path, tier: Tier, tmp_path: Path):
    tasks = [ProgramTask(mode, name, source) for mode in Mode for name, source in solutions().items()]
    journal = ResultJournal(tmp_path / "journal")
    steps: list[int] = []
    outcomes = run_programs(
        tasks * 3, execution(index, tier), journal, lambda done, total, what: steps.append(total)
    )
    assert {outcome.reason for outcome in outcomes.values()} == {Reason.CORRECT}
    assert steps == [len(tasks)] * len(tasks)


def test_an_interrupted_grading_resumes(index: Path, tier: Tier, tmp_path: Path):
    tasks = [ProgramTask(Mode.STRICT, name, source) for name, source in solutions().items()]
    hang = ProgramTask(Mode.STRICT, tasks[0].question_id, "while True: pass")
    path = tmp_path / "journal"

    def interrupt(done: int, total: int, what: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # the hanging one, an hour, is not waited for
        run_programs([hang, *tasks], execution(index, tier, 3600.0), ResultJournal(path), interrupt)
    with path.open("a") as file:
        file.write('{"key": "cut by a cra')
    again = ResultJournal(path)
    assert len(again.known) >= 2
    steps: list[int] = []
    outcomes = run_programs(
        tasks, execution(index, tier, 3600.0), again, lambda done, total, what: steps.append(done)
    )
    assert all(outcome.passed for outcome in outcomes.values())
    assert len(steps) <= len(tasks) - 2


def counted(
    tasks: list[ProgramTask], there: ExecutionConfig, folder: Path
) -> tuple[Mapping[ProgramTask, ProgramResult], dict[str, int]]:
    """The outcomes, and how many programs each step had."""
    seen: dict[str, int] = {}
    journal = ResultJournal(folder / "j")
    return run_programs(tasks, there, journal, lambda _, total, what: seen.update({what: total})), seen


AGAIN = "failures by time, memory or threads, with fewer at a time"


def test_a_program_that_waits_is_tried_again(index: Path, tier: Tier, tmp_path: Path):
    """A loop is not, unless a busy machine kept it from its limit of CPU time."""
    name = next(iter(solutions()))
    loops = [ProgramTask(Mode.STRICT, name, f"while True: pass  # {number}") for number in range(2)]
    tasks = [*loops, ProgramTask(Mode.OFFICIAL, name, "import time\ntime.sleep(99)")]
    outcomes, seen = counted(tasks, execution(index, tier, 0.5), tmp_path)
    assert [outcomes[task].reason for task in tasks] == [Reason.TIMEOUT] * 3
    assert 1 <= seen[AGAIN] <= 3


def test_a_program_that_outgrows_its_share_of_memory_is_tried_again(
    index: Path, tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    name, source = next(iter(solutions().items()))
    kept = "import time\nx = bytes(range(256)) * (1 << 20)\ntime.sleep(0.3)"  # long enough to be looked at
    large = ProgramTask(Mode.STRICT, name, f"{kept}\n{source}")
    killers = [ProgramTask(mode, name, "import os\nos.kill(os.getppid(), 9)\nos.abort()") for mode in Mode]
    good = ProgramTask(Mode.STRICT, name, source)
    shared = 400 * MIB  # 200 for each of two
    monkeypatch.setattr("harness.grading.livecodebench.runner.free_memory", lambda: shared)
    outcomes, seen = counted([large, *killers, good], execution(index, tier, 60.0), tmp_path)
    assert (seen["solutions"], seen[AGAIN]) == (4, 1)
    assert outcomes[large].passed and outcomes[good].passed
    assert not any(outcomes[task].passed for task in killers)


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


def test_a_program_that_was_refused_a_thread_is_tried_again(index: Path, tier: Tier, tmp_path: Path):
    """Where the grader is not root, and has no namespaces, all sandboxes share the threads of its user."""
    name = next(iter(solutions()))
    refused = ProgramTask(Mode.STRICT, name, 'raise RuntimeError("can\'t start new thread")')
    outcomes, seen = counted([refused], execution(index, tier), tmp_path)
    assert (outcomes[refused].reason, seen[AGAIN]) == (Reason.THREAD_LIMIT, 1)


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
    from harness.grading.sandbox.tiers import Sandbox

    name, source = next(iter(solutions().items()))
    mortal = Sandbox(
        Tier.UNSANDBOXED, sandbox(Tier.UNSANDBOXED).command, sandbox(Tier.UNSANDBOXED).environment
    )
    killer = ProgramTask(Mode.STRICT, name, "import os\nos.kill(os.getppid(), 9)")
    good = ProgramTask(Mode.STRICT, name, source)
    outcomes = run_programs(
        [killer, good], ExecutionConfig(index, mortal, 1), ResultJournal(tmp_path / "j"), quiet
    )
    assert outcomes[killer].reason is Reason.SANDBOX_LOST
    assert outcomes[good].passed


def test_each_sandbox_of_the_machine_has_a_user_of_its_own(monkeypatch: pytest.MonkeyPatch):
    """Those of another process too, whose turn begins with the same user; when it ends they are free."""
    from harness.grading.sandbox import users

    lock = f"\0test-{secrets.token_hex(8)}-{{}}"  # no user of this machine is taken
    take = f"""
import contextlib, itertools, os, sys
from harness.grading.sandbox import users
os.geteuid, users._turn, users._LOCK = lambda: 0, itertools.count(5), {lock!r}
with contextlib.ExitStack() as held:
    print(*(held.enter_context(users.own_user()) for _ in range(400)), flush=True)
    sys.stdin.read()
"""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(users, "_turn", itertools.count(5))
    monkeypatch.setattr(users, "_LOCK", lock)
    monkeypatch.setattr(users, "_FURTHER", range(61_184, 61_384))
    child = subprocess.Popen(
        [sys.executable, "-c", take], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child as other, contextlib.ExitStack() as held:
        assert other.stdout
        theirs = set(map(int, other.stdout.readline().split()))
        ours = {held.enter_context(users.own_user()) for _ in range(406)}
        assert (len(theirs), len(ours), len(ours | theirs)) == (400, 406, 806)
        with pytest.raises(GradingError, match="all 806 user"):
            held.enter_context(users.own_user())
        other.kill()
        other.wait(PATIENCE_S)
        assert {held.enter_context(users.own_user()) for _ in range(400)} == theirs
