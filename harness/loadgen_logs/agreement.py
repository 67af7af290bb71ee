"""Figures that LoadGen writes twice: a line of the summary and a row of the detail log, which must agree.

The names are those of PerformanceSummary::LogSummary and LogDetail (results.cc) and of
TestSettingsInternal::LogSummary and LogEffectiveSettings (test_settings_internal.cc).
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.loadgen_logs.summary_and_detail import LoadgenDetail

PERCENTS = ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")
_EVERY = {
    "SUT name": "sut_name",
    "Scenario": "effective_scenario",
    "Mode": "effective_test_mode",
    "Result is": "result_validity",
    "Min duration satisfied": "result_min_duration_met",
    "Min queries satisfied": "result_min_queries_met",
    "Early stopping satisfied": "early_stopping_met",
    **{f"{kind} latency (ns)": f"result_{kind.lower()}_latency_ns" for kind in ("Min", "Max", "Mean")},
    **{f"{p} percentile latency (ns)": f"result_{p}_percentile_latency_ns" for p in PERCENTS},
}
_TOKENS = {
    **{
        f"{kind} First Token latency (ns)": f"result_first_token_{kind.lower()}_latency_ns"
        for kind in ("Min", "Max", "Mean")
    },
    **{
        f"{p} percentile first token latency (ns)": f"result_first_token_{p}_percentile_latency_ns"
        for p in PERCENTS
    },
    **{
        f"{kind} Time per Output Token (ns)": f"result_time_to_output_token_{kind.lower()}"
        for kind in ("Min", "Max", "Mean")
    },
    **{
        f"{p} percentile time to output token (ns)": f"result_time_per_output_token_{p}_percentile_ns"
        for p in PERCENTS
    },
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
        "90.0th percentile latency (ns)": "result_90.00_percentile_latency_ns",
        "90.0th first token percentile latency (ns)": "result_first_token_90.00_percentile_latency_ns",
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
_OLD_NAME = ("Time to Output Token", "Time per Output Token")  # of LoadGen 5.1, and its name since
_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?(e[+-][0-9]{1,3})?")
_TWO_DECIMALS = re.compile(r"[0-9]+\.[0-9]{2}")
_SCALES = {"result_token_throughput": 1e9}  # the detail log has tokens per ns
_SIX_DIGITS = 5e-6  # the detail log rounds fractions to six digits: by this share at most
_WORDS = {"Yes": True, "NO": False}


def disagreements(summary: str, detail: LoadgenDetail) -> Iterator[str]:
    """Figures of a performance run that are missing or differ: the text of its summary and its detail log."""
    values = detail.values
    figures = FIGURES.get(str(values.get("effective_scenario")))
    if figures is None:
        return
    stated = list(_stated(summary))
    names = {name for name, _ in stated}
    if (other := dict(stated).get("Scenario", "")) in FIGURES and FIGURES[other] is not figures:
        yield f"Scenario is {other} in the summary, {values['effective_scenario']} in the detail log"
        return
    yield from (f"the summary has no line {name!r}" for name in figures if name not in names)
    yield from (f"the detail log has no row {key}" for key in figures.values() if not _is_figure(values, key))
    for name, text in stated:
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
        name, colon, value = (part.strip() for part in line.partition(":"))
        if title and not line.startswith(" "):
            yield title, " ".join(bullets)
            title, bullets = "", []
        if title:
            bullets.append(" ".join(line.split()))
        elif name.endswith("Early Stopping Result"):
            title = name
        elif colon and value:
            yield name.replace(*_OLD_NAME), value


def _setting(name: str) -> str | None:
    """The row of a setting; None for a line that is no setting."""
    if (found := _SETTING.fullmatch(name)) is None:
        return None
    return _SETTINGS.get(name, "_".join(filter(None, ("effective", *found.groups()))))


def _same(text: str, key: str, logged: object) -> bool:
    """Whether both are the same value. Only rates with two decimals in the summary are rounded in both."""
    if isinstance(logged, bool):
        return text == str(int(logged)) or _WORDS.get(text) is logged
    if isinstance(logged, str):
        return " ".join(logged.split()) == text
    if not isinstance(logged, int | float) or not _NUMBER.fullmatch(text):
        return False
    number = int(text) if text.isdecimal() else float(text)
    if not _TWO_DECIMALS.fullmatch(text):
        return number == logged
    value = logged * _SCALES.get(key, 1)
    return abs(number - value) <= (0.005 + _SIX_DIGITS * abs(value)) * (1 + 1e-9)
