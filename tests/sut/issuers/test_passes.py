"""Which samples are issued when, as workers see it that answer when told."""

import itertools
import socket
import time
from multiprocessing import Pipe

import numpy as np
import pytest

from harness.endpoints.point_run import WARM_UP
from sut.ipc.counters import CounterBoard
from sut.issuers.loop import IssuingProcess
from sut.issuers.passes import Passes, PassesLoop, SampleOrder
from tests.kit import PATIENCE_S
from tests.sut.issuers.playing import PlayedWorkers

SEED = 586478644936801402


@pytest.mark.parametrize("samples", [1, 2, 500])
def test_each_pass_is_a_permutation_of_its_own(samples):
    order = SampleOrder(samples, SEED)
    passes = [order.of(number) for number in range(5)]
    assert all(sorted(one) == list(range(samples)) for one in passes)
    assert passes == [SampleOrder(samples, SEED).of(number) for number in range(5)]
    if samples == 500:
        others = [SampleOrder(samples, SEED + 1).of(number) for number in range(5)]
        assert len({tuple(one) for one in (*passes, *others)}) == 10


def test_with_replacement_each_sample_is_drawn_anew():
    order = SampleOrder(1000, SEED, replacement=True)
    drawn = np.array([order.of(number) for number in range(50)])
    assert drawn.min() == 0 and drawn.max() == 999
    # Of a pass without replacement all samples are there, with it a part of 1 - 1/e.
    part = np.mean([len(set(one)) for one in drawn.tolist()]) / 1000
    assert part == pytest.approx(1 - np.exp(-1), abs=0.01)
    assert order.of(3) == drawn[3].tolist()


def test_the_order_is_the_same_in_all_versions():
    """Raw numbers of PCG64 do not change between versions of numpy; nobody can repeat an order that does."""
    assert SampleOrder(8, SEED).of(1) == [4, 0, 7, 1, 5, 6, 3, 2]
    assert SampleOrder(8, SEED, replacement=True).of(1) == [2, 0, 0, 6, 4, 7, 3, 5]


def loop_of(sockets, control, **changes):
    plan = {"order": SampleOrder(5, SEED), "concurrency": 3, "warm_up": 0, "warm_up_concurrency": 3}
    plan |= {"passes": 1, "issue_s": 0.0, "text_after": 0}
    return PassesLoop(Passes(**plan | changes), IssuingProcess(sockets, CounterBoard(1).row(0), control))


@pytest.fixture
def play():
    """Start loops; their workers hang up with the test."""
    made = []

    def start(**changes):
        ours, theirs = Pipe()
        played = PlayedWorkers(lambda sockets: loop_of(sockets, theirs, **changes), ours)
        made.append(played)
        return played

    yield start
    for played in made:
        played.end()


def answered(played, concurrency):
    """Answer one request after the other to the end; all queries in the order of their ids."""
    seen = []
    while True:
        seen += played.taken()
        assert len(played.waiting) <= concurrency
        if played.is_over():
            return sorted(seen)  # ids count the queries
        if played.waiting:
            played.answer_oldest()
        else:
            time.sleep(0.005)


def test_complete_passes_of_a_fixed_number_in_flight(play):
    played, order = play(passes=3), SampleOrder(5, SEED)
    seen = answered(played, 3)
    assert seen == list(enumerate(itertools.chain(*(order.of(number) for number in (1, 2, 3)))))
    assert played.word == "done"


def test_issuing_ends_at_the_end_of_a_pass_once_the_time_is_over(play):
    began = time.monotonic()
    played = play(passes=1, issue_s=0.5)
    seen = answered(played, 3)
    assert time.monotonic() - began >= 0.5
    assert len(seen) > 5 and len(seen) % 5 == 0


def test_the_passes_begin_as_the_warm_ups_requests_end(play):
    played, order = play(passes=1, warm_up=4), SampleOrder(5, SEED)
    played.wait_for(3)
    assert played.taken() == [(WARM_UP + at, sample) for at, sample in enumerate(order.of(0)[:3])]
    played.answer_oldest()
    played.wait_for(3)
    assert played.taken() == [(WARM_UP + 3, order.of(0)[3])]
    played.answer_oldest()
    played.wait_for(3)
    assert played.taken() == [(0, order.of(1)[0])]
    seen = answered(played, 3)
    assert [query for query, _ in seen] == [1, 2, 3, 4]


def test_everything_at_once_after_the_end_of_the_warm_up(play):
    played, order = play(concurrency=None, passes=2, warm_up=2, warm_up_concurrency=1), SampleOrder(5, SEED)
    for number in range(2):
        played.wait_for(1)
        assert played.taken() == [(WARM_UP + number, order.of(0)[number])]
        played.answer_oldest()
    played.wait_for(10)
    assert sorted(played.taken()) == list(enumerate([*order.of(1), *order.of(2)]))
    played.answer_all()
    assert played.control.poll(PATIENCE_S) and played.control.recv()[0] == "done"


def test_without_a_worker_it_ends(play):
    played = play(passes=1000)
    played.wait_for(3)
    played.hang_up()
    assert played.control.poll(PATIENCE_S)
    word, (lost, _) = played.control.recv()
    assert word == "done" and {query for query, _ in lost} >= {0, 1, 2}


def test_to_workers_that_are_gone_it_does_not_issue_on():
    """Each such query is lost at once: the number in flight is never reached."""
    ours, theirs = Pipe()
    gone, channel = socket.socketpair()
    gone.close()
    ours.send(("run", [0]))
    loop_of([channel], theirs, passes=100).run()
    word, (lost, _) = ours.recv()
    assert word == "done" and len(lost) <= 3
