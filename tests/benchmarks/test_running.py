"""A client's program, watched from outside."""

import os
import sys
from itertools import pairwise

from benchmarks.peers import running

# A child that has used its CPU time and is not waited for, as a worker whose run is being written.
PROGRAM = """
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
if not os.fork():
    while sum(os.times()[:2]) < 0.3:
        pass
    os._exit(0)
signal.sigwait([signal.SIGCHLD])
time.sleep(0.5)
os.wait()
time.sleep(0.5)
"""


def test_the_cpu_time_of_a_program_never_falls(tmp_path):
    ended = running.run([sys.executable, "-c", PROGRAM], tmp_path, 60.0, os.getpid())
    seconds = [used for _, used in ended.samples]
    assert all(later > earlier - 0.05 for earlier, later in pairwise(seconds))  # the kernel counts in 0.01 s
    assert seconds[-1] >= 0.25
    assert ended.code == 0 and ended.cpu_s >= seconds[-1]
