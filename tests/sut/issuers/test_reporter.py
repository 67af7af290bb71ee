"""The dispatcher and the reporter against the real LoadGen, with workers that misbehave in every way.

LoadGen crashes of unknown ids and hangs for ever on a query that is never completed, so each test runs in a
process of its own: it must end by itself, and what LoadGen logged is the verdict.
"""

import json
import multiprocessing
import socket
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pytest

from sut.ipc.counters import Counter, CounterBoard
from sut.ipc.messages import COMPLETE, FAILED, FIRST, TokenMessage
from sut.issuers import loadgen as issuing
from sut.issuers.dispatcher import Dispatcher, WorkerChannel
from sut.issuers.reporter import Reporter
from sut.loadgen import binding
from tests.sut.issuers.strange_workers import ARRIVED_NS, SAMPLES, WORKERS, loadgen_child, output_ids

END_S = 120
USER_CONF = """
*.*.min_duration = 0
*.*.min_query_count = 12
*.Server.target_qps = 400
*.Offline.target_qps = 10
*.SingleStream.target_latency = 1
"""


def test_what_is_issued_after_the_end_is_not_lost():
    """A test that ends early hangs up on its workers; LoadGen issues queries until its process is gone."""
    ours, theirs = socket.socketpair()
    channel = WorkerChannel(ours, 0)
    counters = CounterBoard(1).row(0)
    reporter = Reporter(counters, first_tokens=True)
    dispatcher = Dispatcher([channel], counters, reporter.lose)
    reporter.stopping = True
    ours.shutdown(socket.SHUT_WR)
    for query in range(3):
        dispatcher.issue([query], [query])
    assert not channel.alive
    assert reporter.lost == []
    theirs.close()


@pytest.mark.parametrize(("late_part", "late"), [(0.01, 1), (0.0, 0)])
def test_a_first_token_is_late_after_a_part_of_the_limit(monkeypatch, late_part, late):
    """By the limit that LoadGen has, 3 s. An end may wait for the ids of its text, and is none."""
    settings = SimpleNamespace(ttft_latency=3 * 10**9)
    spec = binding.TestSpec(*("m", "Server", False, "", None, {}, None, "", 1, "", ""), late_part=late_part)
    process = SimpleNamespace(counters=CounterBoard(1).row(0))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reporter = issuing._Test(spec, settings, process, [WorkerChannel(ours, 0)])._reporter
        monkeypatch.setattr(time, "monotonic_ns", lambda: 10**9)
        came = [(FIRST, 31), (FIRST, 29), (COMPLETE, 31)]  # ms before the call
        reporter._call([], [], [TokenMessage(7, kind, 10**9 - ms * 10**6, 0, 0) for kind, ms in came])
    assert process.counters[Counter.LATE_FIRST_TOKENS] == late


@dataclass(frozen=True)
class Ending:
    """How a test ended: the reporter's ``lost``, ``calls`` and late first tokens, and LoadGen's own logs."""

    lost: list
    calls: list
    late: int
    detail: list = field(repr=False)
    accuracy: list = field(repr=False)

    def logged(self, key):
        return [row["value"] for row in self.detail if row["key"] == key]

    @property
    def all_errors(self):
        return [str(row["value"]) for row in self.detail if row["metadata"].get("is_error")]

    @property
    def errors(self):
        """But for LoadGen's comparison of clocks, which a busy machine fails over tests of milliseconds."""
        return [error for error in self.all_errors if "PerfClock and system_clock differ" not in error]

    @property
    def unanswered(self):
        """The samples whose entry is empty; each sample must have one, with its own tokens or none."""
        assert sorted(row["qsl_idx"] for row in self.accuracy) == list(range(SAMPLES))
        for row in self.accuracy:
            assert bytes.fromhex(row["data"]) in (b"", output_ids(row["qsl_idx"]))
            assert row["token_count"] == (row["qsl_idx"] + 2 if row["data"] else 0)
        return sorted(row["qsl_idx"] for row in self.accuracy if not row["data"])

    @property
    def reported(self):
        """The ids of the queries whose first token LoadGen got, of those whose answer it got, and of those
        that it was told to have failed.
        """
        found = {FIRST: [], COMPLETE: [], FAILED: []}
        for query, kind, _, _ in np.array(self.calls).reshape(-1, 4).tolist():
            found[kind].append(query)
        return sorted(found[FIRST]), sorted(found[COMPLETE]), sorted(found[FAILED])


@cache
def ending(*workers, scenario="Server", accuracy=False):
    with TemporaryDirectory() as folder:
        Path(folder, "user.conf").write_text(USER_CONF)
        context = multiprocessing.get_context("forkserver")  # clean like spawn; imports only once
        ours, theirs = context.Pipe()
        arguments = (workers, scenario, accuracy, folder, theirs)
        process = context.Process(target=loadgen_child, args=arguments, daemon=True)
        process.start()
        theirs.close()
        try:
            assert ours.poll(END_S), "LoadGen did not end"
            lost, calls, late = ours.recv()  # EOFError: it crashed
        finally:
            process.join(60)
            process.kill()
            process.join()
        assert process.exitcode == 0
        detail = Path(folder, "mlperf_log_detail.txt").read_text().splitlines()
        rows = [json.loads(line.removeprefix(":::MLLOG ")) for line in detail if line.startswith(":::MLLOG ")]
        accuracy_log = json.loads(Path(folder, "mlperf_log_accuracy.json").read_text() or "[]")
        return Ending(lost, calls, late, rows, accuracy_log)


SCENARIOS = ["Server", "Offline", "SingleStream"]


@pytest.mark.parametrize("accuracy", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_honest_workers(scenario, accuracy):
    end = ending("honest", "honest", scenario=scenario, accuracy=accuracy)
    assert (end.errors, end.lost) == ([], [])
    firsts, completes, failed = end.reported
    assert not failed
    times = np.array(end.calls).reshape(-1, 4)[:, 2:].tolist()
    assert all(arrived == ARRIVED_NS < called for arrived, called in times)
    assert end.late == len(firsts)  # none may be
    assert completes and firsts == ([] if scenario == "Offline" else completes)  # whatever the workers say
    if accuracy:
        assert end.unanswered == []
    else:
        assert end.logged("num_errors") == [len(end.all_errors)]
        assert end.logged("generated_query_count")


STRANGE_BUT_WHOLE = ["repeats first", "first after complete", "fails after complete"]
CRASHING = ["repeats complete", "knows other ids"]


@pytest.mark.parametrize(
    ("worker", "accuracy"),
    [*((worker, True) for worker in STRANGE_BUT_WHOLE + CRASHING), *((worker, False) for worker in CRASHING)],
)
def test_what_loadgen_must_not_hear_is_kept_from_it(worker, accuracy):
    """Every query was answered once, whatever else the worker said: no error, no double entry."""
    end = ending(worker, accuracy=accuracy)
    assert (end.errors, end.lost) == ([], [])
    firsts, completes, failed = end.reported
    assert not failed
    assert firsts == completes == sorted(set(completes))
    if accuracy:
        assert end.unanswered == []
        assert len(completes) == SAMPLES


def test_a_completion_without_its_first_token_does_not_crash():
    assert ending("skips first", accuracy=True).unanswered == []


@pytest.mark.parametrize("scenario", ["Server", "Offline"])
@pytest.mark.parametrize("worker", ["fails third", "fails third after first"])
def test_failed_queries_end_as_errors_without_tokens(worker, scenario):
    end = ending(worker, scenario=scenario, accuracy=True)
    assert end.lost == []
    assert len(end.unanswered) == SAMPLES / 3
    assert len(end.errors) >= len(end.unanswered)


@pytest.mark.parametrize(
    ("worker", "scenario"),
    [
        *(("fails third", scenario) for scenario in SCENARIOS),
        *(("hangs up later", scenario) for scenario in ("Server", "Offline")),
        ("fails all", "Server"),
    ],
)
def test_failed_queries_are_errors_in_a_performance_run(worker, scenario):
    end = ending(worker, scenario=scenario)
    assert end.logged("num_errors")[0] > 0
    _, completes, failed = end.reported
    assert bool(completes) == (worker != "fails all")
    assert bool(failed) == worker.startswith("fails")
    assert set(completes).isdisjoint(failed)
    assert bool(end.lost) == (worker == "hangs up later")


@pytest.mark.parametrize("worker", [name for name in WORKERS if name.startswith("hangs up")])
@pytest.mark.parametrize("scenario", ["Server", "Offline"])
def test_the_only_worker_hangs_up(worker, scenario):
    """What it held and all that comes later ends as lost, each once, and LoadGen ends."""
    end = ending(worker, scenario=scenario, accuracy=True)
    assert len(end.unanswered) == SAMPLES - (0 if worker == "hangs up at once" else 3)
    assert sorted(sample for _, sample in end.lost) == end.unanswered
    assert end.errors


@pytest.mark.parametrize("scenario", ["Server", "Offline"])
def test_one_of_two_workers_hangs_up(scenario):
    end = ending("hangs up later", "honest", scenario=scenario, accuracy=True)
    assert sorted(sample for _, sample in end.lost) == end.unanswered
    assert len(end.lost) < SAMPLES
