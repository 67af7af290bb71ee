"""The dispatcher and the reporter against the real LoadGen, with workers that misbehave in every way.

LoadGen crashes of unknown ids and hangs for ever on a query that is never completed, so each test runs in a
process of its own: it must end by itself, and what LoadGen logged is the verdict.
"""

import json
import multiprocessing
import os
import socket
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from harness.config.scenario import needs_first_tokens
from sut.ipc.counters import CounterBoard
from sut.ipc.messages import ASSIGNMENT_STRUCT, COMPLETE, FAILED, FIRST, TOKEN_MESSAGE_STRUCT
from sut.issuers.dispatcher import Dispatcher, WorkerChannel
from sut.issuers.loop import ChannelLoop
from sut.issuers.reporter import Reporter
from sut.loadgen import binding

SAMPLES = 12
ARRIVED_NS = 5  # when a worker says that the bytes came
END_S = 120
USER_CONF = """
*.*.min_duration = 0
*.*.min_query_count = 12
*.Server.target_qps = 400
*.Offline.target_qps = 10
*.SingleStream.target_latency = 1
"""


# Workers: each is given a query and says what it answers
def output_ids(sample):
    """What sample ``sample`` is answered with: 2 to 13 tokens."""
    return np.arange(sample * 1000, sample * 1000 + sample + 2, dtype="<i4").tobytes()


def message(query, kind, tokens=b""):
    return TOKEN_MESSAGE_STRUCT.pack(query, len(tokens), kind, ARRIVED_NS) + tokens


def first(query, sample):
    return message(query, FIRST, output_ids(sample)[:4])


def complete(query, sample):
    return message(query, COMPLETE, output_ids(sample))


def honest(query, sample, turn=0):
    return first(query, sample) + complete(query, sample)


def stray(query):
    """Another query's id."""
    return query ^ (1 << 40)


# By name, for another process: the answer to a query in its turn; None: hang up.
WORKERS = {
    "honest": honest,
    "fails third": lambda q, s, turn: honest(q, s) if turn % 3 else message(q, FAILED),
    "fails third after first": lambda q, s, turn: (
        honest(q, s) if turn % 3 else first(q, s) + message(q, FAILED)
    ),
    "fails all": lambda q, s, turn: message(q, FAILED),
    "skips first": lambda q, s, turn: complete(q, s),
    "repeats first": lambda q, s, turn: first(q, s) + honest(q, s),
    "repeats complete": lambda q, s, turn: honest(q, s) + complete(q, s),
    "first after complete": lambda q, s, turn: honest(q, s) + first(q, s),
    "fails after complete": lambda q, s, turn: honest(q, s) + message(q, FAILED),
    "knows other ids": lambda q, s, turn: honest(stray(q), s) + message(7, FAILED) + honest(q, s),
    "hangs up at once": lambda q, s, turn: None,
    "hangs up later": lambda q, s, turn: honest(q, s) if turn < 3 else None,
    "hangs up after a first": lambda q, s, turn: honest(q, s) if turn < 3 else (first(q, s), None),
    "hangs up inside a message": lambda q, s, turn: honest(q, s) if turn < 3 else (honest(q, s)[:-3], None),
}


class FakeWorker(threading.Thread):
    """The far end of a channel, in a thread."""

    def __init__(self, channel, behaviour):
        super().__init__(daemon=True)
        self.channel, self.behaviour = channel, behaviour

    def run(self):
        rest, turn = b"", 0
        while data := self.channel.recv(1 << 16):
            rest += data
            while len(rest) >= ASSIGNMENT_STRUCT.size:
                query, sample, _ = ASSIGNMENT_STRUCT.unpack_from(rest)
                rest = rest[ASSIGNMENT_STRUCT.size :]
                if not self.answer(self.behaviour(query, sample, turn)):
                    return
                turn += 1
        self.channel.close()

    def answer(self, said):
        for part in said if isinstance(said, tuple) else (said,):
            if part is None:
                self.channel.close()
                return False
            self.channel.sendall(part)
        return True


def test_what_is_issued_after_the_end_is_not_lost():
    """A test that ends early hangs up on its workers; LoadGen issues queries until its process is gone."""
    ours, theirs = socket.socketpair()
    channel = WorkerChannel(ours, 0)
    reporter = Reporter(first_tokens=True)
    dispatcher = Dispatcher([channel], CounterBoard(1).row(0), reporter.lose)
    reporter.stopping = True
    ours.shutdown(socket.SHUT_WR)
    for query in range(3):
        dispatcher.issue([query], [query])
    assert not channel.alive
    assert reporter.lost == []
    theirs.close()


def loadgen_child(workers, scenario, accuracy, folder, pipe):
    """One LoadGen test; sends what the reporter recorded and leaves as the program does."""
    spec = binding.TestSpec(
        model_key="gpt-oss-120b",
        scenario=scenario,
        accuracy=accuracy,
        user_conf=f"{folder}/user.conf",
        mlperf_conf=None,
        round_settings={},
        audit_text=None,
        audit_config="",
        samples=SAMPLES,
        log_dir=folder,
        journal_dir=folder,
    )
    settings = binding.configure(spec)
    pairs = [socket.socketpair() for _ in workers]
    for (_, theirs), worker in zip(pairs, workers, strict=True):
        FakeWorker(theirs, WORKERS[worker]).start()
    channels = [WorkerChannel(ours, 0) for ours, _ in pairs]
    reporter = Reporter(first_tokens=needs_first_tokens(scenario))
    loop = ChannelLoop(channels, CounterBoard(1).row(0), reporter)
    reporting = threading.Thread(target=loop.run, daemon=True)
    reporting.start()
    binding.run_test(settings, spec, loop.dispatcher.issue, lambda indexes: None, lambda indexes: None)
    reporter.stopping = True
    loop.hang_up()
    reporting.join(90)
    assert not reporting.is_alive()
    pipe.send((reporter.lost, reporter.calls.tolist()))
    os._exit(0)


@dataclass(frozen=True)
class Ending:
    """How a test ended: the reporter's ``lost`` and ``calls``, and LoadGen's own logs."""

    lost: list
    calls: list
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
        """The ids of the queries whose first token LoadGen got, and of those whose answer it got."""
        found = {FIRST: [], COMPLETE: []}
        for query, kind, _, _ in np.array(self.calls).reshape(-1, 4).tolist():
            found[kind].append(query)
        return sorted(found[FIRST]), sorted(found[COMPLETE])


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
            lost, calls = ours.recv()  # EOFError: it crashed
        finally:
            process.join(60)
            process.kill()
            process.join()
        assert process.exitcode == 0
        detail = Path(folder, "mlperf_log_detail.txt").read_text().splitlines()
        rows = [json.loads(line.removeprefix(":::MLLOG ")) for line in detail if line.startswith(":::MLLOG ")]
        accuracy_log = json.loads(Path(folder, "mlperf_log_accuracy.json").read_text() or "[]")
        return Ending(lost, calls, rows, accuracy_log)


SCENARIOS = ["Server", "Offline", "SingleStream"]


@pytest.mark.parametrize("accuracy", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_honest_workers(scenario, accuracy):
    end = ending("honest", "honest", scenario=scenario, accuracy=accuracy)
    assert (end.errors, end.lost) == ([], [])
    firsts, completes = end.reported
    times = np.array(end.calls).reshape(-1, 4)[:, 2:].tolist()
    assert all(arrived == ARRIVED_NS < called for arrived, called in times)
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
    firsts, completes = end.reported
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
    assert bool(end.reported[1]) == bool(end.calls) == (worker != "fails all")
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
