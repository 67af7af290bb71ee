"""How child processes are started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import ROOT

PROMPT = """
import ctypes, os, threading
from pathlib import Path
from sut.processes.spawn import wake_promptly

def show():
    lines = Path("/proc/thread-self/sched").read_text().splitlines()
    slices = [line.split(":")[1].strip() for line in lines if line.startswith("se.slice")]
    print(ctypes.CDLL(None).prctl(30, 0, 0, 0, 0), os.nice(0) - begun, *slices, flush=True)

begun = os.nice(3)
wake_promptly()
thread = threading.Thread(target=show)
thread.start()
thread.join()
"""

# The signal comes when the child exists and its arguments have not been written yet; a second thread, which
# blocks nothing, takes it.
SIGNAL_DURING_START = """
import os, signal, sys, threading, time
from multiprocessing import util
from sut.processes.spawn import spawn, stop
from harness.cli.signals import InterruptedRun, interruptible, leave_on_signals

number = int(sys.argv[1])

def child(path):
    open(path, "w").write("ran")

if __name__ == "__main__":
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    plain = util.spawnv_passfds

    def with_signal(*arguments):
        pid = plain(*arguments)
        os.kill(os.getpid(), number)
        time.sleep(0.01)
        return pid

    from multiprocessing import resource_tracker
    resource_tracker.ensure_running()
    util.spawnv_passfds = with_signal
    leave_on_signals()
    try:
        with interruptible():
            spawn(child, sys.argv[2])
    except InterruptedRun as interruption:
        print("interrupted by", interruption, flush=True)
    import multiprocessing
    for process in multiprocessing.active_children():
        stop(process, 30)
    print(open(sys.argv[2]).read(), flush=True)
    os._exit(0)
"""


@pytest.mark.engine
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_start_waits_for_its_end(tmp_path, signum):
    program = tmp_path / "program.py"
    program.write_text(SIGNAL_DURING_START)
    words = [sys.executable, str(program), str(int(signum)), str(tmp_path / "ran")]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == (f"interrupted by {signum.name}\nran\n", "")


@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="the kernel does not show slices")
def test_threads_that_wake_promptly():
    """Their timers are exact (prctl's PR_GET_TIMERSLACK), nice stays as it was, slices are the shortest."""
    done = subprocess.run(
        [sys.executable, "-c", PROMPT], capture_output=True, text=True, timeout=120, cwd=ROOT, check=True
    )
    slack, change_of_nice, *slices = done.stdout.split()
    assert (slack, change_of_nice) == ("1", "0")
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 12):
        assert slices == ["100000"]
