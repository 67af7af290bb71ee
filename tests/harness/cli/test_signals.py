"""What a signal means before, during and after a run, in a small program of its own."""

import signal
import subprocess
import sys

import pytest

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
        finally:
            for _ in range(times - 1):
                os.kill(os.getpid(), number)
        ignore_signals()
        if stage == "after":
            os.kill(os.getpid(), number)
except InterruptedRun as interruption:
    print("interrupted by", interruption)
    sys.exit(interruption.exit_code)
print("whole")
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def run(stage, signum, times=1, prefix=()):
    words = [*prefix, sys.executable, "-c", PROGRAM, stage, str(int(signum)), str(times)]
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120)


@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize(
    ("stage", "times", "ends", "said"),
    [
        ("before", 1, True, "-c: ended by {}\n"),
        ("during", 1, True, "interrupted by {}\n"),
        ("during", 3, True, "interrupted by {}\n"),
        ("callback", 1, True, "interrupted by {}\n"),  # where an exception is ignored
        ("busy", 1, True, "interrupted by {}\n"),  # so that the signal is sent again while it is ignored
        ("after", 1, False, "whole\n"),
    ],
)
def test_stage(signum, stage, times, ends, said):
    done = run(stage, signum, times)
    assert done.returncode == (128 + signum if ends else 0)
    assert done.stdout + done.stderr == said.format(signum.name)


@pytest.mark.parametrize("stage", ["before", "during", "after"])
@pytest.mark.parametrize(
    ("trap", "signum"), [("HUP", signal.SIGHUP), ("INT", signal.SIGINT), ("TERM", signal.SIGTERM)]
)
def test_ignored_from_the_start_stays_ignored(stage, trap, signum):
    done = run(stage, signum, prefix=("sh", "-c", f'trap "" {trap}; exec "$@"', "sh"))
    assert (done.returncode, done.stdout) == (0, "whole\n")


CALLER = """
import signal, sys
from harness.cli.signals import interruptible, uninterrupted
number = int(sys.argv[1])
came = []
signal.signal(number, lambda *_: came.append(number))
with interruptible():
    signal.raise_signal(number)
    with uninterrupted():
        signal.raise_signal(number)
    signal.raise_signal(number)
print(len(came))
"""


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_caller_from_python_keeps_its_handlers(signum):
    """They are only silent while the result is written."""
    words = [sys.executable, "-c", CALLER, str(int(signum))]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert (done.stdout, done.stderr) == ("2\n", "")
