"""What a container lets a process use; the files are those of the kernel's two versions of control groups."""

import os

import pytest

from harness import machine
from harness.machine import (
    container_memory,
    cpu_quota,
    machine_memory,
    memory_kills,
    number_in,
    quota_periods,
    throttled_part,
    usable_cores,
)

V1_QUOTA, V1_PERIOD = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"
V1_MEMORY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


# As Slurm places a step by version 2 (its plugin cgroup/v2) and by version 1.
JOB = "0::/system.slice/slurmstepd.scope/job_7/step_0\n"
IN_V1 = "8:pids:/\n4:memory:/slurm/job_7\n2:cpu,cpuacct:/slurm/job_7\n0::/init.scope\n"
SLICE = "system.slice/slurmstepd.scope"


@pytest.mark.parametrize("text", ["", "not what Linux has", "MemAvailable:\n", "MemAvailable: x kB\n"])
def test_a_file_of_another_form_is_no_figure(tmp_path, text):
    """As a container that has an empty file in its place; score ended by it with a traceback."""
    for name in ("meminfo", "self/cgroup", "somaxconn"):
        path = tmp_path / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert machine_memory(tmp_path / "proc") is None
    assert not list(container_memory(tmp_path / "sys", tmp_path / "proc"))
    assert number_in(tmp_path / "proc/somaxconn") is None


@pytest.fixture
def kernel(tmp_path):
    """Write files of /sys/fs/cgroup and /proc/self/cgroup; returns the two folders."""

    def write(files, own=""):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(own)
        for name, text in files.items():
            path = tmp_path / "sys/fs/cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "sys", tmp_path / "proc"

    return write


@pytest.mark.parametrize(
    ("files", "own", "found"),
    [
        ({"cpu.max": "200000 100000\n"}, "0::/\n", 2.0),
        ({"cpu.max": "50000 100000"}, "", 0.5),
        ({"cpu.max": "max 100000\n"}, "0::/../../other\n", None),
        ({V1_QUOTA: "150000\n", V1_PERIOD: "100000\n"}, "2:cpu,cpuacct:/docker/a1\n", 1.5),
        ({V1_QUOTA: "-1\n", V1_PERIOD: "100000\n"}, "", None),
        ({}, JOB, None),
        (
            {f"{SLICE}/job_7/cpu.max": "400000 100000", f"{SLICE}/job_7/step_0/cpu.max": "max 100000"},
            JOB,
            4.0,
        ),
        ({f"{SLICE}/job_8/cpu.max": "400000 100000"}, JOB, None),
        (
            {"cpu/slurm/job_7/cpu.cfs_quota_us": "30000", "cpu/slurm/job_7/cpu.cfs_period_us": "100000"},
            IN_V1,
            0.3,
        ),
    ],
)
def test_quotas(kernel, files, own, found):
    assert cpu_quota(*kernel(files, own)) == found


GIB = 1 << 30


@pytest.mark.parametrize(
    ("folder", "own"),
    [("", "0::/\n"), (f"{SLICE}/job_7/", JOB), ("memory/", ""), ("memory/slurm/job_7/", IN_V1)],
)
def test_memory_of_a_group_counts_without_its_page_cache(kernel, folder, own):
    """A server in the same container has read its weights: the group is full, of files."""
    names = ("memory.max", "memory.current", "") if "memory/" not in folder else V1_MEMORY
    limit, used, prefix = (folder + names[0], folder + names[1], names[2])
    stat = f"cache 1\n{prefix}inactive_file {4 * GIB}\n{prefix}active_file {GIB}\n{prefix}unevictable 0\n"
    files = {limit: str(6 * GIB), used: f"{6 * GIB}\n", f"{folder}memory.stat": stat}
    assert list(container_memory(*kernel(files, own))) == [5 * GIB]


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (64.0, 8), (2.5, 3), (0.1, 1)])
def test_a_quota_counts_rather_than_the_cores_of_the_host(monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    assert usable_cores() == cores


def test_processes_that_the_kernel_killed_for_want_of_memory_are_counted(tmp_path):
    assert memory_kills(tmp_path) == 0
    (tmp_path / "vmstat").write_text("pgscan_direct_throttle 0\noom_kill 103\nnuma_hit 5\n")
    assert memory_kills(tmp_path) == 103


def test_periods_in_which_a_quota_was_used_up(kernel, monkeypatch):
    """cpu.stat of a run with a quota of 0.08 cores; the group above has no quota."""
    stat = "nr_periods 78\nnr_throttled 24\nthrottled_time 344949831\nnr_bursts 0\nburst_time 0\n"
    files = {"cpu/slurm/job_7/cpu.stat": stat, "cpu/cpu.stat": "usage_usec 5\n"}
    sys_fs, proc = kernel(files, IN_V1)
    group = sys_fs / "fs/cgroup/cpu/slurm/job_7"
    assert quota_periods(sys_fs, proc) == {group: (78, 24)}
    monkeypatch.setattr(machine, "quota_periods", lambda: quota_periods(sys_fs, proc))
    assert throttled_part({group: (38, 14)}) == 0.25
    assert throttled_part({group: (78, 24)}) == throttled_part({}) == 0.0
