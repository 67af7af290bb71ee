"""What all workers know of the replicas, in shared memory: requests in flight, and how slow each is."""

import mmap
import os
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import numpy.typing as npt

NORMAL_WEIGHT = 1024
_MOST_WEIGHT = 4 * NORMAL_WEIGHT
_INT = 4  # bytes

Counts = npt.NDArray[np.int32]


class ReplicaBoard:
    """``in_flight``, shape (workers, replicas): each worker writes its row. ``weights``: of a request on each
    replica, NORMAL_WEIGHT or more, written by the supervisor. Readers may see both mid-update.
    """

    def __init__(self, workers: int, replicas: int, descriptor: int | None = None) -> None:
        size = (workers + 1) * replicas * _INT
        new = descriptor is None
        if descriptor is None:
            descriptor = os.memfd_create("mlperf-replicas", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, size)
        self._descriptor = descriptor
        self._shape = (workers, replicas)
        rows: Counts = np.frombuffer(mmap.mmap(descriptor, size), np.int32).reshape(workers + 1, replicas)
        self.in_flight, self.weights = rows[:workers], rows[workers]
        if new:
            self.weights[:] = NORMAL_WEIGHT

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle for a spawned process, as a descriptor."""
        return _attach, (DupFd(self._descriptor), self._shape)

    def weigh(self, factors: npt.NDArray[np.float64]) -> None:
        """Set the weight of each replica's requests, as factors of a normal one's."""
        weights = factors * NORMAL_WEIGHT
        self.weights[:] = np.clip(weights, NORMAL_WEIGHT, _MOST_WEIGHT).astype(np.int32)

    def forget(self, worker: int) -> None:
        """Clear the row of a worker that has died."""
        self.in_flight[worker] = 0


def _attach(descriptor: Any, shape: tuple[int, int]) -> ReplicaBoard:
    return ReplicaBoard(*shape, descriptor.detach())
