"""The verdict on a run, from LoadGen's result and the outcome of every query."""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from harness.analysis.early_stopping import (
    late_first_tokens,
    most_over_limit,
    over_limit_text,
    surely_slow,
)
from harness.analysis.next_rate import missed_limits, rate_after, target_qps
from harness.analysis.outages import what_stood
from harness.analysis.statistics import completed
from harness.arrays import distinct
from harness.loadgen_logs.contradictions import TOO_FEW
from harness.loadgen_logs.summary_and_detail import LoadgenDetail, LoadgenSummary
from harness.record.journal import COMPLETE, Rows
from harness.record.run_record import RunRecord, RunVerdict, Statistics
from harness.text import by_kind, counted, figure, milliseconds

CLOCK_S, CLOCK_PART = 0.25, 0.001  # the most by which LoadGen's time may differ, and the part of the run
_RIGHT_CLOCK = (
    "run again where the clock is right (chronyc tracking) and is not stepped (chronyd without makestep)"
)
_SAME_RATE = (
    "servers or this client stood meanwhile (see the warnings), so no other rate follows: repeat the command"
)
# For each sample of a query, of which LoadGen makes a list after its start and before it issues it. Measured
# 0.2 to 0.3 µs.
_LISTING_S = 1e-6
# LoadGen's first words where early stopping is not satisfied, in Server and in SingleStream.
_NOT_STOPPED = "Run unsuccessful", TOO_FEW


def run_verdict(
    record: RunRecord,
    rows: Rows,
    issued: int,
    errors: Sequence[str] = (),
    clock: Iterable[str] = (),
    logs: Sequence[str] = (),
) -> RunVerdict:
    """VALID only when LoadGen reports VALID without an error and every query has its complete answer.

    ``record`` holds the statistics of ``rows`` and LoadGen's summary, ``issued`` is the number of LoadGen's
    samples, ``errors`` are errors of the run itself, ``clock`` are ``clock_reasons`` and ``hidden_misses``,
    ``logs`` are faults of LoadGen's files: after a clock that was set back they hold numbers that are none.
    """
    plan, statistics, loadgen = record.plan, record.statistics, record.loadgen
    if statistics is None or loadgen is None:
        raise ValueError("the record of a run that has not ended")
    faults = (
        *errors,
        *_outcome_reasons(statistics, rows, issued),
        *(_accuracy_reasons(rows, record.settled.samples) if plan.accuracy else ()),
    )
    # The last query may be one that failed, whose end they do not count.
    clock = () if faults or plan.accuracy else tuple(clock)
    reasons = (*faults, *clock, *logs, *_loadgen_reasons(record, loadgen, rows, is_timed=not clock))
    complete = not faults and not logs and not loadgen.problem and not loadgen.errors
    return RunVerdict("INVALID" if reasons else "VALID", reasons, complete)


def _outcome_reasons(statistics: Statistics, rows: Rows, issued: int) -> Iterator[str]:
    if statistics.failures:
        failed = f"{statistics.failed} of {statistics.queries} queries failed"
        yield f"{failed}: {by_kind(statistics.failures)}"
    if issued != statistics.queries:
        yield f"LoadGen issued {counted(issued, 'query')}, the outcome of {statistics.queries} is known"
    repeated = len(rows) - len(distinct(rows["query_id"]))
    if repeated:
        yield f"{counted(repeated, 'query', 'has')} more than one outcome"
    if not issued:
        yield "LoadGen issued no query"


def clock_reasons(detail: LoadgenDetail, calls: Rows, began_ns: int, slewed_ns: int) -> Iterator[str]:
    """LoadGen takes all of its times from the wall clock, the client its own from one that is never set.

    Compared is the time to the last answer: from LoadGen's start, and from ``began_ns`` to the last of the
    ``calls``. LoadGen's rates do not have it: Server's end with the query that was issued last, which in
    nearly every run is answered before others.
    """
    ends, lasted_s = calls["reported_ns"][calls["kind"] == COMPLETE], detail.lasted_s
    if lasted_s is None or not len(ends):
        return
    own = (int(ends.max()) - began_ns) / 1e9
    listing = _LISTING_S * (detail.number("generated_samples_per_query") or 0)
    slack = _slack_s(own)
    if not -slack <= lasted_s - own <= slack + listing:
        yield (
            f"the run took {own:.2f} s, and {lasted_s:.2f} s by LoadGen's clock: the wall clock was set, or "
            f"the machine slept, and no time of LoadGen's counts; {_RIGHT_CLOCK}"
        )
    yield from slewed(own, slewed_ns)


def slewed(lasted_s: float, slewed_ns: int) -> Iterator[str]:
    """A reason where this machine's clocks were fast by ``slewed_ns`` (negative: slow) over that time.

    They are while an error is corrected: by 0.05 % at most by the kernel, by up to 8.3 % where chronyd mends
    an error of seconds.
    """
    if abs(slewed_ns) / 1e9 > _slack_s(lasted_s):
        how = "fast" if slewed_ns > 0 else "slow"
        yield (
            f"this machine's clocks ran {abs(slewed_ns) / 1e9:.2f} s {how} in the {lasted_s:.2f} s of "
            f"its queries, as where their error is corrected, and no measured time counts; {_RIGHT_CLOCK}"
        )


def _slack_s(lasted_s: float) -> float:
    return CLOCK_S + CLOCK_PART * lasted_s


def is_of_clock(reason: str) -> bool:
    """Whether a reason is one of ``clock_reasons`` or ``hidden_misses``: no rate is its remedy."""
    return reason.endswith(_RIGHT_CLOCK)


def hidden_misses(record: RunRecord, rows: Rows, steps_ns: int) -> Iterator[str]:
    """Limits that LoadGen saw kept, because the wall clock was set and set back while queries ran.

    ``steps_ns`` is the sum of its steps.
    """
    loadgen, limits_ns = record.loadgen, record.judged_limits_ns
    if loadgen is None or not loadgen.result_valid or not limits_ns or steps_ns <= CLOCK_S * 1e9:
        return
    most = most_over_limit(len(rows), record.latency_percentile)
    for name, over in (("TTFT", late_first_tokens), ("TPOT", surely_slow)):
        if text := over_limit_text(name, len(over(rows, limits_ns[name])), most):
            yield (
                f"{text}, by this client's own clock: the wall clock was set, which hid them from LoadGen; "
                f"{_RIGHT_CLOCK}"
            )


def _loadgen_reasons(
    record: RunRecord, loadgen: LoadgenSummary, rows: Rows, *, is_timed: bool
) -> Iterator[str]:
    """``is_timed``: its times count, and a rate follows from them."""
    if loadgen.problem:
        yield f"LoadGen's summary is {loadgen.problem}"
        return
    if loadgen.errors:
        yield f"LoadGen logged {counted(loadgen.errors, 'error')}" + _single_tokens(rows)
    if record.plan.accuracy:
        return
    if loadgen.result_valid is None:
        yield "LoadGen's summary has no result"
    elif not loadgen.result_valid:
        yield loadgen.invalid_line
        if is_timed:
            yield from _what_was_missed(loadgen, record.latency_percentile, stood=what_stood(record.events))


def _what_was_missed(loadgen: LoadgenSummary, percentile: float, *, stood: str) -> Iterator[str]:
    """Measured value and limit, and a rate to try; LoadGen's own words where none is known to be missed."""
    missed = missed_limits(loadgen, percentile)
    for name, (value_ns, limit_ns) in missed.items():
        at = f"{name} p{100 * percentile:g}"
        yield f"{at} is {milliseconds(value_ns)} ms, the limit is {milliseconds(limit_ns)} ms"
    yield from _rate_to_try(loadgen, percentile, stood=stood)
    for line in loadgen.recommendations:
        if line.partition(" ")[0] not in missed:
            yield line
    for name, lines in loadgen.early_stopping.items():
        if name not in missed and lines and lines[0].startswith(_NOT_STOPPED):
            yield f"{name} early stopping: {' '.join(lines)}".lstrip()


def _rate_to_try(loadgen: LoadgenSummary, percentile: float, *, stood: str) -> Iterator[str]:
    """After a missed limit, and in Offline and SingleStream for a run of the required length."""
    target, measured = target_qps(loadgen), loadgen.samples_per_s
    if measured and (guess := rate_after(loadgen, percentile)) is not None:
        advice = _SAME_RATE if stood else guess.text
        yield f"target_qps was {target:g}, {figure(measured)} samples/s were completed; {advice}"
    if loadgen.scenario == "Offline" and loadgen.constraints.get("Min duration") is False and measured:
        yield (
            f"target_qps was {target:g}, {figure(measured)} samples/s were measured: "
            f"with target_qps = {math.ceil(measured)} LoadGen makes the query long enough"
        )
    mean_ns = loadgen.figures.get("Mean latency (ns)")
    if loadgen.scenario == "SingleStream" and loadgen.constraints.get("Min duration") is False and mean_ns:
        yield (  # LoadGen's summary has the latency that was expected as a rate
            f"target_latency was {1000 / target:g} ms, {milliseconds(mean_ns)} ms were measured on average: "
            f"with target_latency = {max(1, math.floor(mean_ns / 1e6))} LoadGen has queries for long enough"
        )


def _single_tokens(rows: Rows) -> str:
    singles = int((completed(rows)["osl"] == 1).sum())
    return (
        f" ({counted(singles, 'answer', 'has')} a single token, so LoadGen can compute no TPOT of them)"
        if singles
        else ""
    )


def _accuracy_reasons(rows: Rows, samples: int) -> Iterator[str]:
    counts = np.bincount(completed(rows)["sample_index"], minlength=samples)
    missing, repeated = int((counts == 0).sum()), int((counts > 1).sum())
    if missing:
        yield f"{missing} of {samples} samples have no answer"
    if repeated:
        yield f"{counted(repeated, 'sample', 'was')} answered more than once"
