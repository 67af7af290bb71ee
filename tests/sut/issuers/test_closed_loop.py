"""The number of requests in flight, as a worker counts them that answers when told."""

import socket
import threading
from contextlib import suppress
from multiprocessing import Pipe

import pytest

from sut.ipc.counters import CounterBoard
from sut.ipc.messages import ASSIGNMENT_STRUCT, COMPLETE, FIRST, TokenMessageWriter
from sut.issuers.closed_loop import InFlightLoop, Rise
from sut.issuers.loop import IssuingProcess
from tests.kit import PATIENCE_S, wait_until

SAMPLES = 5


@pytest.mark.parametrize(
    ("rise", "times"),
    [
        (Rise(0, 8, 4, 100), {100: 0, 101: 2, 103.9: 7, 104: 8, 200: 8}),
        (Rise(8, 32, 0, 100), {100: 32}),
        (Rise(8, 4, 10, 100), {100: 4}),  # a fall needs no time: requests end one by one
    ],
)
def test_a_rise(rise, times):
    assert {now: rise.at(now) for now in times} == times


@pytest.mark.parametrize(("start", "end", "pause"), [(0, 8, 0.5), (8, 12, 1.0), (12, 12, None)])
def test_the_requests_of_a_rise_come_evenly(start, end, pause):
    rise = Rise(start, end, 4, 100)
    assert (rise.pause(100), rise.pause(104)) == (pause, None)


class Loop:
    """The loop in a thread, with workers that this thread plays."""

    def __init__(self):
        pairs = [socket.socketpair() for _ in range(2)]
        self.workers = [pair[1] for pair in pairs]
        self.control, theirs = Pipe()
        self.control.send(("run", [0] * 2))
        process = IssuingProcess([pair[0] for pair in pairs], CounterBoard(1).row(0), theirs)
        self.loop = InFlightLoop(SAMPLES, process)
        self.thread = threading.Thread(target=self.loop.run, daemon=True)
        self.thread.start()
        self.held = [[] for _ in self.workers]  # (query id, sample) of each worker
        for worker in self.workers:
            worker.setblocking(False)

    def set(self, requests, seconds=0.0):
        self.control.send(("concurrency", (requests, seconds)))

    def followed(self, requests):
        """Wait until the loop has read the command, which has no order with what the workers send."""
        wait_until(lambda: self.loop._rise.end == requests)

    def take(self, count):
        """Wait until the workers have got ``count`` more queries."""
        wanted = sum(map(len, self.held)) + count
        wait_until(lambda: self._held() >= wanted)
        assert self._held() == wanted

    def _held(self):
        for held, worker in zip(self.held, self.workers, strict=True):
            with suppress(BlockingIOError):
                held += [one[:2] for one in ASSIGNMENT_STRUCT.iter_unpack(worker.recv(1 << 16))]
        return sum(map(len, self.held))

    def answer(self, worker, count):
        """End the oldest queries of a worker."""
        writer = TokenMessageWriter(self.workers[worker])
        for _ in range(count):
            number, _ = self.held[worker].pop(0)
            writer.add(number, FIRST, 1, b"\x01\x00\x00\x00")
            writer.add(number, COMPLETE, 2, b"\x01\x00\x00\x00")
        assert writer.flush()


@pytest.fixture
def loop():
    """Ended by its workers: the end of the pipe would end this process."""
    made = Loop()
    yield made
    for worker in made.workers:
        worker.close()
    made.thread.join(PATIENCE_S)
    assert not made.thread.is_alive()


def test_what_ends_is_replaced_and_the_number_follows_commands(loop):
    loop.set(6)
    loop.take(6)
    assert [len(held) for held in loop.held] == [3, 3]
    first = sorted(one for held in loop.held for one in held)
    assert first == [(number, number % SAMPLES) for number in range(6)]
    loop.answer(0, 2)
    loop.answer(1, 1)
    loop.take(3)
    assert [len(held) for held in loop.held] == [3, 3]  # to where there is room
    loop.set(10, seconds=0.05)
    loop.take(4)
    loop.set(7)
    loop.followed(7)
    loop.answer(0, 4)  # three too many, so one is replaced
    loop.take(1)
    seen = {number for held in loop.held for number, _ in held}
    assert max(seen) == 13 and len(seen) == 7
    assert not loop.loop.commanded("abort", None)


def test_a_worker_that_dies_is_replaced_by_the_others_and_the_last_ends_it(loop):
    loop.set(4)
    loop.take(4)
    loop.workers[0].close()
    lost = loop.held.pop(0)
    del loop.workers[0]
    loop.take(2)
    assert len(loop.held[0]) == 4
    loop.workers[0].close()
    assert loop.control.poll(PATIENCE_S)
    word, (gone, _) = loop.control.recv()
    assert word == "done"
    assert {number for number, _ in lost} | {number for number, _ in loop.held[0]} == {n for n, _ in gone}
