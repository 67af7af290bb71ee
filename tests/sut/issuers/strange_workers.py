"""The process of a LoadGen test whose workers misbehave.

A module of its own: each such process imports it, and with a test's module pytest, 0.2 s of CPU.
"""

import os
import socket
import threading

import numpy as np

from harness.config.scenario import needs_first_tokens
from sut.ipc.counters import Counter, CounterBoard
from sut.ipc.messages import ASSIGNMENT_STRUCT, COMPLETE, FAILED, FIRST, TOKEN_MESSAGE_STRUCT
from sut.issuers.dispatcher import WorkerChannel
from sut.issuers.loop import ChannelLoop
from sut.issuers.reporter import Reporter
from sut.loadgen import binding

SAMPLES = 12
ARRIVED_NS = 5  # when a worker says that the bytes came


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
    counters = CounterBoard(1).row(0)
    reporter = Reporter(counters, first_tokens=needs_first_tokens(scenario), late_ns=0.0)
    loop = ChannelLoop(channels, counters, reporter)
    reporting = threading.Thread(target=loop.run, daemon=True)
    reporting.start()
    binding.run_test(settings, spec, loop.dispatcher.issue, lambda indexes: None, lambda indexes: None)
    reporter.stopping = True
    loop.hang_up()
    reporting.join(90)
    assert not reporting.is_alive()
    pipe.send((reporter.lost, reporter.calls.tolist(), counters[Counter.LATE_FIRST_TOKENS]))
    os._exit(0)
