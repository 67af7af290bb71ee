"""How long processes of this client waited for a core, and how busy the machine was, from /proc.

The kernel counts both anyway, and the supervisor reads them: the processes themselves have no part in it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

_NS = 1_000_000_000
_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal; not idle and iowait


def waited_ns(pid: int, proc: Path = Path("/proc")) -> int:
    """Time that the threads of a process were ready to run and did not; 0 where it is not known."""
    return _of_threads(pid, 1, proc)


def cpu_ns(pid: int | None) -> int:
    """CPU time of the threads of a process; 0 where it is not known."""
    return 0 if pid is None else _of_threads(pid, 0, Path("/proc"))


def _of_threads(pid: int, column: int, proc: Path) -> int:
    total = 0
    try:
        for task in os.scandir(proc / str(pid) / "task"):
            total += int(Path(task.path, "schedstat").read_bytes().split()[column])
    except (OSError, IndexError, ValueError):  # the process has ended, or the kernel does not count it
        return total
    return total


def busy_ns(proc: Path = Path("/proc")) -> int:
    """CPU time of everything on this machine; 0 where it is not known."""
    try:
        jiffies = [int(word) for word in (proc / "stat").read_bytes().split(b"\n", 1)[0].split()[1:]]
        return sum(jiffies[column] for column in _BUSY) * _NS // os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0


def machine_row(pids: Sequence[int | None]) -> list[int]:
    """The machine's CPU time, then the waiting time of each process."""
    return [busy_ns(), *(0 if pid is None else waited_ns(pid) for pid in pids)]
