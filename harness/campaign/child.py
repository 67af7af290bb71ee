"""Become a program that ends when its parent dies: ``python -I child.py PARENT PROGRAM ARGUMENT...``

A campaign that is killed leaves no run behind, which would keep the servers busy beside the next one. The run
gets SIGTERM, so that it ends in order. Standard library only.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == int(sys.argv[1]):
        os.execv(sys.argv[2], sys.argv[2:])
