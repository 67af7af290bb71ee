"""Rendered requests in shared memory: written once before the clock starts, read by every worker.

Each sample's bytes are the JSON body of its request without the request's id. A worker puts a salt in the
place of its placeholder when it sends the request. The size of /dev/shm does not limit a memfd.
"""

import mmap
import os
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from harness.dataset.salt import RenderedSalt, SaltIds
from harness.dataset.samples import SampleSet
from harness.system_calls import memory_file
from sut.wire import Wires


class RequestStore:
    """All samples' request bytes. ``request(i)`` is a view; the index is checked by numpy.

    ``salt``: each query has its own instead of the placeholder in its sample's prompt.
    """

    def __init__(self, descriptor: int, samples: int, salt: SaltIds | None) -> None:
        self.descriptor = descriptor
        self.samples = samples
        self._salt = salt
        self._rendered = None if salt is None else RenderedSalt(salt)
        self._map = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        self._bytes = memoryview(self._map)
        table = np.frombuffer(self._map, dtype=np.int64, count=4 * samples + 1)
        self._offsets: list[int] = table[: samples + 1].tolist()
        self._lengths: list[int] = table[samples + 1 : 2 * samples + 1].tolist()
        self._limits: list[int] = table[2 * samples + 1 : 3 * samples + 1].tolist()
        self._salted_at: list[int] = table[3 * samples + 1 :].tolist()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle for a spawned process, as a descriptor."""
        return _attach, (DupFd(self.descriptor), self.samples, self._salt)

    def request(self, sample_index: int) -> memoryview:
        """The body of one sample's request, with the placeholder of a salt."""
        return self._bytes[self._offsets[sample_index] : self._offsets[sample_index + 1]]

    def salt(self, query_id: int, sample_index: int) -> tuple[int, bytes, int] | None:
        """A query's salt, between the begin and the end of the bytes that it replaces; None: it has none."""
        salt = self._rendered
        if salt is None:
            return None
        at = self._salted_at[sample_index]
        return at, salt.of(query_id), at + salt.width

    def prompt_tokens(self, sample_index: int) -> int:
        """ISL of one sample."""
        return self._lengths[sample_index]

    def limit(self, sample_index: int) -> int:
        """The most output tokens of one sample's answer; 0: the run's."""
        return self._limits[sample_index]


def _attach(descriptor: Any, samples: int, salt: SaltIds | None) -> RequestStore:
    return RequestStore(descriptor.detach(), samples, salt)


def render_requests(samples: SampleSet, wires: Wires) -> RequestStore:
    """Render every sample once."""
    count = len(samples)
    header = 8 * (4 * count + 1)
    descriptor = memory_file("mlperf-requests")
    table = np.zeros(4 * count + 1, dtype=np.int64)
    table[count + 1 : 2 * count + 1] = samples.lengths
    if samples.limits is not None:
        table[2 * count + 1 : 3 * count + 1] = samples.limits
    limits: list[int] = table[2 * count + 1 : 3 * count + 1].tolist()
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.seek(header)
        position = header
        for index in range(count):
            wire = wires.of(limits[index])
            table[index] = position
            if samples.salt is not None:
                at = int(samples.salt.at[index])
                table[3 * count + 1 + index] = wire.prompt_offset(samples.tokens(index)[:at].tolist())
            position += file.write(wire.render(samples.prompt(index)))
        table[count] = position
        file.seek(0)
        file.write(table.tobytes())
    return RequestStore(descriptor, count, None if samples.salt is None else samples.salt.ids)
