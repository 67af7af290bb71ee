"""Work in processes: its order, and the end of the processes in each way that the work can end."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from harness.cli.processes import computing
from harness.errors import EXIT_INVALID, RunError
from tests.runs import ROOT

KILLED = RunError("a process was killed")
_TEXT = "x" * 200_000  # more than a pipe holds


def double(number: int) -> int:
    return 2 * number


def long_text(number: int) -> str:
    return f"{number}{_TEXT}"


def kill_at_5(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def touch(path: Path) -> None:
    (path / str(os.getpid())).touch()


@pytest.mark.engine
def test_results_are_in_order_and_each_process_begins_once(tmp_path):
    with computing(double, range(100), 2, 3, KILLED, partial(touch, tmp_path)) as results:
        assert list(results) == list(range(0, 200, 2))
    assert 1 <= len(list(tmp_path.iterdir())) <= 2
    assert multiprocessing.active_children() == []


@pytest.mark.engine
def test_a_killed_process_is_an_error_and_never_waited_for(monkeypatch):
    set_exception = Future.set_exception

    def set_late(future: Future, error: BaseException) -> None:
        set_exception(future, error)
        time.sleep(0.005)  # the error of the first is seen while the others have none

    monkeypatch.setattr(Future, "set_exception", set_late)
    with pytest.raises(RunError, match="killed"), computing(kill_at_5, range(100), 2, 2, KILLED) as results:
        list(results)
    assert multiprocessing.active_children() == []


@pytest.mark.engine
def test_an_interrupt_waits_for_no_process(monkeypatch):
    """Ctrl-C in ``endpoints check`` took 12 to 18 s on two cores. All are killed: one may hold a lock."""
    pools, processes = [], []

    class Pool(ProcessPoolExecutor):
        def __init__(self, *words) -> None:
            super().__init__(*words)
            pools.append(self)

    monkeypatch.setattr("harness.cli.processes.ProcessPoolExecutor", Pool)
    with pytest.raises(KeyboardInterrupt), computing(long_text, range(1000), 2, 1, KILLED) as results:
        assert next(results) == long_text(0)
        processes = multiprocessing.active_children()
        # Else Python 3.11.2, which leaves it open, waits forever for one to read an item of 3 MB.
        assert pools[0]._call_queue._reader.closed
        raise KeyboardInterrupt
    assert [process.exitcode for process in processes] == [-signal.SIGKILL] * len(processes) != []


WITHOUT_SEMAPHORES = """
from functools import partial
from harness.cli.processes import computing
from harness.errors import RunError

with computing(abs, [1, -2], 2, 1, RunError("killed"), partial(print, "begun")) as results:
    print(*results)
"""


@pytest.mark.parametrize("shm", ["mount -t tmpfs none /dev", "mount -t tmpfs -o ro none /dev/shm"])
def test_one_process_where_there_are_no_semaphores(shm):
    """A container may have no /dev/shm, or one that this user may not write to."""
    if subprocess.run(["unshare", "-rm", "sh", "-c", shm], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a file system (unshare -rm)")
    program = f"{shm}; exec {sys.executable} -c '{WITHOUT_SEMAPHORES}'"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "begun\n1 2\n", done.stderr
    assert "/dev/shm" in done.stderr


PARENT = """
import sys, time
from harness.cli.processes import computing
from harness.errors import RunError

if __name__ == "__main__":
    with computing(time.sleep, [3600] * 2, 2, 1, RunError("killed")) as results:
        print("started", flush=True)
        list(results)
"""


def test_processes_end_with_a_killed_parent(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    program = [sys.executable, tmp_path / "parent.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with psutil.Popen(program, env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"started\n"
        children = parent.children(recursive=True)
        parent.kill()
    assert children
    assert psutil.wait_procs(children, timeout=60)[1] == []


ALL_ENDED = """
from harness.cli.main import exit_code_of, run_main
from harness.cli.processes import computing
from harness.cli.signals import interruptible
from tests.harness.cli.test_processes import KILLED, very_long

def work():
    with interruptible(), computing(very_long, range(1000), 2, 1, KILLED) as results:
        for _ in results:
            print("result", flush=True)

if __name__ == "__main__":
    run_main(lambda _: exit_code_of("program", "info", work))
"""


def very_long(_number: int) -> bytes:
    """Written and read for most of the time."""
    return bytes(100_000_000)


def end_all(parent: psutil.Process) -> None:
    os.killpg(parent.pid, signal.SIGTERM)


def kill_one(at: int, parent: psutil.Process) -> None:
    """One of the two writes, the other waits for the lock."""
    one = [child for child in parent.children() if "spawn_main" in " ".join(child.cmdline())][at]
    parent.suspend()
    time.sleep(0.5)  # the pipe is full
    one.kill()
    parent.resume()


@pytest.mark.engine
@pytest.mark.parametrize(
    ("interrupt", "code"),
    [
        (end_all, 128 + signal.SIGTERM),
        (partial(kill_one, 0), EXIT_INVALID),
        (partial(kill_one, 1), EXIT_INVALID),
    ],
)
def test_processes_that_end_while_a_result_is_read_are_not_waited_for(tmp_path, interrupt, code):
    program = tmp_path / "program.py"
    program.write_text(ALL_ENDED)
    command, environment = [sys.executable, str(program)], os.environ | {"PYTHONPATH": str(ROOT)}
    words = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen(command, env=environment, **words) as parent:
        parent.stdout.readline()
        interrupt(psutil.Process(parent.pid))
        try:
            assert parent.wait(30) == code
        finally:
            parent.kill()
