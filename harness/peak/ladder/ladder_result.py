"""The result of a ladder: its steps, why it ended, the largest load inside the limits, the knee."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
import numpy as np

from harness.analysis.replicas import SLOWER, middle_of
from harness.cli.signals import SignalName, exit_code_after
from harness.config.generation import SamplingParameters
from harness.peak.ladder.steps import NOT_A_RESULT, Step
from harness.record.provenance import Provenance
from harness.record.settled import ServerInfo
from harness.text import milliseconds

LEAST_GROWTH = 0.02  # More requests in flight only wait where twice as many raise the throughput by less.


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """A ladder as ladder.json has it."""

    label: str = NOT_A_RESULT
    benchmark: str
    scenario: str
    input_file: str
    dataset_sha256: str
    samples: int
    parameters: SamplingParameters
    seconds: float
    wanted: tuple[int, ...]
    """the steps that were planned"""
    limits_ns: dict[str, int]
    """the scenario's p99 limits of TTFT and TPOT"""
    servers: tuple[ServerInfo, ...]
    provenance: Provenance
    started: datetime
    ended: datetime | None = None
    steps: tuple[Step, ...] = ()
    stopped: str = ""
    """the reason why it ended; "" while it lasts"""
    complete: bool = False
    """whether a rule ended it, not an error or a signal"""
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    interrupted_by: SignalName | None = None

    @property
    def exit_code(self) -> int:
        """The program's: 4 for failed requests or an early end, 128 and the signal's number."""
        return exit_code_after(self.interrupted_by, good=self.complete and not self.has_failures)

    @property
    def has_failures(self) -> bool:
        """Whether requests failed."""
        return any(step.failed for step in self.steps)

    @property
    def best(self) -> Step | None:
        """The step of most tokens per second inside the limits, without failures and not the client's own."""
        good = [step for step in self.steps if not (broken(step, self.limits_ns) or unreliable(step))]
        return max(good, key=lambda step: step.tokens_per_s, default=None)

    @property
    def knee(self) -> Step | None:
        """The step with the largest product of tokens/s and tokens/s of a user: Kleinrock's power.

        None where no step beyond it was measured.
        """
        known = [step for step in self.steps if step.tpot is not None and not unreliable(step)]
        top = max(known, key=lambda step: step.tokens_per_s * (step.user_tokens_per_s or 0), default=None)
        return None if top is None or top is known[-1] else top


def unreliable(step: Step) -> bool:
    """Whether failures or the client itself falsify the step."""
    return bool(step.failed or step.client_bound)


def broken(step: Step, limits_ns: Mapping[str, int]) -> str:
    """The limits that a step breaks at p99, "" for none."""
    found = []
    for name, latency in (("TTFT", step.ttft), ("TPOT", step.tpot)):
        limit = limits_ns.get(name)
        if limit is not None and latency is not None and latency.p99_ns > limit:
            found.append(f"{name} p99 is {milliseconds(latency.p99_ns)} ms, over {milliseconds(limit)} ms")
    return ", ".join(found)


def stragglers(step: Step) -> Iterator[tuple[str, float]]:
    """Replicas with a median TPOT well above that of the others: URL, and ratio to the median of all."""
    known = {one.url: one.tpot.p50_ns for one in step.replicas if one.tpot is not None}
    middle = middle_of(np.array([*known.values()], np.float64))
    yield from ((url, value / middle) for url, value in known.items() if value > SLOWER * middle)


def why_stop(steps: Sequence[Step], limits_ns: Mapping[str, int], *, goes_on: bool = False) -> str:
    """The reason why no further step follows, "" where one does. ``goes_on``: although requests failed."""
    last = steps[-1]
    if last.failed and not goes_on:
        kinds = ", ".join(f"{kind} {count}" for kind, count in last.failures.items())
        return f"requests failed ({kinds})"
    if last.client_bound:
        return "the client was the bottleneck; more cores or workers measure more"
    if found := broken(last, limits_ns):
        return found
    return _no_growth(steps)


def _no_growth(steps: Sequence[Step]) -> str:
    if len(steps) < 2:
        return ""
    before, last = steps[-2:]
    if not before.tokens_per_s:
        return ""
    growth = last.tokens_per_s / before.tokens_per_s - 1
    least = LEAST_GROWTH * min(1.0, math.log2(last.concurrency / before.concurrency))
    if growth >= least:
        return ""
    return (
        f"throughput changed by {growth:+.1%} from {before.concurrency} to {last.concurrency} requests in "
        f"flight, less than {least:+.1%}"
    )
