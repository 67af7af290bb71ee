"""One client's program watched from outside: exit, CPU time, memory, and the load of the machine."""

import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.bench import pinned, resident_mib

_SAMPLE_S, _SAMPLES_OF_MEMORY = 0.1, 10
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Ended:
    """The end of one command. ``code`` is None for one that was killed at its time limit."""

    code: int | None = None
    output: str = ""
    cpu_s: float = 0.0
    """all its processes, from start to end"""
    peak_mib: float = 0.0
    """resident memory of all its processes together, shared pages once, looked at each second"""
    others: float = 0.0
    """cores that other programs used, the stub and this one left out, and that the hypervisor took away"""
    load_average: float = 0.0
    """before"""
    samples: list[tuple[int, float]] = field(default_factory=list)
    """(monotonic ns, CPU seconds so far)"""

    def cpu_between(self, start_ns: int, end_ns: int) -> float:
        """CPU seconds between two moments."""
        times, seconds = zip(*self.samples, strict=True)
        return float(np.diff(np.interp((start_ns, end_ns), times, seconds))[0])


def run(words: Sequence[str], folder: Path, limit_s: float, stub: int, cores: int = 1) -> Ended:
    """Run on the first ``cores`` cores. ``stub``: the process that serves it."""
    ended = Ended(load_average=os.getloadavg()[0])
    began, busy, used = time.monotonic(), _busy_s(), _children_s()
    known = _cpu_s(os.getpid()) + _cpu_s(stub)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, pinned(range(cores))),
        )
        watcher = threading.Thread(target=_watch, args=(process.pid, ended), daemon=True)
        watcher.start()
        try:
            ended.code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
        seconds = time.monotonic() - began
        watcher.join()
        output.seek(0)
        ended.output = output.read()
    ended.cpu_s = max(_children_s() - used, *(seconds for _, seconds in ended.samples[-1:]), 0.0)
    known = _cpu_s(os.getpid()) + _cpu_s(stub) - known  # the client's own time is among our children's
    ended.others = max(0.0, _busy_s() - busy - known) / seconds
    return ended


def _watch(pid: int, ended: Ended) -> None:
    """Sample the processes until the first of them has ended."""
    while not _has_ended(pid):
        family = list(_family(pid))
        with suppress(OSError, IndexError):
            ended.samples.append((time.monotonic_ns(), sum(map(_cpu_s, family))))
            if len(ended.samples) % _SAMPLES_OF_MEMORY == 0:
                ended.peak_mib = max(ended.peak_mib, resident_mib(family))
        time.sleep(_SAMPLE_S)


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _family(pid: int) -> Iterator[int]:
    """A process and all below it; also who has ended and is not waited for: nobody else has its CPU time."""
    yield pid
    try:
        children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return
    for child in (int(one) for some in children for one in some):
        yield from _family(child)


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and of those of its children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _children_s() -> float:
    """CPU seconds of all children that were waited for, to the microsecond."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _busy_s() -> float:
    """CPU seconds of the machine: user, nice, system, irq, softirq, stolen."""
    fields = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:8])) / _TICKS
