"""What a container lets a process use; the files are those of the kernel's two versions of control groups."""

import os

import pytest

from harness import machine
from harness.machine import cpu_quota, usable_cores

V1_QUOTA, V1_PERIOD = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"cpu.max": "200000 100000\n"}, 2.0),
        ({"cpu.max": "50000 100000"}, 0.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({V1_QUOTA: "150000\n", V1_PERIOD: "100000\n"}, 1.5),
        ({V1_QUOTA: "-1\n", V1_PERIOD: "100000\n"}, None),
        ({}, None),
    ],
)
def test_quotas(tmp_path, files, found):
    for name, text in files.items():
        path = tmp_path / "fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cpu_quota(tmp_path) == found


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (64.0, 8), (2.5, 3), (0.1, 1)])
def test_a_quota_counts_rather_than_the_cores_of_the_host(monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    assert usable_cores() == cores
