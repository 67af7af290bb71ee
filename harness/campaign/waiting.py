"""Waiting for the first of several processes to end."""

import os
import select
import subprocess
from collections.abc import Sequence


def first_to_end(processes: "Sequence[subprocess.Popen[bytes]]") -> "subprocess.Popen[bytes]":
    """Wait until one of the processes ends; the first counts where several have."""
    poller = select.poll()
    descriptors = [os.pidfd_open(process.pid) for process in processes]
    try:
        for descriptor in descriptors:
            poller.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poller.poll()}
        pairs = zip(processes, descriptors, strict=True)
        return next(process for process, descriptor in pairs if descriptor in ready)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a program in order; what it still says stays on the terminal.

    By SIGTERM: SIGINT shows a traceback of a Python that has only begun to start.
    """
    if process.poll() is None:
        process.terminate()
    process.wait()
