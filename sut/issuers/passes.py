"""Complete passes of a dataset: a number of requests in flight, or all of them at once.

Each pass has an order of its own, which follows from the seed and the number of the pass alone. Issuing ends
at the end of a pass, once enough passes were issued over enough time; the loop ends when all are answered.

Requests of a warm-up come before the first pass. At a fixed number in flight the passes begin as those end,
so that the number is held from the first counted request on; before a run that issues everything at once
they all end. A query's id counts the queries of the passes; those of the warm-up begin at WARM_UP.
"""

import time
from collections.abc import Sequence
from itertools import islice

import msgspec
import numpy as np

from harness.endpoints.point_run import WARM_UP
from sut.issuers.loop import IssuingLoop, IssuingProcess

_NS = 1e9


class SampleOrder(msgspec.Struct, frozen=True):
    """The samples of each pass over a dataset of this size."""

    samples: int
    seed: int
    replacement: bool = False
    """each sample is drawn anew"""

    def of(self, number: int) -> list[int]:
        """The samples of a pass; 0 is the warm-up's."""
        # numpy keeps the raw numbers of a bit generator the same in all versions; not its permutations.
        drawn = np.random.PCG64([self.seed, number]).random_raw(self.samples)
        order = drawn % np.uint64(self.samples) if self.replacement else np.argsort(drawn, kind="stable")
        samples: list[int] = order.tolist()
        return samples


class Passes(msgspec.Struct, frozen=True):
    """Issues the passes of a point."""

    order: SampleOrder
    concurrency: int | None
    """None: all requests of the passes at once"""
    warm_up: int
    """requests"""
    warm_up_concurrency: int
    passes: int
    """the fewest"""
    issue_s: float
    """the shortest time from the first request to the last; all at once: without effect"""
    text_after: int | None
    name: str = "the process that issues the passes"
    first_tokens: bool = False
    keeps_answers: bool = False
    wall_clock: bool = False

    def run(self, process: IssuingProcess) -> None:
        """Issue the warm-up and the passes, and wait for the ends of all."""
        PassesLoop(self, process).run()


class PassesLoop(IssuingLoop):
    """The warm-up, then passes until enough is issued."""

    def __init__(self, plan: Passes, process: IssuingProcess) -> None:
        super().__init__(process)
        self._plan = plan
        self._warm_up = _repeated(plan.order.of(0), plan.warm_up)
        self._warmed = 0
        self._pass: list[int] = []
        self._at = 0  # samples of the pass that are issued
        self._passes = 0  # that have begun
        self._began_ns = 0
        self._issued_all = False

    @property
    def done(self) -> bool:
        """Whether everything has ended, or no worker is left."""
        return (self._issued_all and not self.waiting) or not self.is_served

    def proceed(self) -> float:
        """Issue what is missing."""
        while self._warmed < len(self._warm_up) and self.waiting < self._plan.warm_up_concurrency:
            self.issue([WARM_UP + self._warmed], [self._warm_up[self._warmed]])
            self._warmed += 1
        if self._warmed == len(self._warm_up) and not self._issued_all:
            self._issue_passes()
        return super().proceed()

    def _issue_passes(self) -> None:
        concurrency = self._plan.concurrency
        if concurrency is None:
            if not self.waiting:
                self._issue_everything()
            return
        # No more than are missing: to workers that are gone the number in flight would never be reached.
        for _ in range(concurrency - self.waiting):
            if not self._issued_all:
                self._issue_next()

    def _issue_everything(self) -> None:
        samples = [one for number in range(self._plan.passes) for one in self._plan.order.of(number + 1)]
        self._issued_all = True
        self.issue(range(len(samples)), samples)

    def _issue_next(self) -> None:
        """One request, where the fewest are; the last of a pass decides whether another one begins."""
        if self._at == len(self._pass):
            self._passes += 1
            self._pass, self._at = self._plan.order.of(self._passes), 0
        now_ns = time.monotonic_ns()
        self.issue([(self._passes - 1) * len(self._pass) + self._at], [self._pass[self._at]])
        self._began_ns = self._began_ns or time.monotonic_ns()
        self._at += 1
        if self._at == len(self._pass):
            issued_s = (now_ns - self._began_ns) / _NS
            self._issued_all = self._passes >= self._plan.passes and issued_s >= self._plan.issue_s


def _repeated(samples: Sequence[int], count: int) -> list[int]:
    """``count`` samples, from the start again where they are fewer."""
    return list(islice((one for _ in range(-(-count // len(samples))) for one in samples), count))
