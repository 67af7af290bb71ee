"""The result of a search: the rate to use, how sure it is, and the evidence against it."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from harness.peak.search.policy import Ended, History, Policy, SearchEnd, bracket, tally
from harness.peak.search.probe import Probe
from harness.record.run_events import RunEvent

Boundary = Literal["smooth", "cliff"]

# A TTFT below this part of its limit just below the peak, and over the limit just above it, is a cliff.
_FAR = 0.5
_FEWEST_SLOWER = 3  # So many runs, each slower than the one before it, are no chance.


class Spread(msgspec.Struct, frozen=True):
    """A figure over the runs at one rate."""

    mean: float
    lowest: float
    highest: float
    runs: int


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search that has ended, or the state of one that has not."""

    outcome: SearchEnd | Literal["INTERRUPTED", "ERROR"]
    why: str
    rate: float | None = None
    """`target_qps` to use: the highest rate that passed in more runs than it did not"""
    valid: int = 0
    """runs at this rate that were VALID"""
    runs: int = 0
    """runs at this rate"""
    lowest_invalid: float | None = None
    """the lowest rate above it that did not pass"""
    expected_peak: float | None = None
    """the highest rate that would pass, in a replay of what was measured"""
    margin: float | None = None
    """share by which the lower one of `expected_peak` and `lowest_invalid` is above `rate`"""
    binding: Literal["TTFT", "TPOT"] | None = None
    """the limit that ends the rate"""
    boundary: Boundary | None = None
    """`smooth`: the binding time grows with the rate; `cliff`: a queue grows once the rate is too high"""
    tokens_per_s: Spread | None = None
    """completed tokens per second as LoadGen reports them, over the VALID runs at this rate"""
    events: tuple[RunEvent, ...] = ()
    """of the measurement whose error has ended the search; those of a ladder have no times"""
    remarks: tuple[str, ...] = ()
    """evidence against the result, such as a rate that passed above one that did not"""
    conf_rows: tuple[str, ...] = ()
    """rows of a user.conf"""
    folder: str | None = None
    """the first VALID run at this rate, relative to the search's folder"""
    deviations: int = 0
    """of this run from the benchmark's rules: without any it can be submitted"""

    @property
    def confirmed(self) -> bool:
        """Whether more than one run at the rate was VALID."""
        return self.valid > 1


def conclude(policy: Policy, model_key: str, history: History, ended: Ended) -> Conclusion:
    """The conclusion of what was measured."""
    found, probes = bracket(history.probes), history.probes
    remarks = (*_not_monotone(policy, probes), *_slower(policy, history), *_unsteady(history))
    # Where no latency limit ends the rates, none binds, and a replay's peak is this client's.
    at_least = ended.outcome == "AT_LEAST"
    binding, boundary = (None, None) if at_least else _limit(probes, found.low, policy.limits_ns)
    without_rate = Conclusion(
        outcome=ended.outcome,
        why=ended.why,
        lowest_invalid=found.high,
        binding=binding,
        boundary=boundary,
        remarks=remarks,
    )
    if found.low is None:
        return without_rate
    valid, invalid = tally(probes)[found.low]
    peak = policy.expected_peak(history)
    at_rate = [one for one in probes if one.rate == found.low and one.verdict == "VALID"]
    return replace(
        without_rate,
        rate=found.low,
        valid=valid,
        runs=valid + invalid,
        expected_peak=peak,
        margin=None if peak is None or at_least else min(peak, found.high or peak) / found.low - 1,
        tokens_per_s=_spread([one.tokens_per_s for one in at_rate if one.tokens_per_s is not None]),
        conf_rows=(f"{model_key}.Server.target_qps = {found.low:g}",),
        folder=at_rate[0].folder or None,
        deviations=at_rate[0].deviations,
    )


def _limit(
    probes: Sequence[Probe], low: float | None, limits_ns: Mapping[str, int]
) -> tuple[Literal["TTFT", "TPOT"] | None, Boundary | None]:
    """The limit that binds, and how: by the lowest rate that did not pass, else by the highest that did."""
    failed = sorted(
        (one for one in probes if one.verdict == "INVALID" and one.binding and one.rate > (low or 0)),
        key=lambda one: one.rate,
    )
    passed = [one for one in probes if one.rate == low and one.verdict == "VALID"]
    near = passed[-1].p99_shares(limits_ns) if passed else {}
    if failed:
        name = failed[0].binding
        if name == "TPOT" or not near:
            return name, "smooth" if name == "TPOT" else None
        return name, "cliff" if near.get("TTFT", 0.0) < _FAR else "smooth"
    if not near:
        return None, None
    return ("TTFT" if near.get("TTFT", 0.0) >= near.get("TPOT", 0.0) else "TPOT"), None


def _not_monotone(policy: Policy, probes: Sequence[Probe]) -> Iterator[str]:
    """Rates that passed above others that did not."""
    for rate, (valid, invalid) in tally(probes).items():
        if valid and invalid:
            yield f"{rate:g} was VALID in {valid} and INVALID in {invalid} of {valid + invalid} runs"
    failed = {one.rate for one in probes if one.verdict == "INVALID"}
    passed = {one.rate for one in probes if one.verdict == "VALID"}
    for low, high in itertools.product(sorted(failed), sorted(passed)):
        if low < high:
            one, other = policy.schedule.run(low), policy.schedule.run(high)
            longer = f", in a run of {one.seconds:.0f} s against {other.seconds:.0f} s"
            yield f"{high:g} passed although {low:g} did not{longer}: a higher rate is not always harder"


def _slower(policy: Policy, history: History) -> Iterator[str]:
    """A server that is slower in every probe, such as one that gets hot."""
    scales = policy.scales(history)
    growing = all(later > earlier for earlier, later in itertools.pairwise(scales))
    if len(scales) >= _FEWEST_SLOWER and growing and scales[-1] > (1 + policy.tolerance) * scales[0]:
        slower = 100 * (scales[-1] / scales[0] - 1)
        yield (
            f"the servers were slower with every complete run, by {slower:.1f} % from the first to the last "
            f"of {len(scales)}: look at temperatures and clocks, and repeat the search on warm servers"
        )
    for rate in tally(history.probes):
        verdicts = [one.verdict for one in history.probes if one.rate == rate]
        if verdicts == sorted(verdicts, reverse=True) and len(set(verdicts)) > 1:
            yield f"{rate:g} was VALID first and INVALID later: the servers may have become slower"


def _unsteady(history: History) -> Iterator[str]:
    unsteady = [str(step.concurrency) for step in history.steps if not step.steady]
    if unsteady:
        yield f"steps of the ladder that were not steady: {', '.join(unsteady)} requests in flight"
    bound = [f"{one.rate:g}" for one in history.probes if one.client_bound]
    if bound:
        yield f"this client was a bottleneck of the runs at {', '.join(bound)}"


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(sum(values) / len(values), min(values), max(values), len(values))
