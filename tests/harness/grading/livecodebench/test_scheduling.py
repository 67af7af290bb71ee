"""Many programs on several workers: interruptions, time and memory limits, lost sandboxes, progress."""

import contextlib
import itertools
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.errors import GradingError
from harness.grading.livecodebench import runner
from harness.grading.livecodebench.program_journal import ResultJournal
from harness.grading.livecodebench.run_solution import ProgramResult, run_with_retry
from harness.grading.livecodebench.runner import (
    ExecutionConfig,
    ProgramTask,
    Shares,
    _outcome,
    _Worker,
    free_memory,
    run_programs,
)
from harness.grading.sandbox import users
from harness.grading.sandbox.jail import child_watch, protocol
from harness.grading.sandbox.tiers import GIB, MIB, Tier, sandbox
from harness.grading.scoring.grade import GradingMode, Reason
from tests.harness.grading.conftest import quiet
from tests.harness.grading.samples import solutions
from tests.harness.grading.sandbox.tiers import process_in
from tests.kit import PATIENCE_S, wait_until


def execution(index: Path, tier: Tier, limit_s: float = 10.0) -> ExecutionConfig:
    return ExecutionConfig(index, sandbox(tier), 2, limit_s)


@pytest.fixture
def run(index: Path, tier: Tier, tmp_path: Path):
    """Run programs with a new journal; their results, and the programs of each step."""

    def run(tasks: list[ProgramTask], limit_s: float = 10.0) -> tuple[list[ProgramResult], dict[str, int]]:
        steps: dict[str, int] = {}
        journal = ResultJournal(tmp_path / "new")
        there = execution(index, tier, limit_s)
        found = run_programs(tasks, there, journal, lambda _, total, what: steps.update({what: total}))
        return [found[task] for task in tasks], steps

    return run


def test_reference_solutions_pass_and_equal_code_runs_once(run):
    tasks = [ProgramTask(mode, name, source) for mode in GradingMode for name, source in solutions().items()]
    results, steps = run(tasks * 3)
    assert {result.reason for result in results} == {Reason.CORRECT}
    assert steps["solutions"] == len(tasks)


@pytest.mark.engine
def test_an_interrupted_grading_resumes(index: Path, tier: Tier, tmp_path: Path):
    tasks = [ProgramTask(GradingMode.STRICT, name, source) for name, source in solutions().items()]
    hang = ProgramTask(GradingMode.STRICT, tasks[0].question_id, "while True: pass")
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
    left: set[int] = set()
    results = run_programs(tasks, there, again, lambda done, total, what: left.add(total))
    assert all(result.passed for result in results.values())
    assert max(left) <= len(tasks) - 2


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The code of every program that is run, each time."""
    codes: list[str] = []

    def outcome(task: ProgramTask, *rest: Any) -> ProgramResult:
        codes.append(task.code)
        return _outcome(task, *rest)

    monkeypatch.setattr(runner, "_outcome", outcome)
    return codes


@pytest.mark.engine
def test_a_program_at_its_time_limit_fails_at_once(run, tried: list[str]):
    name = next(iter(solutions()))
    codes = ["import time\ntime.sleep(99)", "while True: pass", "import threading\nthreading.Event().wait()"]
    results, _ = run([ProgramTask(mode, name, code) for mode in GradingMode for code in codes], 0.2)
    assert {result.reason for result in results} == {Reason.TIMEOUT}
    assert len(tried) == len(results)


def test_a_program_that_was_refused_a_thread_is_tried_again(run, tried: list[str]):
    """Where the grader is not root, and has no namespaces, all sandboxes share the threads of its user."""
    refused = 'raise RuntimeError("can\'t start new thread")'
    (result,), _ = run([ProgramTask(GradingMode.STRICT, next(iter(solutions())), refused)])
    assert (result.reason, len(tried)) == (Reason.THREAD_LIMIT, 2)


@pytest.mark.engine
def test_programs_that_need_more_memory_have_it_one_after_the_other(
    run, tried: list[str], monkeypatch: pytest.MonkeyPatch
):
    name = "sample-mirror-steps"  # has the fewest tests
    source = solutions()[name]
    kept = "import time\nx = bytes(range(256)) * (3 << 18)\ntime.sleep(0.5)"  # long enough to be looked at
    killer = "import os\nos.kill(os.getppid(), 9)\nos.abort()"
    tasks = [
        ProgramTask(mode, name, code)
        for mode in GradingMode
        for code in (f"{kept}\n{source}", source, killer)
    ]
    monkeypatch.setattr(runner, "free_memory", lambda: 256 * MIB)
    less, large = _Worker._less_memory, list[bool]()

    def less_memory(self: _Worker) -> None:
        large.append(self._is_large)
        less(self)

    monkeypatch.setattr(_Worker, "_less_memory", less_memory)
    results, _ = run(tasks, 60.0)
    assert [result.passed for result in results] == [True, True, False] * 2
    assert (sum(large), len(tried)) == (2, len(tasks))


@pytest.mark.engine
def test_a_program_that_waits_for_memory_has_its_time_afterwards(tier: Tier):
    """Stopped for longer than its limit."""
    filled = "x = bytes(range(256)) * (1 << 20)\nimport time\ntime.sleep(0.5)\nprint(len(x) >> 20)"
    asked: list[float] = []

    def more_memory() -> None:
        asked.append(time.monotonic())
        time.sleep(2.0)

    with process_in(tier, 2 * GIB) as process:
        process.begin(protocol.Job("strict", "", filled))
        result = process.attempt(protocol.TestRun(1.5, "", 64 * MIB), more_memory)
    assert (result.status, result.output, len(asked)) == (protocol.OK, b"256\n", 1)


def test_no_thread_for_a_worker_is_the_error(run, monkeypatch):
    def refuse(worker: _Worker) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_Worker, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run([ProgramTask(GradingMode.STRICT, *next(iter(solutions().items())))])


def test_programs_that_wait_hold_up_no_other(index: Path, tier: Tier, tmp_path: Path):
    """They have an hour, and the only processor is for programs that compute."""
    good = [ProgramTask(GradingMode.STRICT, name, source) for name, source in solutions().items()]
    waiting = ["import time\ntime.sleep(9999)", "import threading\nthreading.Event().wait()"]
    there = ExecutionConfig(index, sandbox(tier), 1, 3600.0)
    journal = ResultJournal(tmp_path / "journal")

    def interrupt(done: int, total: int, what: str) -> None:
        if done == len(good):
            raise KeyboardInterrupt

    tasks = [ProgramTask(GradingMode.STRICT, good[0].question_id, code) for code in waiting]
    with pytest.raises(KeyboardInterrupt):
        run_programs([*tasks, *good], there, journal, interrupt)
    assert {result.reason for result in journal.known.values()} == {Reason.CORRECT}


# CPU, wall and waiting time of a test whose limit is 60 s.
TIMES = [
    ("computes", 59.9, 59.9, 0.0, protocol.OK),
    ("computes for too long", 60.0, 60.0, 0.0, protocol.TIMEOUT),
    ("sleeps", 0.0, 60.0, 0.0, protocol.TIMEOUT),
    ("shares a processor", 40.0, 80.0, 40.0, protocol.OK),
    ("shares a processor for too long", 60.0, 110.0, 50.0, protocol.TIMEOUT),
    ("computes on two processors", 60.0, 31.0, 0.0, protocol.TIMEOUT),
    ("its threads wait for each other's processors", 60.0, 40.0, 39.0, protocol.TIMEOUT),
    ("has a tenth of a processor", 11.0, 119.0, 108.0, protocol.OK),
    ("has a tenth of a processor for too long", 12.0, 120.0, 108.0, protocol.STARVED),
]


@pytest.mark.parametrize(("cpu_s", "wall_s", "waited_s", "status"), [time[1:] for time in TIMES],
                         ids=[time[0] for time in TIMES])  # fmt: skip
def test_waiting_for_a_processor_does_not_count(cpu_s: float, wall_s: float, waited_s: float, status: str):
    limits = child_watch.ProcessLimits(60.0, 256)
    assert child_watch._exceeded(limits, child_watch.Usage(threads=1), cpu_s, wall_s, waited_s) == status


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not count it")
def test_the_time_for_which_others_had_the_processor_is_the_kernels():
    busy = f"import os\nos.sched_setaffinity(0, [{min(os.sched_getaffinity(0))}])\nwhile True: pass"
    both = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(2)]
    try:
        wait_until(lambda: all(sum(child_watch._delays(one.pid).values()) > 3e8 for one in both))
    finally:
        for one in both:
            one.kill()
            one.wait(PATIENCE_S)
    assert child_watch._delays(both[0].pid) == {}


def test_a_program_that_was_starved_is_graded_again(tmp_path: Path):
    journal = ResultJournal(tmp_path / "j")
    for key, contended in (("starved", True), ("hangs", False)):
        journal.add(key, ProgramResult(Reason.TIMEOUT, 0, "", contended=contended))
    journal.close()
    again = ResultJournal(tmp_path / "j")
    assert again.known.keys() == {"hangs"}
    again.close()
    anew = ResultJournal(tmp_path / "j", restart=True)
    assert not anew.known
    anew.close()


@pytest.mark.parametrize(
    ("memory_gib", "workers", "first_gib", "large"),
    [(1000, 64, 1, 32), (132, 64, 1 / 2, 1), (16, 2, 1, 1), (8, 2, 1 / 2, 1), (1, 64, 1 / 8, 1)],
)
def test_programs_share_the_machines_memory(memory_gib: int, workers: int, first_gib: float, large: int):
    assert Shares.of(memory_gib << 30, workers) == Shares(int(first_gib * (1 << 30)), large)
    assert 0 < free_memory() < 1 << 50


def test_where_no_memory_is_known_large_programs_run_one_after_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "machine_memory", lambda: None)
    monkeypatch.setattr(runner, "container_memory", lambda: iter(()))
    assert Shares.of(free_memory(), 8).large == 1


@pytest.mark.engine
def test_a_lost_sandbox_costs_one_verdict(index: Path, tmp_path: Path):
    name, source = next(iter(solutions().items()))
    killer = ProgramTask(GradingMode.STRICT, name, "import os\nos.kill(os.getppid(), 9)")
    good = ProgramTask(GradingMode.STRICT, name, source)
    there = ExecutionConfig(index, sandbox(Tier.UNSANDBOXED), 1, 60.0)
    results = run_programs([killer, good], there, ResultJournal(tmp_path / "j"), quiet)
    assert results[killer].reason is Reason.SANDBOX_LOST
    assert results[good].passed


@pytest.mark.engine
def test_a_program_that_had_no_memory_left_is_run_again_and_never_wrong(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The kernel kills it by SIGKILL and counts that; a program that kills itself is not counted."""
    killed = ProgramTask(GradingMode.STRICT, next(iter(solutions())), "import os\nos.kill(os.getpid(), 9)")
    asked: list[bool] = []
    monkeypatch.setattr(_Worker, "_more_memory", lambda self: asked.append(True))
    there = ExecutionConfig(index, sandbox(Tier.UNSANDBOXED), 1, 60.0)
    monkeypatch.setattr(f"{run_with_retry.__module__}.memory_kills", itertools.count().__next__)
    result = run_programs([killed], there, ResultJournal(tmp_path / "j"), quiet)[killed]
    assert (result.reason, len(asked)) == (Reason.SANDBOX_LOST, 1)
    assert "want of memory" in result.detail
    monkeypatch.undo()
    again = ResultJournal(tmp_path / "j")
    assert not again.known
    assert run_programs([killed], there, again, quiet)[killed].reason is Reason.KILLED


def test_each_sandbox_of_the_machine_has_a_user_of_its_own(monkeypatch: pytest.MonkeyPatch):
    """Those of another process too, whose turn begins with the same user; when it ends they are free."""
    lock = f"\0test-{secrets.token_hex(8)}-{{}}"  # no user of this machine is taken
    take = f"""
import contextlib, itertools, os, sys
from harness.grading.sandbox import users
users.can_change_user, users._turn, users._LOCK = lambda: True, itertools.count(5), {lock!r}
with contextlib.ExitStack() as held:
    print(*(held.enter_context(users.own_user()) for _ in range(20)), flush=True)
    sys.stdin.read()
"""
    monkeypatch.setattr(users, "can_change_user", lambda: True)
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
        with pytest.raises(GradingError, match=" 40 "):
            held.enter_context(users.own_user())
        other.kill()
        other.wait(PATIENCE_S)
        assert {held.enter_context(users.own_user()) for _ in range(20)} == theirs
