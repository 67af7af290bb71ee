"""The replicas' requests in flight, of all workers, in shared memory."""

import mmap
import os
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import numpy.typing as npt

_INT = 4  # bytes

Counts = npt.NDArray[np.int32]


class ReplicaBoard:
    """``in_flight``, shape (workers, replicas): each worker writes its row. Readers may see it mid-update."""

    def __init__(self, workers: int, replicas: int, descriptor: int | None = None) -> None:
        size = workers * replicas * _INT
        if descriptor is None:
            descriptor = os.memfd_create("mlperf-replicas", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, size)
        self._descriptor = descriptor
        self._shape = (workers, replicas)
        counts = np.frombuffer(mmap.mmap(descriptor, size), np.int32)
        self.in_flight: Counts = counts.reshape(workers, replicas)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle for a spawned process, as a descriptor."""
        return _attach, (DupFd(self._descriptor), self._shape)

    def forget(self, worker: int) -> None:
        """Clear the row of a worker that has died."""
        self.in_flight[worker] = 0


def _attach(descriptor: Any, shape: tuple[int, int]) -> ReplicaBoard:
    return ReplicaBoard(*shape, descriptor.detach())
