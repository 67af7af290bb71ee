"""Waiting for a core and the machine's load, from /proc."""

import os

import pytest

from sut.supervisor.machine_load import busy_ns, machine_row, waited_ns


@pytest.fixture
def proc(tmp_path):
    for task, text in ((7, "900 40 3"), (8, "100 2 1")):
        (tmp_path / f"7/task/{task}").mkdir(parents=True)
        (tmp_path / f"7/task/{task}/schedstat").write_text(text)
    (tmp_path / "stat").write_text("cpu  100 10 30 9999 7777 1 2 3 50 0\ncpu0 1 1 1 1\n")
    return tmp_path


def test_the_sum_over_threads(proc):
    assert waited_ns(7, proc) == 42


def test_busy_is_neither_idle_nor_waiting_for_disks_nor_guests_twice(proc):
    assert busy_ns(proc) == 146 * 10**9 // os.sysconf("SC_CLK_TCK")


def test_what_is_not_known_is_zero(tmp_path):
    assert (waited_ns(7, tmp_path), busy_ns(tmp_path)) == (0, 0)
    (tmp_path / "7/task/7").mkdir(parents=True)
    (tmp_path / "7/task/7/schedstat").write_text("garbage")
    (tmp_path / "stat").write_text("cpu x")
    assert (waited_ns(7, tmp_path), busy_ns(tmp_path)) == (0, 0)


def test_of_this_machine():
    before = waited_ns(os.getpid())
    busy, own, none = machine_row([os.getpid(), None])
    assert busy > 0 and own >= before and none == 0
