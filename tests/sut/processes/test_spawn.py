"""How child processes are started."""

import signal
import subprocess
import sys

import pytest

from tests.runs import ROOT

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


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_start_waits_for_its_end(tmp_path, signum):
    program = tmp_path / "program.py"
    program.write_text(SIGNAL_DURING_START)
    words = [sys.executable, str(program), str(int(signum)), str(tmp_path / "ran")]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env={"PYTHONPATH": str(ROOT)}, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == (f"interrupted by {signum.name}\nran\n", "")
