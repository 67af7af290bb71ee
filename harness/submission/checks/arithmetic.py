"""Figures of one detail log that follow from each other, whoever edited the summary to match.

LoadGen logs fractions with six digits. Every bound but those of the clock is exact but for that; the largest
differences in published logs: docs/guide/submission.md. A missing figure is NaN, which is within all bounds.
"""

import math
from collections.abc import Iterator

from harness.loadgen_logs.agreement import PERCENTS
from harness.submission.checks.context import Logs

_S = 1e9  # ns
_DIGITS = 5e-6  # the most that a figure of six digits is rounded by, as a share of it
_GAPS = 20  # mean gaps between two queries: the last gap of a Poisson schedule is longer once in 500 million
_P90_ESTIMATE = "early_stopping_latency_ss"
_CLOCK_S, _CLOCK_SHARE = 1.0, 1e-3  # power_begin and power_end are the machine's clock, in ms


def contradictions(logs: Logs) -> Iterator[str]:
    """One line for each relation that does not hold."""
    yield from _order(logs, "result_{}_latency_ns", "result_{}_percentile_latency_ns")
    scenario = logs.detail.effective.get("scenario")
    if scenario == "Offline":
        yield from _offline(logs)
        return
    yield from _order(logs, "result_first_token_{}_latency_ns", "result_first_token_{}_percentile_latency_ns")
    yield from _order(logs, "result_time_to_output_token_{}", "result_time_per_output_token_{}_percentile_ns")
    yield from _decoding(logs)
    if scenario == "Server":
        yield from _server(logs)
    elif scenario == "SingleStream":
        yield from _single_stream(logs)


def _order(logs: Logs, key: str, percentile: str) -> Iterator[str]:
    """No time is negative, and no percentile less than a lower one."""
    keys = [key.format("min"), *(percentile.format(percent) for percent in PERCENTS), key.format("max")]
    found = [_figure(logs, name) for name in keys]
    if found[0] < 0:
        yield f"{keys[0]} is {found[0]:.15g}, expected 0 or more"
    for at in range(1, len(keys)):
        if found[at] < found[at - 1]:
            yield f"{keys[at]} is {found[at]:.15g}, less than {keys[at - 1]}, {found[at - 1]:.15g}"
    mean = _figure(logs, key.format("mean"))
    if mean < found[0] or mean > found[-1]:
        bounds = f"{found[0]:.15g} to {found[-1]:.15g}"
        yield f"{key.format('mean')} is {mean:.15g}, but minimum and maximum are {bounds}"


def _offline(logs: Logs) -> Iterator[str]:
    """The query lasts as long as its longest sample."""
    rate, longest = _figure(logs, "result_samples_per_second"), _figure(logs, "result_max_latency_ns") / _S
    issued = math.nan if logs.samples_issued is None else logs.samples_issued
    product = "result_samples_per_second x result_max_latency_ns"
    yield from _equal(product, rate * longest, "samples issued", issued, 2 * _DIGITS)
    yield from _clock("result_max_latency_ns", longest, longest, logs)


def _server(logs: Logs) -> Iterator[str]:
    """Completed and scheduled rate, times, and tokens; both rates count all queries but the last."""
    queries, tokens = _figure(logs, "result_query_count"), _tokens(logs)
    done, due = (
        _ratio(queries - 1, _figure(logs, f"result_{kind}_samples_per_sec"))
        for kind in ("completed", "scheduled")
    )
    shortest, longest = (_figure(logs, f"result_{kind}_latency_ns") / _S for kind in ("min", "max"))
    rounding = 2 * _DIGITS * done
    if _outside(done - due, shortest - rounding, longest + rounding):
        yield (
            f"the last query was due after {due:.3f} s (result_scheduled_samples_per_sec), answered after "
            f"{done:.3f} s (result_completed_samples_per_sec); latencies are {shortest:.3f}..{longest:.3f} s"
        )
    planned = _figure(logs, "generated_query_duration") / _S
    if _outside(planned - due, -(margin := _GAPS * _ratio(due, queries) + 2 * _DIGITS * due), margin):
        yield (
            f"generated_query_duration is {planned:.3f} s, but by result_scheduled_samples_per_sec the last "
            f"query was due after {due:.3f} s"
        )
    yield from _clock("result_completed_samples_per_sec and the latencies", done, due + longest, logs)
    rate = _figure(logs, "result_completed_tokens_per_second")
    yield from _equal(
        "result_completed_tokens_per_second / result_completed_samples_per_sec x queries",
        rate * done,
        "tokens by result_token_throughput x result_mean_latency_ns x queries",
        tokens,
        4 * _DIGITS,
    )
    # The last query is issued when it is due or later, and before it is answered.
    issued = _figure(logs, "result_token_throughput_with_loadgen_overhead")
    if _outside(issued, rate * (1 - 3 * _DIGITS), _ratio(tokens, due) * (1 + 4 * _DIGITS)):
        yield (
            f"result_token_throughput_with_loadgen_overhead is {issued:.6g}, expected {rate:.6g} to "
            f"{_ratio(tokens, due):.6g}, the tokens until the last query's answer and until it was due"
        )


def _single_stream(logs: Logs) -> Iterator[str]:
    """Queries follow one another."""
    queries, mean = _figure(logs, "result_query_count"), _figure(logs, "result_mean_latency_ns") / _S
    rate = _figure(logs, "result_qps_without_loadgen_overhead")
    product = "result_qps_without_loadgen_overhead x result_mean_latency_ns"
    yield from _equal(product, rate * mean, "one query", 1, 2 * _DIGITS)
    issued = _ratio(queries - 1, _figure(logs, "result_qps_with_loadgen_overhead"))
    yield from _equal(
        "result_token_throughput_with_loadgen_overhead / result_qps_with_loadgen_overhead x queries",
        _figure(logs, "result_token_throughput_with_loadgen_overhead") * issued,
        "tokens by result_token_throughput x result_mean_latency_ns x queries",
        _tokens(logs),
        5 * _DIGITS,
    )
    ended = _ratio(_tokens(logs), _figure(logs, "result_completed_tokens_per_second"))
    yield from _clock("result_completed_tokens_per_second", ended, ended, logs)
    yield from _clock("result_mean_latency_ns x queries", queries * mean, math.inf, logs)
    for key in (_P90_ESTIMATE, "early_stopping_latency_ms"):
        # LoadGen's estimate of p99 is 0 where there are too few queries for one; that of p90 is needed.
        estimate, text = logs.values.get(key), str(logs.values.get("early_stopping_ttft_result"))
        if (estimate or key == _P90_ESTIMATE) and str(estimate) not in text.split():
            yield f"{key} is {estimate}, which early_stopping_ttft_result does not name: {text.strip()}"


def _decoding(logs: Logs) -> Iterator[str]:
    """What is not TTFT is TPOT: at most p99 for 99 % of the samples, at most the longest latency for 1 %."""
    queries = _figure(logs, "result_query_count")
    mean, first, longest = (
        _figure(logs, f"result_{name}_latency_ns") for name in ("mean", "first_token_mean", "max")
    )
    found = _figure(logs, "result_time_per_output_token_99.00_percentile_ns")
    least = _ratio(mean - first - (0.01 + _ratio(1, queries)) * longest, _ratio(_tokens(logs), queries) - 1)
    if found < least * (1 - 2 * _DIGITS):
        yield (
            f"p99 of TPOT is {found / 1e6:.3f} ms, but latencies, TTFT and tokens per sample "
            f"need {least / 1e6:.3f} ms or more"
        )


def _clock(what: str, least: float, most: float, logs: Logs) -> Iterator[str]:
    """The seconds between power_begin and power_end are within these bounds."""
    lasted = math.nan if logs.lasted_s is None else logs.lasted_s
    slack = _CLOCK_S + _CLOCK_SHARE * lasted
    if _outside(lasted, least - slack, most + slack):
        expected = f"{least:.3f} s" if least == most else f"{least:.3f} to {most:.3f} s"
        yield f"the run lasted {lasted:.3f} s (power_begin to power_end), by {what} {expected}"


def _equal(what: str, one: float, name: str, other: float, tolerance: float) -> Iterator[str]:
    if _outside(_ratio(one, other), 1 - tolerance, 1 + tolerance):
        yield f"{what} is {one:.6g}, {name} {other:.6g}"


def _outside(value: float, low: float, high: float) -> bool:
    """False for NaN: what is not known is no contradiction."""
    return value < low or value > high


def _tokens(logs: Logs) -> float:
    """Output tokens of all samples; LoadGen logs tokens per ns of all latencies."""
    per_ns, mean = _figure(logs, "result_token_throughput"), _figure(logs, "result_mean_latency_ns")
    return per_ns * mean * _figure(logs, "result_query_count")


def _figure(logs: Logs, key: str) -> float:
    """A row's number, NaN where there is none."""
    found = logs.number(key)
    return math.nan if found is None else float(found)


def _ratio(one: float, other: float) -> float:
    return one / other if other else math.nan
