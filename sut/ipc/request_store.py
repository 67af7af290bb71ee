"""Rendered requests in shared memory: written once before the clock starts, read by every worker.

Each sample's bytes are the JSON body of its request without the request's id. The size of /dev/shm does not
limit a memfd.
"""

import mmap
import os
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from harness.dataset.samples import SampleSet
from sut.wire import Wires


class RequestStore:
    """All samples' request bytes. ``request(i)`` is a view; the index is checked by numpy."""

    def __init__(self, descriptor: int, samples: int) -> None:
        self.descriptor = descriptor
        self.samples = samples
        self._map = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        self._bytes = memoryview(self._map)
        table = np.frombuffer(self._map, dtype=np.int64, count=3 * samples + 1)
        self._offsets: list[int] = table[: samples + 1].tolist()
        self._lengths: list[int] = table[samples + 1 : 2 * samples + 1].tolist()
        self._limits: list[int] = table[2 * samples + 1 :].tolist()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle for a spawned process, as a descriptor."""
        return _attach, (DupFd(self.descriptor), self.samples)

    def request(self, sample_index: int) -> memoryview:
        """The body of one sample's request."""
        return self._bytes[self._offsets[sample_index] : self._offsets[sample_index + 1]]

    def prompt_tokens(self, sample_index: int) -> int:
        """ISL of one sample."""
        return self._lengths[sample_index]

    def limit(self, sample_index: int) -> int:
        """The most output tokens of one sample's answer; 0: the run's."""
        return self._limits[sample_index]


def _attach(descriptor: Any, samples: int) -> RequestStore:
    return RequestStore(descriptor.detach(), samples)


def render_requests(samples: SampleSet, wires: Wires) -> RequestStore:
    """Render every sample once."""
    count = len(samples)
    header = 8 * (3 * count + 1)
    descriptor = os.memfd_create("mlperf-requests", os.MFD_CLOEXEC)
    table = np.empty(3 * count + 1, dtype=np.int64)
    table[count + 1 : 2 * count + 1] = samples.lengths
    table[2 * count + 1 :] = 0 if samples.limits is None else samples.limits
    limits: list[int] = table[2 * count + 1 :].tolist()
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.seek(header)
        position = header
        for index in range(count):
            body = wires.of(limits[index]).render(samples.tokens(index).tolist())
            table[index] = position
            position += file.write(body)
        table[count] = position
        file.seek(0)
        file.write(table.tobytes())
    return RequestStore(descriptor, count)
