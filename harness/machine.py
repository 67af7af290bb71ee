"""What this machine and its container let a process use: memory, processors, room on disks."""

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath


def text_of(path: Path) -> str:
    """A small file of this system without blanks around it; "" where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def number_in(path: Path) -> int | None:
    """The number that a small file of this system holds; None where there is none."""
    text = text_of(path)
    return int(text) if text.isdecimal() else None


def memory_bytes(meminfo: str, name: str = "MemTotal") -> int | None:
    """A row of /proc/meminfo, which the kernel gives in KiB; None where it is missing."""
    found = re.search(rf"^{name}: +([0-9]+) kB$", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def machine_memory(proc: Path = Path("/proc")) -> int | None:
    """Bytes that programs of this machine may still use; None where the kernel does not say."""
    return memory_bytes(text_of(proc / "meminfo"), "MemAvailable")


def container_memory(sys_fs: Path = Path("/sys"), proc: Path = Path("/proc")) -> Iterator[int]:
    """Bytes that the control groups of this process still allow, one for each limit.

    The kernel counts the page cache as used, such as a model that a server has read, and gives it up at need.
    """
    for group in _control_groups("memory", sys_fs, proc):
        for limit, used, prefix in (
            ("memory.max", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                most = int((group / limit).read_text())
                yield most - max(0, int((group / used).read_text()) - _cached(group, prefix))


def free_bytes(folder: Path) -> int:
    """Room for this user on the disk, or in the memory, that holds a folder. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def memory_kills(proc: Path = Path("/proc")) -> int:
    """Processes that the kernel has killed for want of memory, of this machine or a control group of it."""
    with contextlib.suppress(OSError):
        for line in (proc / "vmstat").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def cpu_quota(sys_fs: Path = Path("/sys"), proc: Path = Path("/proc")) -> float | None:
    """The CPU time for each second that the control groups of this process allow; None without a limit."""
    quotas = []
    for group in _control_groups("cpu", sys_fs, proc):
        for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                time, period = " ".join((group / file).read_text() for file in files).split()
                quotas += [int(time) / int(period)] if int(time) > 0 else []
    return min(quotas, default=None)


def quota_periods(sys_fs: Path = Path("/sys"), proc: Path = Path("/proc")) -> dict[Path, tuple[int, int]]:
    """By control group with a quota of CPU time: its periods, and those in which it was used up."""
    found = {}
    for group in _control_groups("cpu", sys_fs, proc):
        with contextlib.suppress(OSError, KeyError, ValueError):  # not there, or without a quota
            fields = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
            found[group] = int(fields["nr_periods"]), int(fields["nr_throttled"])
    return found


def throttled_part(before: Mapping[Path, tuple[int, int]]) -> float:
    """The part of the periods since ``before`` in which a quota stopped a process of its group."""
    parts = [
        (throttled - before[group][1]) / max(periods - before[group][0], 1)
        for group, (periods, throttled) in quota_periods().items()
        if group in before
    ]
    return max(parts, default=0.0)


def _cached(group: Path, prefix: str) -> int:
    """Bytes of files in the page cache."""
    fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return sum(int(fields.get(f"{prefix}{name}_file", 0)) for name in ("inactive", "active"))


def _control_groups(controller: str, sys_fs: Path, proc: Path) -> Iterator[Path]:
    """The folders of this process's control group and of those above it, by version 2 and 1.

    A container sees its own group as the highest; a job of Slurm or a service of systemd sees the machine's.
    """
    top = sys_fs / "fs/cgroup"
    yield from (top, top / controller)
    rows = re.findall(r"^[0-9]+:([^:]*):(.*)$", text_of(proc / "self/cgroup"), re.MULTILINE)
    for controllers, path in rows:
        own = PurePosixPath(path.lstrip("/"))
        if ".." not in own.parts and (not controllers or controller in controllers.split(",")):
            above = top / controller if controllers else top
            yield from (above / part for part in (own, *own.parents) if part.parts)


def usable_cores() -> int:
    """Processors that this process may use; a quota of CPU time counts as as many as it keeps busy."""
    cores, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return cores if quota is None else min(cores, math.ceil(quota))
