"""The choice of a request's replica: the one with the fewest in flight, over all workers.

In Offline it is the one with the fewest for each request that it runs at once. The choice is one ``argmin``,
so it costs the same for one replica and for hundreds.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sut.ipc.counters import CounterBoard

# Each replica has a key, and the smallest is chosen: its load in the upper bits, below it the number of its
# latest start, so that ties go round.
_LOAD_BITS = 24
_ONE = 1 << _LOAD_BITS
_TURNS = _ONE - 1
_SHUNNED = 1 << 62  # more than any load
_FINEST = 64  # the load of a request on the replica that runs the most at once, where they differ
_MOST = 1 << 16  # and at most on another: 2 ** 20 of them are less than _SHUNNED
_FRESH_NS = 2_000_000  # the view of other workers' requests may be this old


class Balance:
    """The loads of all replicas as one worker sees them.

    ``board`` counts the requests in flight: a row for each worker, a column for each replica. ``runs`` are
    the requests that each replica runs at once, where they are filled in proportion.
    """

    def __init__(
        self, replicas: int, board: CounterBoard | None = None, worker: int = 0, runs: Sequence[int] = ()
    ) -> None:
        self._all = (board or CounterBoard(1, replicas)).values()
        workers = len(self._all)
        # Each worker begins at another replica.
        first = np.arange(replicas) - worker * replicas // workers
        self._keys = (first % replicas).astype(np.int64)
        self._alone = workers == 1
        self._refresh_ns = 0
        self._turn = replicas
        self._single = replicas == 1
        # Elements of a memoryview are read and written several times faster than numpy's.
        self._own = self._all[worker].data
        self._key = self._keys.data
        self._weights = _weights(runs or [1] * replicas) << _LOAD_BITS  # the load of a request on each
        self._weight = self._weights.data
        self._smallest = self._keys.argmin

    def choose(self, now: int) -> int:
        """The index of the replica for a request that starts at ``now``, monotonic ns; counts it there."""
        if self._single:
            self._own[0] += 1
            return 0
        if not self._alone and now >= self._refresh_ns:
            self._refresh(now)
        index = int(self._smallest())
        self._turn += 1
        self._own[index] += 1
        self._key[index] = self._key[index] + self._weight[index] & ~_TURNS | self._turn & _TURNS
        return index

    def ended(self, index: int) -> None:
        """Count a request that has ended."""
        self._own[index] -= 1
        self._key[index] -= self._weight[index]

    def shun(self, index: int) -> None:
        """Choose this replica only if all are shunned."""
        self._key[index] |= _SHUNNED

    def allow(self, index: int) -> None:
        """Choose this replica again."""
        self._key[index] &= ~_SHUNNED

    def _refresh(self, now: int) -> None:
        self._refresh_ns = now + _FRESH_NS
        self._keys &= _SHUNNED | _TURNS
        self._keys |= self._all.sum(axis=0) * self._weights


def _weights(runs: Sequence[int]) -> npt.NDArray[np.int64]:
    if len(set(runs)) == 1:
        return np.ones(len(runs), np.int64)
    weights: npt.NDArray[np.int64] = np.rint(_FINEST * max(runs) / np.array(runs)).astype(np.int64)
    return np.minimum(weights, _MOST)
