"""Memory that is free on this machine and in its container."""

import contextlib
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
