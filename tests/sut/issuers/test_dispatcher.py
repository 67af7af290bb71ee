"""Queries on their way to the workers: capacity, order, balance, and workers that are gone."""

import gc
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from harness.record.outcome import FailureKind
from sut.ipc.counters import Counter, CounterBoard
from sut.ipc.messages import ASSIGNMENT_STRUCT
from sut.issuers.dispatcher import Dispatcher, WorkerChannel
from sut.issuers.loop import ChannelLoop, IssuingProcess


class Rig:
    """A dispatcher over real socket pairs; ``received`` reads what a worker got so far."""

    def __init__(self, *capacities):
        self.pairs = [socket.socketpair() for _ in capacities]
        self.channels = [
            WorkerChannel(ours, capacity) for (ours, _), capacity in zip(self.pairs, capacities, strict=True)
        ]
        self.board = CounterBoard(1)
        self.unserved = {}
        self.dispatcher = Dispatcher(self.channels, self.board.row(0), self.unserved.update)

    def issue(self, *queries):
        self.dispatcher.issue(list(queries), [query % 1000 for query in queries])

    def received(self, index):
        """(query id, sample index) of each, in order."""
        theirs = self.pairs[index][1]
        theirs.setblocking(False)
        data = b""
        try:
            while piece := theirs.recv(1 << 20):
                data += piece
        except BlockingIOError:
            pass
        return [row[:2] for row in ASSIGNMENT_STRUCT.iter_unpack(data)]

    def finish(self, index, query_id):
        del self.channels[index].outstanding[query_id]
        self.dispatcher.pump()

    def kill(self, index):
        """What the reporter does when a worker hangs up."""
        with self.dispatcher.lock:
            self.channels[index].alive = False
            self.channels[index].outstanding.clear()
        self.pairs[index][1].close()
        self.dispatcher.pump()

    def close(self):
        for pair in self.pairs:
            for end in pair:
                end.close()


@pytest.fixture
def rig():
    made = []

    def make(*capacities):
        made.append(Rig(*capacities))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_one_sample_at_a_time_goes_to_the_least_loaded(rig):
    r = rig(0, 0)
    for query in range(4):
        r.issue(query)
    assert [len(channel.outstanding) for channel in r.channels] == [2, 2]
    r.finish(1, next(iter(r.channels[1].outstanding)))
    r.issue(9)
    assert 9 in r.channels[1].outstanding
    assert sorted(r.received(0) + r.received(1)) == [(0, 0), (1, 1), (2, 2), (3, 3), (9, 9)]


@pytest.mark.parametrize("together", [1, 200])
def test_order_is_kept_with_one_worker(rig, together):
    r = rig(0)
    for query in range(0, 200, together):
        r.issue(*range(query, query + together))
    assert r.received(0) == [(query, query % 1000) for query in range(200)]
    assert r.board.totals()[Counter.ISSUED] == 200


@pytest.mark.parametrize("together", [1, 20])
def test_capacity_is_never_exceeded(rig, together):
    r = rig(3, 5)
    for query in range(0, 20, together):
        r.issue(*range(query, query + together))
    assert [len(channel.outstanding) for channel in r.channels] == [3, 5]
    order = []
    while any(channel.outstanding for channel in r.channels):
        for index, channel in enumerate(r.channels):
            assert len(channel.outstanding) <= channel.capacity
            order += [query for query, _ in r.received(index)]
            if channel.outstanding:
                r.finish(index, next(iter(channel.outstanding)))
    assert sorted(order) == list(range(20))
    assert [query for query in order if query >= 8] == list(range(8, 20))  # those that waited, in their turn


def test_sample_indexes_and_times_travel_along(rig):
    r = rig(0)
    before = time.monotonic_ns()
    r.dispatcher.issue([2**64 - 1], [6395])
    r.dispatcher.issue([5, 6], [7, 7])
    rows = list(ASSIGNMENT_STRUCT.iter_unpack(r.pairs[0][1].recv(1000)))
    assert [row[:2] for row in rows] == [(2**64 - 1, 6395), (5, 7), (6, 7)]
    assert all(before <= row[2] <= time.monotonic_ns() for row in rows)
    assert r.channels[0].outstanding == {2**64 - 1: 6395, 5: 7, 6: 7}


@pytest.mark.parametrize("queries", [(1,), (1, 2, 3)])
def test_a_worker_that_dies_unnoticed_keeps_its_query_for_the_reporter(rig, queries):
    r = rig(0)
    r.pairs[0][1].close()
    r.issue(*queries)
    assert set(r.channels[0].outstanding) == set(queries)
    assert not r.channels[0].alive
    assert not r.unserved


@pytest.mark.parametrize("queries", [(1,), (1, 2, 3)])
def test_queries_with_nobody_left_are_handed_back(rig, queries):
    r = rig(0, 0)
    r.kill(0)
    r.kill(1)
    r.issue(*queries)
    assert r.unserved == {query: query for query in queries}
    assert all(not channel.outstanding for channel in r.channels)


def test_waiting_queries_go_to_the_worker_that_is_left_and_are_handed_back_when_it_dies(rig):
    r = rig(1, 1)
    r.issue(*range(5))
    r.kill(0)
    r.finish(1, 1)
    assert r.channels[1].outstanding == {2: 2}
    assert not r.unserved
    r.kill(1)
    assert r.unserved == {3: 3, 4: 4}


def test_more_samples_in_one_query_than_the_channels_hold(rig):
    r = rig(0, 0)
    counts = [0, 0]

    def drain(index):
        while data := r.pairs[index][1].recv(1 << 20):
            counts[index] += len(data)

    threads = [threading.Thread(target=drain, args=(i,), daemon=True) for i in (0, 1)]
    ids = list(range(60_000))
    r.dispatcher.issue(ids, [i % 6396 for i in ids])
    assert all(channel.unsent for channel in r.channels)
    for thread in threads:
        thread.start()
    for channel in r.channels:
        while channel.unsent:  # the reporter's loop does this as the channel empties
            time.sleep(0.002)
            channel.send()
        channel.socket.shutdown(socket.SHUT_WR)
    for thread in threads:
        thread.join(90)
    assert sum(counts) == 60_000 * 24
    assert sorted({**r.channels[0].outstanding, **r.channels[1].outstanding}) == ids
    assert abs(counts[0] - counts[1]) <= 1024 * 24


def test_many_samples_wait_for_few_slots(rig):
    """Each freed slot takes the next sample; what waits is not copied for that."""
    r = rig(64)
    r.issue(*range(20_000))
    (waiting,) = r.dispatcher._pending
    for query in range(1000):
        r.finish(0, query)
        r.received(0)
    (still,) = r.dispatcher._pending
    assert np.shares_memory(waiting, still)
    assert list(r.channels[0].outstanding) == list(range(1000, 1064 + 16))


def test_a_limit_is_reached_before_a_worker_reads_ahead(rig):
    """Of 1 024 samples, 1 024 at once in 7 workers, 96 waited, and the last worker was two thirds empty."""
    capacities = [147, 147, 146, 146, 146, 146, 146]
    r = rig(*capacities)
    r.issue(*range(1024))
    assert [len(channel.outstanding) for channel in r.channels] == capacities


def test_the_last_samples_wait_for_whichever_worker_is_free_first(rig):
    r = rig(4, 4)
    r.issue(*range(8 + 33))  # two times 16 stay
    assert [len(channel.outstanding) for channel in r.channels] == [5, 4]
    for query in list(r.channels[1].outstanding):
        r.finish(1, query)
    assert [len(channel.outstanding) for channel in r.channels] == [5, 4]


def test_waiting_queries_are_lost_with_the_last_worker():
    """Else LoadGen would wait for them for ever."""
    ours, theirs = socket.socketpair()
    lost = {}
    answers = SimpleNamespace(lose=lambda queries, first_token_sent=(): lost.update(queries))
    loop = ChannelLoop([WorkerChannel(ours, 1)], CounterBoard(1).row(0), answers)
    loop.dispatcher.issue([1, 2, 3], [4, 5, 6])
    theirs.close()
    loop.run()
    ours.close()
    assert lost == {1: 4, 2: 5, 3: 6}


def test_a_sign_of_life_shows_what_was_lost_and_what_the_process_uses():
    board = CounterBoard(1)
    process = IssuingProcess([], board.row(0), None)
    gc.collect()
    process.sign_of_life([(7, 1), (8, 2)])
    totals = board.totals()
    assert (totals[Counter.FAILED], board.failures()) == (2, {FailureKind.WORKER_LOST: 2})
    assert 0 < totals[Counter.HEARTBEAT_NS] <= time.monotonic_ns()
    assert totals[Counter.GC_RUNS] >= 1 and totals[Counter.CPU_NS] > 0


def test_a_worker_that_does_not_read_does_not_stop_loadgen(rig):
    """A stopped or stalled worker: LoadGen's thread goes on, and so does everybody who needs the lock."""
    r = rig(0)
    issued = threading.Thread(target=lambda: [r.issue(query) for query in range(3000)], daemon=True)
    issued.start()
    issued.join(30)
    stuck = issued.is_alive()
    r.pairs[0][1].close()  # lets it go where it hangs
    issued.join(90)
    assert not stuck
