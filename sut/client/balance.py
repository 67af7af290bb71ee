"""Which replica gets the next request: the one with the fewest in flight, over all workers.

A replica that is slower than the others gets fewer: its requests weigh more. The choice is one ``argmin``, so
it costs the same for one replica and for hundreds.
"""

import numpy as np

from sut.ipc.replica_board import ReplicaBoard

# A key of a replica, the smallest is chosen: (in flight + 1) * weight, and below it the number of the start
# that was its last, so that ties go round.
_LOAD_BITS = 32
_TURNS = (1 << _LOAD_BITS) - 1
_SHUNNED = 1 << 62  # more than any load
# How old the view of other workers' requests, and of the weights, may be.
_FRESH_NS, _ALONE_FRESH_NS = 2_000_000, 250_000_000


class Balance:
    """The loads of all replicas as one worker sees them."""

    def __init__(self, replicas: int, board: ReplicaBoard | None = None, worker: int = 0) -> None:
        board = board or ReplicaBoard(1, replicas)
        workers = len(board.in_flight)
        self._all, self._weights = board.in_flight, board.weights
        # Each worker begins at another replica.
        first = np.arange(replicas) - worker * replicas // workers
        self._keys = (first % replicas).astype(np.int64)
        self._steps = np.zeros_like(self._keys)  # what one more request adds to a key
        self._fresh_ns = _FRESH_NS if workers > 1 else _ALONE_FRESH_NS
        self._refresh_ns = 0
        self._turn = replicas
        self._single = replicas == 1
        # Elements of a memoryview are read and written several times faster than numpy's.
        self._own = self._all[worker].data
        self._key, self._step = self._keys.data, self._steps.data
        self._smallest = self._keys.argmin

    def choose(self, now: int) -> int:
        """The index of the replica for a request that starts at ``now``, monotonic ns; counts it there."""
        if self._single:
            self._own[0] += 1
            return 0
        if now >= self._refresh_ns:
            self._refresh(now)
        index = int(self._smallest())
        self._turn += 1
        self._own[index] += 1
        load = self._key[index] + self._step[index] >> _LOAD_BITS
        self._key[index] = load << _LOAD_BITS | self._turn & _TURNS
        return index

    def ended(self, index: int) -> None:
        """Count a request that has ended."""
        self._own[index] -= 1
        self._key[index] -= self._step[index]

    def shun(self, index: int) -> None:
        """Choose this replica only where all are shunned."""
        self._key[index] |= _SHUNNED

    def allow(self, index: int) -> None:
        """Choose this replica again."""
        self._key[index] &= ~_SHUNNED

    def _refresh(self, now: int) -> None:
        self._refresh_ns = now + self._fresh_ns
        in_flight = self._all.sum(axis=0, dtype=np.int64)
        np.left_shift(self._weights, _LOAD_BITS, out=self._steps, dtype=np.int64)
        self._keys &= _SHUNNED | _TURNS
        self._keys |= (in_flight + 1) * self._steps
