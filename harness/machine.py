"""What this machine and its container let a process use: memory and processors."""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path


def machine_memory(proc: Path = Path("/proc")) -> int:
    """Bytes that programs of this machine may still use. Raises OSError, ValueError and KeyError."""
    fields = dict(line.split(":") for line in (proc / "meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def container_memory(sys_fs: Path = Path("/sys")) -> Iterator[int]:
    """Bytes that the control group still allows, by version 2 or 1 of its files; nothing without a limit."""
    groups = sys_fs / "fs/cgroup"
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            yield int((groups / limit).read_text()) - int((groups / used).read_text())


def cpu_quota(sys_fs: Path = Path("/sys")) -> float | None:
    """The CPU time for each second that the control group allows, by version 2 or 1; None without a limit."""
    groups = sys_fs / "fs/cgroup"
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            time, period = " ".join((groups / file).read_text() for file in files).split()
            return int(time) / int(period) if int(time) > 0 else None
    return None


def usable_cores() -> int:
    """Processors that this process may use; a quota of CPU time counts as as many as it keeps busy."""
    cores, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return cores if quota is None else min(cores, math.ceil(quota))
