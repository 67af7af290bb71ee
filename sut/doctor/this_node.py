"""Memory, files, ports, cores, clock and disk of this machine, read without any right of root."""

import ctypes
import os
import re
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.analysis.verdict import CLOCK_PART
from harness.errors import refused
from harness.files import wait_for_disk
from harness.machine import container_memory, free_bytes, machine_memory, text_of
from harness.text import counted, duration
from sut.client.transport import slewed_ns
from sut.doctor.finding import Finding, Level, from_line, ok
from sut.processes.machine_limits import SPARE_DESCRIPTORS, MachineLimits, descriptors_for
from sut.supervisor.placement import PIN_FROM_CORES, Load, Machine, choose

_GIB = 1 << 30
# A run of 512 GPUs takes less than 4 GiB with its dataset and its page (docs/design/performance.md).
_ENOUGH_MEMORY, _LEAST_MEMORY = 4 * _GIB, _GIB
# NCCL and the engines' processes exchange tensors there; docker's default of 64 MiB is the usual fault.
_ENOUGH_SHM = _GIB
_ENOUGH_DISK, _LEAST_DISK = 4 * _GIB, _GIB // 2
_DISK_BYTES = 32 << 20
_SLOW_DISK = 20e6  # bytes a second; a journal of 512 GPUs writes about a tenth
_FEW_STREAMS = 1024  # in flight at a node of eight GPUs
_STEP_NS = 1_000_000  # the clock of a machine in order is moved by less at once
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronized
_MOST_BUSY = 0.5  # part of the cores


class Folders(msgspec.Struct, frozen=True):
    """Where Linux says what it has; others in tests."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    shm: Path = Path("/dev/shm")


def memory_finding(at: Folders) -> Finding:
    """Memory that is free, within the container's limit."""
    if (machine := machine_memory(at.proc)) is None:
        return Finding("warning", "memory", "the kernel does not say how much is free", "look at free -g")
    free = min([machine, *container_memory(at.sys, at.proc)])
    where = " in this container or job" if free < machine else ""
    text = f"{free / _GIB:.1f} GiB free{where}"
    if free >= _ENOUGH_MEMORY:
        return ok("memory", text)
    level: Level = "error" if free < _LEAST_MEMORY else "warning"
    return Finding(level, "memory", f"{text}, a run takes up to {_ENOUGH_MEMORY // _GIB}", "free some")


def shm_finding(at: Folders) -> Finding:
    """Shared memory for servers on this machine; this client needs none."""
    remedy = "start the server's container with --ipc=host or --shm-size 16g"
    try:
        free = free_bytes(at.shm)
    except OSError:
        return Finding(
            "warning", "/dev/shm", "not there: servers on several GPUs of this machine fail", remedy
        )
    text = f"{free / _GIB:.1f} GiB free"
    if free >= _ENOUGH_SHM:
        return ok("/dev/shm", text)
    return Finding("warning", "/dev/shm", f"{text}: servers on several GPUs of this machine may fail", remedy)


def files_finding(machine: Machine, in_flight: int | None, *, server_here: bool) -> Finding:
    """Open files of a process, with the workers that a run takes for these requests."""
    asked, limit = in_flight or _FEW_STREAMS, machine.descriptors
    workers = choose(machine, Load(open_at_most=asked), None, server_here=server_here).workers
    needed = max(-(-asked // workers) + SPARE_DESCRIPTORS, descriptors_for(workers))
    text = f"{limit} for each process"
    if needed <= limit:
        return ok("open files", text)
    level: Level = "error" if in_flight or limit <= SPARE_DESCRIPTORS else "warning"
    text += f"; {asked} requests in flight need {needed} with {counted(workers, 'worker')}"
    return Finding(level, "open files", text, f"raise it: ulimit -n {needed}, or LimitNOFILE of the service")


def ports_finding(limits: MachineLimits, in_flight: int | None, pairs: int) -> Finding:
    """Local ports between two addresses; ``pairs`` of them lead to the servers, 0: none are named."""
    if limits.ports is None:
        return Finding("warning", "local ports", "their range is not known", "look at ip_local_port_range")
    wrong = next(limits.port_shortages(-(-(in_flight or _FEW_STREAMS) // max(pairs, 1))), "")
    if not wrong:
        return ok("local ports", f"{limits.ports} to each server address")
    return from_line("error" if in_flight and pairs else "warning", "local ports", wrong)


def queue_findings(limits: MachineLimits, in_flight: int | None, servers: int) -> Iterator[Finding]:
    """The queue of new connections of a server on this machine."""
    if limits.backlog is None:
        return
    asked = -(-(in_flight or _FEW_STREAMS) // max(servers, 1))
    if wrong := next(limits.backlog_shortages(min(asked, _FEW_STREAMS)), ""):
        yield from_line("warning", "connection queue", wrong)
    else:
        yield ok("connection queue", f"{limits.backlog} (somaxconn)")


def cores_findings(machine: Machine, at: Folders) -> Iterator[Finding]:
    """Cores for the client, what else runs on them, and their governor."""
    cores, quota = len(machine.cores), machine.quota
    allowed = cores if quota is None else min(cores, quota)
    text = f"{cores} physical{'' if quota is None else f', {quota:g} by the quota of the container or job'}"
    if allowed < 2:
        remedy = "give the client two cores of its own; load that it cannot keep up with is named by each run"
        yield Finding("warning", "cores", f"{text}: LoadGen and a worker share one", remedy)
    else:
        why = f"below {PIN_FROM_CORES}" if quota is None else "under a quota"
        is_pinned = quota is None and cores >= PIN_FROM_CORES
        yield ok("cores", text if is_pinned else f"{text}; nothing is pinned {why}")
    busy = re.match(r"[0-9]+\.[0-9]+", text_of(at.proc / "loadavg"))
    if busy and float(busy[0]) > max(1.0, _MOST_BUSY * cores):
        yield Finding(
            "warning",
            "load",
            f"{busy[0]} processes run on {cores} cores now",
            "end them, or measure elsewhere",
        )
    governors = {
        text_of(path) for path in (at.sys / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    }
    if "powersave" in governors and text_of(at.sys / "devices/system/cpu/intel_pstate/status") != "active":
        yield Finding(
            "warning",
            "CPU clock",
            "the powersave governor keeps it low",
            "cpupower frequency-set -g performance",
        )


def processor_time_findings(limit_s: int) -> Iterator[Finding]:
    """A limit on the CPU time of a process, as login nodes have: the kernel ends it there (setrlimit(2))."""
    if limit_s != resource.RLIM_INFINITY:
        text = f"a process is ended after {duration(limit_s)} of it; a busy worker uses an hour in each hour"
        yield Finding("warning", "CPU time", text, "ulimit -t unlimited, or use a node for long jobs")


def huge_pages_finding(at: Folders) -> Finding:
    """Only told: no engine of the guide needs a setting."""
    chosen = text_of(at.sys / "kernel/mm/transparent_hugepage/enabled")
    named = chosen.partition("[")[2].partition("]")[0] or "not known"
    return ok("huge pages", f"transparent: {named}")


# -- the clock


class ClockReading(msgspec.Struct, frozen=True):
    """The two clocks at one moment, in ns, and how far they were slewed by then."""

    wall_ns: int
    steady_ns: int
    slewed_ns: int

    @classmethod
    def now(cls) -> "ClockReading":
        """As close together as two calls are."""
        return cls(time.time_ns(), time.monotonic_ns(), slewed_ns())


def clock_findings(before: ClockReading, after: ClockReading, state: int | None) -> Iterator[Finding]:
    """Whether the wall clock was set or corrected in between, and is kept in time.

    ``state`` is what adjtimex(2) returns. LoadGen takes its times from the wall clock, and issues nothing for
    as long as a step back was.
    """
    step = (after.wall_ns - before.wall_ns) - (after.steady_ns - before.steady_ns)
    seconds = (after.steady_ns - before.steady_ns) / 1e9
    keep = "let chrony or ntpd keep it in time, with steps at its start only (makestep 1 3)"
    if abs(step) > _STEP_NS:
        text = f"the wall clock was set by {step / 1e6:+.1f} ms within {seconds:.1f} s"
        yield Finding("warning", "clock", text, keep)
    slewed = (after.slewed_ns - before.slewed_ns) / 1e9
    if moved := abs(slewed) > CLOCK_PART * seconds:
        how = f"{abs(slewed) * 1000:.1f} ms {'fast' if slewed > 0 else 'slow'} within {seconds:.1f} s"
        text = f"the clocks ran {how}, as where their error is corrected: no run would be VALID"
        yield Finding("warning", "clock", text, "wait until chronyc tracking shows none, or chronyc makestep")
    if state == _TIME_ERROR:
        yield Finding("warning", "clock", "the kernel says that it is not synchronized", keep)
    elif abs(step) <= _STEP_NS and not moved:
        how = "not known whether it is synchronized" if state is None else "synchronized"
        yield ok("clock", f"{how}; not set within {seconds:.1f} s")


def clock_state() -> int | None:
    """What adjtimex(2) returns for a question; None where a container does not allow it."""
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state


# -- the disk


def disk_findings(folder: Path) -> Iterator[Finding]:
    """Room for logs in the folder of runs, and how fast they are written there."""
    place = folder.absolute()
    try:
        place = next(path for path in (place, *place.parents) if path.exists())
        free = free_bytes(place)
        speed = _written_per_s(place)
    except OSError as error:
        why = refused(error, "name a folder that can be written: --results DIR")
        yield from_line("error", "disk", f"{place}: {why}")
        return
    text = f"{place}: {free / _GIB:.1f} GiB free, {speed / 1e6:.0f} MB/s"
    if free < _ENOUGH_DISK:
        level: Level = "error" if free < _LEAST_DISK else "warning"
        yield Finding(
            level, "disk", f"{text}; runs of a submission take up to 4", "free some, or --results DIR"
        )
    elif speed < _SLOW_DISK:
        yield Finding(
            "warning", "disk", f"{text}: journals may fall behind", "use a local disk: --results DIR"
        )
    else:
        yield ok("disk", text)


def _written_per_s(folder: Path) -> float:
    data = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        began = time.monotonic()
        for _ in range(_DISK_BYTES // len(data)):
            file.write(data)
        wait_for_disk(file.fileno())
        return _DISK_BYTES / (time.monotonic() - began)
