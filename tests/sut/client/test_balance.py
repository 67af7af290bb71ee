"""The choice of a replica: a table of loads, and several workers."""

import numpy as np
import pytest

from sut.client.balance import Balance
from sut.ipc.counters import CounterBoard

LATER_NS = 10_000_000_000


def choices(balance, count, now=0):
    return [balance.choose(now) for _ in range(count)]


def test_ties_go_round_and_an_end_is_a_free_place():
    balance = Balance(3)
    assert choices(balance, 7) == [0, 1, 2, 0, 1, 2, 0]
    balance.ended(1)
    balance.ended(1)
    assert choices(balance, 4) == [1, 1, 2, 1]


def test_a_shunned_replica_is_used_where_all_are():
    balance = Balance(2)
    balance.shun(0)
    assert choices(balance, 3) == [1, 1, 1]
    balance.shun(1)
    assert choices(balance, 1) == [0]
    balance.ended(0)
    balance.allow(1)
    assert choices(balance, 1, LATER_NS) == [1]


@pytest.mark.parametrize(
    ("workers", "replicas"), [(2, 1), (2, 3), (4, 8), pytest.param(4, 512, marks=pytest.mark.engine), (3, 2)]
)
def test_workers_see_each_other(workers, replicas):
    board = CounterBoard(workers, replicas)
    balances = [Balance(replicas, board, worker) for worker in range(workers)]
    rng = np.random.default_rng(5)
    for step in range(1, 40 * replicas):  # each choice a second after the other: every view is fresh
        worker = int(rng.integers(workers))
        balances[worker].choose(step * 1_000_000_000)
        in_flight = board.values().sum(axis=0)
        assert in_flight.max() - in_flight.min() <= 1
        assert in_flight.sum() == step


def test_a_worker_sees_what_has_ended_in_another_and_still_shuns_a_replica():
    board = CounterBoard(2, 3)
    one, other = Balance(3, board, 0), Balance(3, board, 1)
    assert sorted(choices(one, 3)) == [0, 1, 2]
    one.ended(0)
    one.ended(2)
    assert board.values().sum(axis=0).tolist() == [0, 1, 0]
    other.shun(0)
    assert choices(other, 1, LATER_NS) == [2]


def test_workers_begin_at_different_replicas():
    """All choose at once: what the others have chosen is not seen yet."""
    first = [Balance(8, CounterBoard(4, 8), worker).choose(0) for worker in range(4)]
    assert sorted(first) == [0, 2, 4, 6]


def test_replicas_are_filled_in_proportion_to_what_they_run():
    board = CounterBoard(3, 4)
    balances = [Balance(4, board, worker, [512, 32, 32, 100]) for worker in range(3)]
    for step in range(2 * 676):
        balances[step % 3].choose(step * 1_000_000_000)
    assert board.values().sum(axis=0).tolist() == pytest.approx([1024, 64, 64, 200], abs=2)
    balances[0].ended(1)
    balances[0].ended(1)
    assert choices(balances[0], 1, LATER_NS * 1000) == [1]
    balances[0].shun(0)
    assert 0 not in choices(balances[0], 100)
