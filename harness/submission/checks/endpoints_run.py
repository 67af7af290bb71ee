"""Checks of a result in the Endpoints layout, which MLCommons's checker takes in place of LoadGen's logs.

``<Scenario>/{config.yaml, performance/result_summary.json, accuracy/accuracy_results.json}``, and in audit/
the result of each compliance test that the client of MLPerf Endpoints makes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.config.loadgen_settings import NS_PER_MS
from harness.config.scenario import Scenario
from harness.endpoints import run_folder
from harness.endpoints.accuracy import PointAccuracy, read_accuracy
from harness.endpoints.official_files import (
    OFFLINE_PATTERN,
    Fields,
    at,
    is_number,
    number,
    of_percent,
    shown,
    tables,
)
from harness.endpoints.sampling import sampling_differences
from harness.errors import ConfigError
from harness.submission.checks.context import CheckContext
from harness.submission.checks.documents import check_scenario_documents
from harness.submission.checks.issue import Issue, table_in
from harness.submission.checks.performance_run import out_of_bounds
from harness.submission.tree.layout import endpoints_config
from harness.text import counted

SUMMARY, ACCURACY = Path(run_folder.SUMMARY), Path(run_folder.ACCURACY)
AUDIT = Path("audit")

_PERCENTILES = "early_stopping_percentiles"
_WINDOW = "legacy_loadgen_window_duration_ns"  # of the rates of Server, where it is stated
_ROUNDED = 1e-3
# The official names of the compliance tests in the client of Endpoints.
AUDITS = {
    "TEST04": "output_caching_test",
    "TEST06": "consistency_output_test",
    "TEST07": "accuracy_in_performance_full_test",
}
# How the client issues the queries of a scenario: its type, and its load pattern.
_TYPES = {Scenario.OFFLINE: ("offline", OFFLINE_PATTERN), Scenario.SINGLE_STREAM: ("online", "concurrency")}
_SERVER = ("online", "poisson")


def check_endpoints(context: CheckContext) -> Iterator[Issue]:
    """All issues of a scenario in this layout."""
    if context.benchmark.name not in context.rules.endpoints_benchmarks:
        text = f"{context.benchmark.name} may not be submitted with logs of Endpoints"
        yield context.issue("endpoints-benchmark", Path(), text)
    yield from check_scenario_documents(context, ("README.md",))
    folder, path = context.dir.path, endpoints_config(context.dir.path)
    config = yield from table_in(context.dir, folder / path)
    summary = yield from table_in(context.dir, folder / SUMMARY)
    accuracy = yield from table_in(context.dir, folder / ACCURACY)
    if config is not None:
        yield from _configuration(context, path, config)
    if summary is not None:
        yield from _performance(context, summary)
    if accuracy is not None:
        yield from _accuracy(context, accuracy)
    yield from _audits(context)


def _configuration(context: CheckContext, path: Path, config: Fields) -> Iterator[Issue]:
    kind, pattern = _TYPES.get(context.scenario, _SERVER)
    if config.get("type") != kind:
        text = f"type is {shown(config.get('type'))}, expected {kind} in {context.dir.folder}"
        yield context.issue("scenario", path, text)
    found = at(config, "settings", "load_pattern", "type")
    if found != pattern and context.closed:
        text = f"settings.load_pattern.type is {shown(found)}, expected {pattern}"
        yield context.issue("settings", path, text)
    for name, got, wanted in sampling_differences(config, context.benchmark) if context.closed else ():
        yield context.issue("settings", path, f"{name} is {got}, expected {wanted}")
    runtime = ("settings", "runtime")
    least, duration = int(context.benchmark.loadgen.settings["min_duration_ms"]), "min_duration_ms"
    if not is_number(found := at(config, *runtime, duration)) or found < least:
        text = f"settings.runtime.{duration} is {shown(found)}, expected {least} or more"
        yield context.issue("min-duration", path, text)
    for name, seed in (
        ("dataloader_random_seed", "sample_index_rng_seed"),
        ("scheduler_random_seed", "schedule_rng_seed"),
    ):
        found, expected = at(config, *runtime, name), context.rules.seeds[seed]
        if found != expected:
            text = f"settings.runtime.{name} is {shown(found)}, expected {seed} {expected}"
            yield context.issue("seeds", path, text)


def _performance(context: CheckContext, summary: Fields) -> Iterator[Issue]:
    yield from faults(context, summary)
    for code, text in _mean_tokens(context, summary):
        yield context.issue(code, SUMMARY, text)


_Found = Iterator[tuple[str, str]]  # code and text of an issue of result_summary.json


def faults(context: CheckContext, summary: Fields) -> Iterator[Issue]:
    """What keeps a run from being a result: the client has no verdict of its own."""
    for check in (_counts, _duration, _result, _rates, _latency):
        for code, text in check(context, summary):
            yield context.issue(code, SUMMARY, text)


def _counts(context: CheckContext, summary: Fields) -> _Found:
    """MLCommons's checker counts no requests here."""
    issued, completed, failed = (
        summary.get(f"n_samples_{name}") for name in ("issued", "completed", "failed")
    )
    least = context.benchmark.dataset(accuracy=False).samples
    if failed not in (None, 0):
        yield "failed-requests", f"{failed} of {issued} requests failed"
    if not is_number(completed) or completed < least:
        yield "sample-count", f"n_samples_completed is {shown(completed)}, expected {least} or more"
    elif not failed and issued != completed:
        yield "cross-check", f"{shown(issued)} were issued, {completed} completed and none failed"
    if summary.get("complete") is False:
        yield "invalid", f"the run is not complete: its state is {shown(summary.get('state'))}"


def _duration(context: CheckContext, summary: Fields) -> _Found:
    """The official checker reads the setting only. Offline lasts as long as the others: "1 query and 600
    seconds" (MLPerf Inference Rules, Scenarios).
    """
    least, found = int(context.benchmark.loadgen.settings["min_duration_ms"]), summary.get("duration_ns")
    if not is_number(found) or found <= 0:
        yield "invalid", f"duration_ns is {shown(found)}: there is no result"
    elif found < least * NS_PER_MS:
        yield "min-duration", f"the run lasted {found / 1e9:.1f} s, expected {least / 1000:g} s or more"


def _result(context: CheckContext, summary: Fields) -> _Found:
    """What MLCommons's checker takes for the result. The client writes null where it could count no tokens,
    or where there are too few samples for early stopping.
    """
    figures: dict[str, Any] = {}
    if context.scenario.poisson and summary.get("qps") is not None:
        figures["qps"] = summary["qps"]  # else it follows from n_samples_issued and duration_ns
    if context.scenario in (Scenario.OFFLINE, Scenario.SERVER):  # Offline since August 2026
        figures["tps"] = summary.get("tps")
    if context.scenario.one_at_a_time:
        figures["latency.avg"] = at(summary, "latency", "avg")
        figures[f"90.0 of latency.{_PERCENTILES}"] = estimate(summary, "latency", 90)
    for name, found in figures.items():
        if not is_number(found) or found <= 0:
            yield "invalid", f"{name} is {shown(found)}, expected a number above 0: there is no result"


def _rates(_: CheckContext, summary: Fields) -> _Found:
    """The client's rates are its counts over the run, or over LoadGen's window, without one request.

    MLCommons's checker takes them as they are.
    """
    window_ns = number(summary.get(_WINDOW))
    period_ns = number(summary.get("duration_ns")) if window_ns is None else window_ns
    completed = number(summary.get("n_samples_completed"))
    counts = {
        "qps": None if completed is None else completed - (window_ns is not None),
        "tps": number(at(summary, "output_sequence_lengths", "total")),
    }
    for name, count in counts.items():
        stated = number(summary.get(name))
        if not stated or not period_ns or count is None or period_ns < 0:
            continue
        if abs(stated - (found := count * 1e9 / period_ns)) > _ROUNDED * found:
            yield "cross-check", f"{name} is {stated:.6g}, its counts and time give {found:.6g}"


def _latency(context: CheckContext, summary: Fields) -> _Found:
    """Only percentiles with the margin of early stopping count."""
    limit = context.benchmark.latency_limits.get(context.scenario)
    if limit is None:
        return
    for name, most in (("ttft", limit.ttft_ms), ("tpot", limit.tpot_ms)):
        found = estimate(summary, name, 99)
        if not is_number(found) or not 0 < found / NS_PER_MS < most:
            p99 = f"{found / NS_PER_MS:.2f} ms" if is_number(found) else shown(found)
            text = f"99.0 of {name}.{_PERCENTILES} is {p99}, expected less than {most} ms"
            yield "latency", text


def estimate(summary: Fields, name: str, percent: int) -> Any:
    """A percentile with the margin of early stopping, in ns; None where the summary has none."""
    return of_percent(at(summary, name, _PERCENTILES), percent)


def _mean_tokens(context: CheckContext, summary: Fields) -> _Found:
    """MLCommons's checker takes the mean as it is stated; tokens/s follow from the sum."""
    if not context.closed:
        return
    mean = at(summary, "output_sequence_lengths", "avg")
    yield from out_of_bounds(context, number(mean), f"output_sequence_lengths.avg is {shown(mean)}")
    total = number(at(summary, "output_sequence_lengths", "total"))
    if total is not None and (completed := number(summary.get("n_samples_completed"))):
        what = f"output_sequence_lengths.total ÷ n_samples_completed is {total / completed:.2f}"
        yield from out_of_bounds(context, total / completed, what)


def _accuracy(context: CheckContext, accuracy: Fields) -> Iterator[Issue]:
    try:
        found = read_accuracy(context.dir.path, context.benchmark)
    except ConfigError as error:
        what = str(error).removeprefix(f"{context.dir.path / ACCURACY}: ")
        yield context.issue("malformed", ACCURACY, what)
        return
    if found is None:
        yield context.issue("accuracy", ACCURACY, "accuracy_scores has no score")
        return
    issued, expected = _issued(accuracy), context.benchmark.dataset(accuracy=True).samples
    if issued != expected:
        text = f"{counted(issued, 'sample', 'was')} evaluated (total_samples), expected {expected}"
        yield context.issue("sample-count", ACCURACY, text)
    elif found.samples != issued:  # the weights of the data sets' scores
        text = f"unit_samples × num_repeats are {found.samples}, total_samples {issued}"  # noqa: RUF001
        yield context.issue("cross-check", ACCURACY, text)
    if found.partial:
        text = "the score is not of every answer: complete is false"
        yield context.issue("sample-count", ACCURACY, text)
    if found.unanswered:
        text = f"{counted(found.unanswered, 'request', 'has')} no answer (response_counts.missing)"
        yield context.issue("sample-count", ACCURACY, text)
    if context.closed:
        yield from _bounded(context, found)


def _issued(accuracy: Fields) -> int:
    """The requests of the accuracy run; the client also scores the answers of the performance run."""
    listed = tables(accuracy, "accuracy_scores")
    return sum(_samples(one) for one in listed if one.get("dataset_type") in (None, "accuracy"))


def _samples(entry: Fields) -> int:
    issued = entry.get("total_samples", at(entry, "response_counts", "issued"))
    return int(issued) if is_number(issued) else 0


def _bounded(context: CheckContext, found: PointAccuracy) -> Iterator[Issue]:
    """MLCommons's checker compares no score of these benchmarks with its target.

    The client's score of deepseek-r1 is one number, without the tokens per sample.
    """
    for name in found.missing:
        is_score = name in found.lacks
        text = f"{name!r} is missing in accuracy_scores[].score"
        more = "" if is_score else ": its limits are not checked"
        yield context.issue("accuracy", ACCURACY, text + more, is_warning=not is_score)
    for name, metric in found.metrics.items():
        if not metric.is_met:
            text = f"{name} is {metric.value:.4f}, expected {metric.target}"
            yield context.issue("accuracy", ACCURACY, text)


def _audits(context: CheckContext) -> Iterator[Issue]:
    """Tests that are there must have passed; the client makes none that these benchmarks need."""
    names = [test.name for test in context.tests if context.closed and test.name in AUDITS]
    for name in names:
        path = context.dir.path / AUDIT / f"audit_{AUDITS[name]}.json"
        if not path.exists():
            continue
        result = yield from table_in(context.dir, path)
        if result is None:
            continue
        if result.get("test") != AUDITS[name]:
            text = f"test is {shown(result.get('test'))}, expected {AUDITS[name]}"
            yield context.issue("test-failed", path, text)
        elif result.get("passed") is not True:
            yield context.issue("test-failed", path, f"passed is {shown(result.get('passed'))}")
