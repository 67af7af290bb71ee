"""Figures of a performance run that contradict each other: in its two logs, or in the detail log alone.

The names are those of PerformanceSummary::LogSummary and LogDetail (results.cc) and of
TestSettingsInternal::LogSummary and LogEffectiveSettings (test_settings_internal.cc).
LoadGen logs fractions with six digits. Every bound but those of the clock is exact but for that; the largest
differences in published logs: docs/design/validation.md.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.loadgen_logs.summary_and_detail import LARGEST, PERCENTS, LoadgenDetail

# The rows of each time in the detail log: of minimum, maximum and mean, and of a percentile.
_LATENCY = "result_{}_latency_ns", "result_{}_percentile_latency_ns"
_TTFT = "result_first_token_{}_latency_ns", "result_first_token_{}_percentile_latency_ns"
_TPOT = "result_time_to_output_token_{}", "result_time_per_output_token_{}_percentile_ns"


def _rows_by_line(line: str, percentile_line: str, row: str, percentile_row: str) -> dict[str, str]:
    found = {line.format(kind): row.format(kind.lower()) for kind in ("Min", "Max", "Mean")}
    return found | {percentile_line.format(percent): percentile_row.format(percent) for percent in PERCENTS}


_EVERY = {
    "SUT name": "sut_name",
    "Scenario": "effective_scenario",
    "Mode": "effective_test_mode",
    "Result is": "result_validity",
    "Min duration satisfied": "result_min_duration_met",
    "Min queries satisfied": "result_min_queries_met",
    "Early stopping satisfied": "early_stopping_met",
    **_rows_by_line("{} latency (ns)", "{} percentile latency (ns)", *_LATENCY),
}
_TOKENS = {
    **_rows_by_line("{} First Token latency (ns)", "{} percentile first token latency (ns)", *_TTFT),
    **_rows_by_line("{} Time per Output Token (ns)", "{} percentile time to output token (ns)", *_TPOT),
    "TTFT Early Stopping Result": "early_stopping_ttft_result",
    "TPOT Early Stopping Result": "early_stopping_tpot_result",
}
# The line of the summary and the row of the detail log, by LoadGen's scenario, of a run with token latencies.
FIGURES: dict[str, dict[str, str]] = {
    "Offline": {
        **_EVERY,
        "Samples per second": "result_samples_per_second",
        "Tokens per second": "result_tokens_per_second",
    },
    "Server": {
        **_EVERY,
        "Completed samples per second": "result_completed_samples_per_sec",
        "Completed tokens per second": "result_completed_tokens_per_second",
        "Performance constraints satisfied": "result_perf_constraints_met",
        "Scheduled samples per second": "result_scheduled_samples_per_sec",
        **_TOKENS,
    },
    "SingleStream": {
        **_EVERY,
        "QPS w/ loadgen overhead": "result_qps_with_loadgen_overhead",
        "QPS w/o loadgen overhead": "result_qps_without_loadgen_overhead",
        "TPS w/ loadgen overhead": "result_token_throughput_with_loadgen_overhead",
        "TPS w/o loadgen overhead": "result_token_throughput",
        **_TOKENS,
    },
}
# Settings whose row is not effective_<name>_<unit>; LoadGen logs these limits in Server alone.
_SETTINGS = {
    "ttft_latency (ns)": "requested_server_ttft_latency",
    "tpot_latency (ns)": "requested_server_tpot_latency",
}
_SETTING = re.compile(r"([a-z_]+)(?: \((ns|ms)\))?")
_OLD_NAME = "Time to Output Token", "Time per Output Token"  # LoadGen 5.1's, and its name since
_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?(e[+-][0-9]{1,3})?")
_TWO_DECIMALS = re.compile(r"[0-9]+\.[0-9]{2}")
_SCALES = {"result_token_throughput": 1e9}  # the detail log has tokens per ns
_DIGITS = 5e-6  # the largest share of a figure by which six digits round it
_WORDS = {"Yes": True, "NO": False}


# SingleStream's result, of which the summary has one percentile: that of the settings.
_SINGLE_STREAM = {
    "{:.1f}th percentile latency (ns)": _LATENCY[1],
    "{:.1f}th first token percentile latency (ns)": _TTFT[1],
}


def _results(values: Mapping[str, Any]) -> dict[str, str]:
    """The lines and rows of SingleStream's result; none of other scenarios, or where no row has it."""
    share = values.get("effective_target_latency_percentile")
    if values.get("effective_scenario") != "SingleStream" or not isinstance(share, int | float):
        return {}
    if (percent := f"{100 * share:.2f}") not in PERCENTS:
        return {}
    return {line.format(100 * share): row.format(percent) for line, row in _SINGLE_STREAM.items()}


def disagreements(summary: str, detail: LoadgenDetail) -> Iterator[str]:
    """One line for each figure that is missing or differs in the text of a summary and the detail log."""
    values = detail.values
    scenario = str(values.get("effective_scenario"))
    if scenario not in FIGURES:
        return
    figures = FIGURES[scenario] | _results(values)
    lines = list(_stated(summary))
    by_name = dict(lines)
    if (other := by_name.get("Scenario", "")) in FIGURES and other != scenario:
        yield f"Scenario is {other} in the summary, {scenario} in the detail log"
        return
    yield from (f"the summary has no line {name!r}" for name in figures if name not in by_name)
    keys = dict.fromkeys(figures.values())
    yield from (f"the detail log has no row {key}" for key in keys if not _is_figure(values, key))
    for name, text in dict.fromkeys(lines):  # LoadGen prints its result among the statistics, too
        key = figures.get(name) or _setting(name)
        if key is not None and key in values and not _same(text, key, values[key]):
            yield f"{name} is {text} in the summary, {key} {values[key]} in the detail log"


def _is_figure(values: Mapping[str, Any], key: str) -> bool:
    """Whether the row exists; a number must be finite."""
    value = values.get(key)
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _stated(summary: str) -> Iterator[tuple[str, str]]:
    """The ``name : value`` lines, and the bullets of each early stopping result as one value."""
    title, bullets = "", list[str]()
    for line in summary.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if title and not line.startswith(" "):
            yield title, " ".join(bullets)
            title, bullets = "", []
        if title:
            bullets.append(" ".join(line.split()))
        elif name.endswith("Early Stopping Result"):
            title = name
        elif value:
            yield name.replace(*_OLD_NAME), value


def _setting(name: str) -> str | None:
    """The row of a setting; None for a line of anything else."""
    if (found := _SETTING.fullmatch(name)) is None:
        return None
    return _SETTINGS.get(name, "_".join(filter(None, ("effective", *found.groups()))))


def _same(text: str, key: str, logged: object) -> bool:
    """Whether both are the same value. Only rates with two decimals in the summary are rounded in both."""
    if isinstance(logged, bool):
        return text == str(int(logged)) or _WORDS.get(text) is logged
    if isinstance(logged, str):
        return " ".join(logged.split()) == text
    if not isinstance(logged, int | float) or abs(logged) > LARGEST or not _NUMBER.fullmatch(text):
        return False
    number = int(text) if text.isdecimal() else float(text)
    if not _TWO_DECIMALS.fullmatch(text):
        return number == logged
    value = logged * _SCALES.get(key, 1)
    return abs(number - value) <= (0.005 + _DIGITS * abs(value)) * (1 + 1e-9)


_S = 1e9  # ns
_GAPS = 20  # mean gaps between two queries: the last gap of a Poisson schedule is longer once in 500 million
TOO_FEW = "Only processed"  # LoadGen's first words where it cannot estimate p90
_P90_ESTIMATE = "early_stopping_latency_ss"
_CLOCK_S, _CLOCK_SHARE = 1.0, 1e-3  # power_begin and power_end are the machine's clock, in ms


class _Figures:
    """Numbers of a detail log. A missing one is NaN, which is within all bounds."""

    def __init__(self, detail: LoadgenDetail) -> None:
        self.detail = detail
        self.queries = self["result_query_count"]
        # LoadGen logs the tokens of all samples per ns of all latencies.
        self.tokens = self["result_token_throughput"] * self["result_mean_latency_ns"] * self.queries

    def __getitem__(self, key: str) -> float:
        return _or_nan(self.detail.number(key))

    def seconds(self, key: str) -> float:
        """A row in ns."""
        return self[key] / _S


def contradictions(detail: LoadgenDetail) -> Iterator[str]:
    """One line for each relation between rows that does not hold, whoever edited the summary to match."""
    of, scenario = _Figures(detail), detail.effective.get("scenario")
    yield from _order(of, *_LATENCY)
    if scenario == "Offline":
        yield from _offline(of)
        return
    yield from _order(of, *_TTFT)
    yield from _order(of, *_TPOT)
    yield from _decoding(of)
    if scenario == "Server":
        yield from _server(of)
    elif scenario == "SingleStream":
        yield from _single_stream(of)


def _order(of: _Figures, row: str, percentile_row: str) -> Iterator[str]:
    """No time is negative, and no percentile less than a lower one."""
    keys = [row.format("min"), *map(percentile_row.format, PERCENTS), row.format("max")]
    found = [of[key] for key in keys]
    if found[0] < 0:
        yield f"{keys[0]} is {found[0]:.15g}, expected 0 or more"
    for at in range(1, len(keys)):
        if found[at] < found[at - 1]:
            yield f"{keys[at]} is {found[at]:.15g}, less than {keys[at - 1]}, {found[at - 1]:.15g}"
    mean = of[row.format("mean")]
    if _outside(mean, found[0], found[-1]):
        bounds = f"{found[0]:.15g} to {found[-1]:.15g}"
        yield f"{row.format('mean')} is {mean:.15g}, but minimum and maximum are {bounds}"


def _offline(of: _Figures) -> Iterator[str]:
    """The query lasts as long as its longest sample."""
    longest, issued = of.seconds("result_max_latency_ns"), _or_nan(of.detail.samples_issued)
    product = "result_samples_per_second x result_max_latency_ns"
    yield from _equal(
        product, of["result_samples_per_second"] * longest, "samples issued", issued, 2 * _DIGITS
    )
    yield from _clock(of, "result_max_latency_ns", longest, longest)


def _server(of: _Figures) -> Iterator[str]:
    """Completed and scheduled rate, times, and tokens; both rates count all queries but the last."""
    done = _ratio(of.queries - 1, of["result_completed_samples_per_sec"])
    due = _ratio(of.queries - 1, of["result_scheduled_samples_per_sec"])
    shortest, longest = of.seconds("result_min_latency_ns"), of.seconds("result_max_latency_ns")
    rounding = 2 * _DIGITS * done
    if _outside(done - due, shortest - rounding, longest + rounding):
        yield (
            f"the last query was due after {due:.3f} s (result_scheduled_samples_per_sec), answered after "
            f"{done:.3f} s (result_completed_samples_per_sec); latencies are {shortest:.3f}..{longest:.3f} s"
        )
    planned = of.seconds("generated_query_duration")
    if abs(planned - due) > _GAPS * _ratio(due, of.queries) + 2 * _DIGITS * due:
        yield (
            f"generated_query_duration is {planned:.3f} s, but by result_scheduled_samples_per_sec the last "
            f"query was due after {due:.3f} s"
        )
    yield from _clock(of, "result_completed_samples_per_sec and the latencies", done, due + longest)
    yield from _server_tokens(of, done, due)


def _server_tokens(of: _Figures, done: float, due: float) -> Iterator[str]:
    """The last query is issued when it is ``due`` or later, and before it is answered, ``done``."""
    rate = of["result_completed_tokens_per_second"]
    yield from _equal(
        "result_completed_tokens_per_second / result_completed_samples_per_sec x queries",
        rate * done,
        "tokens by result_token_throughput x result_mean_latency_ns x queries",
        of.tokens,
        4 * _DIGITS,
    )
    issued, most = of["result_token_throughput_with_loadgen_overhead"], _ratio(of.tokens, due)
    if _outside(issued, rate * (1 - 3 * _DIGITS), most * (1 + 4 * _DIGITS)):
        yield (
            f"result_token_throughput_with_loadgen_overhead is {issued:.6g}, expected {rate:.6g} to "
            f"{most:.6g}, the tokens until the last query's answer and until it was due"
        )


def _single_stream(of: _Figures) -> Iterator[str]:
    """Queries follow one another."""
    mean = of.seconds("result_mean_latency_ns")
    product = "result_qps_without_loadgen_overhead x result_mean_latency_ns"
    rate = of["result_qps_without_loadgen_overhead"]
    yield from _equal(product, rate * mean, "one query", 1, 2 * _DIGITS)
    issued = _ratio(of.queries - 1, of["result_qps_with_loadgen_overhead"])
    yield from _equal(
        "result_token_throughput_with_loadgen_overhead / result_qps_with_loadgen_overhead x queries",
        of["result_token_throughput_with_loadgen_overhead"] * issued,
        "tokens by result_token_throughput x result_mean_latency_ns x queries",
        of.tokens,
        5 * _DIGITS,
    )
    ended = _ratio(of.tokens, of["result_completed_tokens_per_second"])
    yield from _clock(of, "result_completed_tokens_per_second", ended, ended)
    yield from _clock(of, "result_mean_latency_ns x queries", of.queries * mean, math.inf)
    values = of.detail.values
    for key in (_P90_ESTIMATE, "early_stopping_latency_ms"):
        # LoadGen's estimate is 0 where there are too few queries for one; with none for p90 it says INVALID.
        estimate, text = values.get(key), str(values.get("early_stopping_ttft_result"))
        is_named = key == _P90_ESTIMATE and not text.startswith(TOO_FEW)
        if (estimate or is_named) and str(estimate) not in text.split():
            found = "not in the log" if estimate is None else estimate
            yield f"{key} is {found}, early_stopping_ttft_result names another: {text.strip()}"


def _decoding(of: _Figures) -> Iterator[str]:
    """A latency without TTFT is decoding: at most p99 of TPOT for 99 % of the samples, and for the other 1 %
    at most the longest latency.
    """
    mean, first = of["result_mean_latency_ns"], of["result_first_token_mean_latency_ns"]
    others = (0.01 + _ratio(1, of.queries)) * of["result_max_latency_ns"]
    least = _ratio(mean - first - others, _ratio(of.tokens, of.queries) - 1)
    found = of["result_time_per_output_token_99.00_percentile_ns"]
    if found < least * (1 - 2 * _DIGITS):
        yield (
            f"p99 of TPOT is {found / 1e6:.3f} ms, but latencies, TTFT and tokens per sample "
            f"need {least / 1e6:.3f} ms or more"
        )


def _clock(of: _Figures, what: str, least: float, most: float) -> Iterator[str]:
    """The seconds between power_begin and power_end are within these bounds."""
    lasted = _or_nan(of.detail.lasted_s)
    slack = _CLOCK_S + _CLOCK_SHARE * lasted
    if _outside(lasted, least - slack, most + slack):
        expected = f"{least:.3f} s" if least == most else f"{least:.3f} to {most:.3f} s"
        yield f"the run lasted {lasted:.3f} s (power_begin to power_end), by {what} {expected}"


def _equal(what: str, one: float, name: str, other: float, tolerance: float) -> Iterator[str]:
    if _outside(_ratio(one, other), 1 - tolerance, 1 + tolerance):
        yield f"{what} is {one:.6g}, {name} {other:.6g}"


def _outside(value: float, low: float, high: float) -> bool:
    """Whether a value is beyond bounds; NaN never is."""
    return value < low or value > high


def _or_nan(found: float | None) -> float:
    return math.nan if found is None else float(found)


def _ratio(one: float, other: float) -> float:
    return one / other if other else math.nan
