"""What a signal means before, during and after a run, in a small program of its own."""

import signal
import subprocess
import sys

import pytest

from harness.cli.signals import InterruptedRun, require_no_signal
from tests.runs import ROOT

PROGRAM = """
import os, signal, sys, threading, time, weakref
from harness.cli.signals import *
stage, number, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
leave_on_signals()
if stage == "before":
    os.kill(os.getpid(), number)
try:
    with interruptible():
        try:
            if stage == "during":
                os.kill(os.getpid(), number)
            if stage == "busy":
                start = threading.Thread.start
                threading.Thread.start = lambda thread: (start(thread), time.sleep(0.3))
            if stage in ("callback", "busy"):
                class Thing: pass
                thing = Thing()
                seen = weakref.ref(thing, lambda _: os.kill(os.getpid(), number))
                del thing
                time.sleep(100)
            if stage == "message":
                class Message:
                    def __del__(self):
                        raise BufferError
                message = Message()
                os.kill(os.getpid(), number)
        finally:
            for _ in range(times - 1):
                os.kill(os.getpid(), number)
            if times > 1:
                print("left in order")
        ignore_signals()
        if stage == "after":
            os.kill(os.getpid(), number)
except InterruptedRun as interruption:
    message = None
    print("interrupted by", interruption)
    sys.exit(interruption.exit_code)
print("whole")
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
INTERRUPTED = "interrupted by {}\n"
STAGES = [
    *(("before", signum, 1, "-c: ended by {}\n") for signum in SIGNALS),
    *(("during", signum, 1, INTERRUPTED) for signum in SIGNALS),
    *(("after", signum, 1, "whole\n") for signum in SIGNALS),
    ("during", signal.SIGTERM, 3, f"left in order\n{INTERRUPTED}"),
    ("callback", signal.SIGTERM, 1, INTERRUPTED),  # where an exception is ignored
    ("message", signal.SIGTERM, 1, INTERRUPTED),  # which Python 3.13 cannot close, and says so
    ("busy", signal.SIGTERM, 1, INTERRUPTED),  # so that the signal is sent again while it is ignored
]


def run(program, *words, prefix=()):
    words = [*prefix, sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120)


@pytest.mark.parametrize(("stage", "signum", "times", "said"), STAGES)
def test_stage(stage, signum, times, said):
    done = run(PROGRAM, stage, int(signum), times)
    assert done.returncode == (0 if stage == "after" else 128 + signum)
    assert done.stdout + done.stderr == said.format(signum.name)


@pytest.mark.parametrize("stage", ["before", "during"])
@pytest.mark.parametrize("signum", SIGNALS)
def test_ignored_from_the_start_stays_ignored(stage, signum):
    trap = f'trap "" {signum.name.removeprefix("SIG")}; exec "$@"'
    done = run(PROGRAM, stage, int(signum), 1, prefix=("sh", "-c", trap, "sh"))
    assert (done.returncode, done.stdout) == (0, "whole\n")


CALLER = """
import signal, sys
from harness.cli.signals import interruptible, uninterrupted
came = []
for number in map(int, sys.argv[1:]):
    signal.signal(number, lambda *_, number=number: came.append(number))
    with interruptible():
        signal.raise_signal(number)
        with uninterrupted():
            signal.raise_signal(number)
        signal.raise_signal(number)
print(*came)
"""


def test_a_caller_from_python_keeps_its_handlers():
    """They are only silent while the result is written."""
    done = run(CALLER, *map(int, SIGNALS))
    assert (done.stdout, done.stderr) == ("2 2 15 15 1 1\n", "")


KEPT = """
import signal, sys
from harness.cli.signals import *
number = int(sys.argv[1])
leave_on_signals()
try:
    with interruptible():
        for run in ("first", "second"):
            with signals_kept():
                with interruptible():
                    with uninterrupted():
                        signal.raise_signal(number)
                        print("the result of the", run)
                    signal.raise_signal(number)
except InterruptedRun as interruption:
    print("interrupted by", interruption)
    with uninterrupted():
        signal.raise_signal(number)
"""


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_at_the_end_of_a_run_ends_it_before_the_next_one(signum):
    """The points of a curve, the rates of a search and the tests of a benchmark follow each other."""
    done = run(KEPT, int(signum))
    said = f"the result of the first\ninterrupted by {signum.name}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


TWICE = """
import signal, sys
from harness.cli.signals import InterruptedRun, interruptible, leave_on_signals

def second(at):
    lines = 0
    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        if event == "line" and lines == at:
            signal.raise_signal(signal.SIGTERM)
        return trace
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    leave_on_signals()
    try:
        with interruptible():
            sys.settrace(trace)
            signal.raise_signal(signal.SIGHUP)
    except InterruptedRun:
        return lines >= at
    finally:
        sys.settrace(None)
    print("not interrupted")

at = 1
while second(at):
    at += 1
print("interrupted once, at each line")
"""


def test_a_second_signal_at_any_line_of_the_handler():
    """``timeout`` and Slurm send each signal twice, a microsecond apart."""
    done = run(TWICE)
    assert (done.stdout, done.stderr) == ("interrupted once, at each line\n", "")


def test_a_program_ends_by_the_signal_that_ended_what_it_called():
    require_no_signal(None)
    with pytest.raises(InterruptedRun) as raised:
        require_no_signal("SIGTERM")
    assert raised.value.exit_code == 143


TRACKER = """
import os, signal
from multiprocessing import resource_tracker
from harness.cli.signals import blocked_in_children

with blocked_in_children():
    first = resource_tracker._resource_tracker._pid
os.kill(first, signal.SIGKILL)
os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
with blocked_in_children():
    print(resource_tracker._resource_tracker._pid != first)
"""


def test_a_killed_resource_tracker_is_started_again_without_pythons_warning():
    """A worker is started long after LoadGen's process: Python warned of leaks in the middle of a plan."""
    done = subprocess.run([sys.executable, "-c", TRACKER], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("True\n", "")
