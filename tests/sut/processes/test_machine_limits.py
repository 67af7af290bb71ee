"""Open files and local ports: refused before the run, with the remedy."""

import resource

import pytest

from harness.errors import ConfigError
from sut.processes import machine_limits as module
from sut.processes.machine_limits import (
    MachineLimits,
    check_workers,
    hard_descriptor_limit,
    local_ports,
    machine_limits,
    raise_descriptor_limit,
)

LIMITS = MachineLimits(descriptors=20_000, ports=28_232)


@pytest.mark.parametrize(
    ("in_flight", "workers", "pairs"), [(19_936, 1, 1), (39_872, 2, 2), (28_232, 8, 1), (56_464, 8, 2)]
)
def test_fits(in_flight, workers, pairs):
    assert not list(LIMITS.shortages(in_flight, workers, pairs))
    assert LIMITS.max_connections(workers, pairs) >= in_flight


@pytest.mark.parametrize(
    ("in_flight", "workers", "pairs", "message"),
    [
        (19_937, 1, 1, "in each of 1 worker, the limit is 20000; raise it (ulimit -n 20001), or"),
        (
            28_233,
            8,
            1,
            "28233 connections between two addresses need as many local ports, the system has 28232",
        ),
        (60_000, 8, 2, "30000 connections between two addresses"),
    ],
)
def test_refused_with_the_remedy(in_flight, workers, pairs, message):
    assert LIMITS.max_connections(workers, pairs) < in_flight
    assert message in next(LIMITS.shortages(in_flight, workers, pairs))


@pytest.mark.parametrize(
    ("at_once", "backlog", "named"),
    [(256, 4096, False), (4096, 4096, False), (4097, 4096, True), (256, 128, True), (9999, None, False)],
)
def test_a_short_backlog_is_a_doubt_with_the_remedy(at_once, backlog, named):
    found = list(MachineLimits(20_000, None, backlog).backlog_shortages(at_once))
    assert len(found) == named
    if named:
        assert f"{at_once} connections are opened at once" in found[0]
        assert f"sysctl -w net.core.somaxconn={max(4096, at_once)}" in found[0]


def test_files_of_another_form_are_no_limits(tmp_path, monkeypatch):
    """As where a container has something of its own in their place; a run ended with a traceback."""
    path = tmp_path / "file"
    path.write_text("not known\n")
    for name in ("_MOST_OPEN", "_PORT_RANGE", "_SOMAXCONN"):
        monkeypatch.setattr(module, name, path)
    found = machine_limits()
    assert (found.ports, found.backlog, found.descriptors > 0) == (None, None, True)


def test_unknown_ports_are_no_reason():
    assert not list(MachineLimits(20_000, None).shortages(60_000, 8, 1))


def test_this_machine():
    assert machine_limits().descriptors >= resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert local_ports() is None or 1 <= local_ports() <= 65_535
    assert machine_limits().backlog is None or machine_limits().backlog >= 1


def test_the_limit_is_raised_as_far_as_it_goes():
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)[0], hard_descriptor_limit()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_workers_asked_for_raise_the_soft_limit_and_are_refused_beyond_the_hard_one():
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)[0], hard_descriptor_limit()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        check_workers(48, "as asked", asked=True)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (304, hard)
        with pytest.raises(ConfigError, match=rf"raise it \(ulimit -n {5 * hard + 64}\)"):
            check_workers(hard, "as asked", asked=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_fewer_workers_than_were_chosen_are_no_remedy(monkeypatch):
    """Theirs would be too many connections: the next line asked for more workers."""
    monkeypatch.setattr("sut.processes.machine_limits.hard_descriptor_limit", lambda: 100)
    for asked, words in ((False, "less"), (True, "fewer --num-workers or less")):
        with pytest.raises(ConfigError, match=rf"\(ulimit -n 759\), or use {words} --max-concurrency$"):
            check_workers(139, "with 100 open files each", asked=asked)


def test_fewer_than_one_worker_is_no_remedy(monkeypatch):
    monkeypatch.setattr("sut.processes.machine_limits.hard_descriptor_limit", lambda: 64)
    with pytest.raises(ConfigError, match=r"for 1 worker \(as asked\), the limit is 64; .*ulimit -n 69\)$"):
        check_workers(1, "as asked", asked=True)


@pytest.mark.parametrize("hard", [resource.RLIM_INFINITY, 2_000_000])
def test_the_kernel_has_a_limit_below_the_hard_one(hard, tmp_path, monkeypatch):
    """Where fs.nr_open was lowered since. setrlimit(2) then refuses also the hard limit that is in force."""
    limits, most = [256, hard], 1_000_000

    def setrlimit(which, pair):
        if pair[1] == resource.RLIM_INFINITY or pair[1] > most:
            raise ValueError("not allowed to raise maximum limit")
        limits[:] = pair

    (tmp_path / "nr_open").write_text(f"{most}\n")
    monkeypatch.setattr("sut.processes.machine_limits._MOST_OPEN", tmp_path / "nr_open")
    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    with pytest.raises(ConfigError, match="the limit is 1000000;"):
        check_workers(most, "as asked", asked=True)
    check_workers(48, "as asked", asked=True)
    assert limits == [304, most]
    raise_descriptor_limit()
    assert limits == [most, most]


@pytest.mark.parametrize(("hard", "limit"), [(2_000_000, 2_000_000), (resource.RLIM_INFINITY, 1 << 20)])
def test_a_container_may_hide_the_limit_of_the_kernel(hard, limit, tmp_path, monkeypatch):
    """Without any other, it is the one that kernels begin with."""
    monkeypatch.setattr("sut.processes.machine_limits._MOST_OPEN", tmp_path / "nr_open")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, hard))
    assert hard_descriptor_limit() == limit
