"""Children that are copies of their parent: what they hold, and how they end."""

import signal
import subprocess
import sys

import pytest

from tests.runs import ROOT

PROGRAM = """
import os, signal, socket, sys, threading, time
from multiprocessing import Pipe
from pathlib import Path
from harness.cli.signals import InterruptedRun, interruptible, leave_on_signals
from sut.processes.prepared import PreparedProcess
from sut.processes.spawn import stop

def descriptors(control, channel):
    held = [one for one in Path("/proc/self/fd").iterdir() if int(one.name) > 2]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    names = [os.readlink(one) for one in held if os.path.lexists(one)]
    kinds = sorted(name.split(":")[0] for name in names if name != os.devnull)
    control.send((os.getpid(), kinds, sorted(one.name for one in blocked), channel.recv(9)))

def answer_each(control, channels):
    control.send([channel.recv(9) for channel in channels])

def wait_for(channel):
    channel.recv(1)

def ends(process):
    process.join(30)
    return process.exitcode

if __name__ == "__main__":
"""


def run(tmp_path, body: str) -> str:
    """The output of a program whose main part is ``body``."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + body)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )
    assert done.stderr == ""
    return done.stdout


def test_a_copy_holds_the_descriptors_of_its_work_and_no_other(tmp_path):
    out = run(
        tmp_path,
        """
    others = [open(__file__), *socket.socketpair(), *Pipe()]
    child = PreparedProcess()
    later, theirs = Pipe()
    ours, channel = socket.socketpair()
    ours.send(b"after")
    process = child.begin(descriptors, theirs, channel)
    print(type(process).__name__, later.recv()[1:], ends(process))
""",
    )
    # The pipes are multiprocessing's, to and from its parent.
    kinds = ["pipe", "pipe", "socket", "socket"]
    assert out == f"ForkProcess {(kinds, ['SIGHUP', 'SIGINT', 'SIGTERM'], b'after')} 0\n"


def test_the_work_may_have_more_descriptors_than_a_message(tmp_path):
    """As that of LoadGen's process, which has one of each worker."""
    out = run(
        tmp_path,
        """
    pairs = [socket.socketpair() for _ in range(300)]
    later, theirs = Pipe()
    process = PreparedProcess().begin(answer_each, theirs, [pair[1] for pair in pairs])
    for number, (ours, its) in enumerate(pairs):
        its.close()
        ours.send(b"%d" % number)
    print(later.recv() == [b"%d" % number for number in range(300)], ends(process))
""",
    )
    assert out == "True 0\n"


def test_the_end_of_a_copy_is_seen_at_its_channel_while_another_lives(tmp_path):
    out = run(
        tmp_path,
        """
    pairs = [socket.socketpair() for _ in range(2)]
    children = [PreparedProcess() for _ in pairs]
    processes = [child.begin(wait_for, pair[1]) for child, pair in zip(children, pairs)]
    for _, theirs in pairs:
        theirs.close()
    processes[0].kill()
    pairs[0][0].settimeout(60)
    print(pairs[0][0].recv(1), processes[1].is_alive())
    pairs[1][0].close()
    print(ends(processes[0]), ends(processes[1]))
""",
    )
    assert out == "b'' True\n-9 0\n"


def test_a_copy_without_work_is_dismissed(tmp_path):
    out = run(
        tmp_path,
        """
    import multiprocessing
    child = PreparedProcess()
    there = multiprocessing.active_children()
    child.dismiss()
    print(len(there), ends(there[0]))
""",
    )
    assert out == "1 0\n"


@pytest.mark.engine
def test_beside_a_thread_the_work_gets_a_fresh_interpreter(tmp_path):
    out = run(
        tmp_path,
        """
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    child = PreparedProcess()
    later, theirs = Pipe()
    ours, channel = socket.socketpair()
    ours.send(b"fresh")
    process = child.begin(descriptors, theirs, channel)
    print(type(process).__name__, later.recv()[2:], flush=True)
    process.join(60)
    os._exit(0)
""",
    )
    assert out == f"SpawnProcess {(['SIGHUP', 'SIGINT', 'SIGTERM'], b'fresh')}\n"


@pytest.mark.engine
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_copy_waits_for_its_end(tmp_path, signum):
    out = run(
        tmp_path,
        f"""
    plain, parent = os.fork, os.getpid()
    def with_signal():
        os.kill(parent, {int(signum)})
        return plain()
    os.fork = with_signal
    leave_on_signals()
    try:
        with interruptible():
            child = PreparedProcess()
            print("not reached")
    except InterruptedRun as interruption:
        print("interrupted by", interruption, flush=True)
    os._exit(0)
""",
    )
    assert out == f"interrupted by {signum.name}\n"
