"""Checks of a performance run."""

from collections.abc import Iterator

from harness.compliance.registry import find_test, needed_tests
from harness.config.loadgen_settings import BY_ATTRIBUTE, PERFORMANCE_MODE
from harness.files import ACCURACY, ACCURACY_LOG, ACCURACY_TEXT, DETAIL, PERFORMANCE, SUMMARY
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES
from harness.submission.checks.context import CheckContext, Logs, read_logs
from harness.submission.checks.issue import Issue
from harness.submission.checks.loadgen_logs import check_logs, is_of_other_limits, usable
from harness.submission.tree.accuracy_files import parse_accuracy

# Settings of the benchmark that a performance run must have had, exactly; the others in closed results only.
_ALWAYS_LOCKED = "use_token_latencies"
_LOCKED = (
    _ALWAYS_LOCKED,
    "sample_concatenate_permutation",
    "server_target_latency_percentile",
    "performance_issue_same",
    "performance_issue_unique",
)
_AUDIT_WARNING = "Audit Config"
_NETWORK_SUT = "Network SUT"  # in the name of every SUT of the network division
# The mean output lengths of a performance run and of another run with the same prompts: TEST09, or accuracy.
# In the 117 published pairs of v6.0 and v5.1 they differ by 1.8 % at most.
_SAME_PROMPTS = 0.05
_TOKENS_PER_SAMPLE = "tokens_per_sample"  # of accuracy.txt
# Some harnesses count the first token twice: published means are 129.09 at most where 128 are possible.
_FIRST_TOKEN, _EDGE = 1, 1e-3


def check_performance(context: CheckContext) -> Iterator[Issue]:
    """All issues of ``performance/run_1``."""
    logs = read_logs(context, PERFORMANCE)
    yield from check_logs(context, logs, PERFORMANCE_MODE)
    if not usable(logs):
        return
    checks = (
        _result,
        _settings,
        _samples,
        _duration,
        _latency,
        _target,
        _mean_tokens,
        _audit,
        _network,
    )
    for check in checks:
        yield from check(context, logs)


def _result(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    if logs.summary.result_valid is not True:
        unmet = ", ".join(name for name, met in logs.summary.constraints.items() if not met)
        found = logs.values.get("result_validity")
        text = f"LoadGen's result is {found}: not satisfied: {unmet or 'no constraint named'}"
        yield context.issue("invalid", logs.folder / SUMMARY, text)
    if logs.values.get("early_stopping_met") is not True:
        text = f"early_stopping_met is {logs.values.get('early_stopping_met')}, expected true"
        yield context.issue("early-stopping", logs.folder / DETAIL, text)
    result = logs.number(context.scenario.result)
    if (result is None or result <= 0) and logs.detail.effective.get("scenario") == context.scenario.loadgen:
        text = f"{context.scenario.result}, the result, is {_shown(logs, context.scenario.result)}"
        yield context.issue("invalid", logs.folder / DETAIL, f"{text}, expected a number above 0")


def _settings(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    settings = context.benchmark.loadgen.settings
    locked = _LOCKED if context.closed else (_ALWAYS_LOCKED,)
    for setting in (BY_ATTRIBUTE[name] for name in locked if name in settings):
        found, expected = logs.values.get(setting.detail_key), settings[setting.attribute]
        if found != expected and context.scenario.loadgen in setting.scenarios:
            text = f"{setting.detail_key} is {found}, expected {expected}"
            yield context.issue("settings", logs.folder / DETAIL, text)


def _samples(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    expected = context.benchmark.dataset(accuracy=False).samples
    for key in ("effective_performance_sample_count", "qsl_reported_total_count"):
        if logs.values.get(key) != expected:
            text = f"{key} is {logs.values.get(key)}, expected {expected}"
            yield context.issue("sample-count", logs.folder / DETAIL, text)
    generated, answered = logs.values.get("generated_query_count"), logs.values.get("result_query_count")
    if generated != answered:
        text = f"result_query_count is {answered}, but {generated} queries were generated"
        yield context.issue("sample-count", logs.folder / DETAIL, text)
    queries = logs.number("effective_min_query_count")
    if context.scenario.one_query and (queries is None or queries < 1):
        text = f"effective_min_query_count is {_shown(logs, 'effective_min_query_count')}, expected 1 or more"
        yield context.issue("sample-count", logs.folder / DETAIL, text)
    if context.scenario.one_query and context.closed:
        yield from _one_query(context, logs, expected)


def _one_query(context: CheckContext, logs: Logs, expected: int) -> Iterator[Issue]:
    """The official checker reads the setting only; the samples that were generated are checked here too."""
    for key in ("effective_samples_per_query", "generated_samples_per_query"):
        found = logs.number(key)
        if found is None or found < expected:
            text = f"{key} is {found}, expected {expected} or more"
            yield context.issue("samples-per-query", logs.folder / DETAIL, text)


def _duration(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    expected = int(context.benchmark.loadgen.settings["min_duration_ms"])
    requested = logs.number("effective_min_duration_ms")
    if requested is None or requested < expected:
        text = f"effective_min_duration_ms is {requested}, expected {expected} or more"
        yield context.issue("min-duration", logs.folder / DETAIL, text)
    elif logs.lasted_s is not None and logs.lasted_s < requested / 1000:
        text = f"the run lasted {logs.lasted_s:.1f} s (power_end), min_duration was {requested / 1000:g} s"
        yield context.issue("min-duration", logs.folder / DETAIL, text)


def _latency(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    limit = context.benchmark.latency_limits.get(context.scenario)
    if limit is None or is_of_other_limits(context, logs):
        return
    for name, key, most in (
        ("TTFT", "result_first_token_99.00_percentile_latency_ns", limit.ttft_ms),
        ("TPOT", "result_time_per_output_token_99.00_percentile_ns", limit.tpot_ms),
    ):
        found = logs.number(key)
        if found is None or not found / 1e6 < most:
            shown = "not in the log" if found is None else f"{found / 1e6:.2f} ms"
            text = f"p99 of {name} is {shown}, expected less than {most} ms"
            yield context.issue("latency", logs.folder / DETAIL, text)


def _target(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    """The latency bound of LoadGen's early stopping; 0 where only TTFT and TPOT count."""
    most, found = (
        context.rules.target_latency_ms.get(context.benchmark.name),
        logs.number("effective_target_latency_ns"),
    )
    if most is not None and context.scenario.poisson and found is not None and found > most * 1e6:
        text = f"effective_target_latency_ns is {found}, expected {most * 1_000_000} or less"
        yield context.issue("latency", logs.folder / DETAIL, text)


def _network(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    name = str(logs.values.get("sut_name"))
    if context.dir.division == "network" and _NETWORK_SUT not in name:
        text = f"sut_name is {name!r}, expected {_NETWORK_SUT!r} in it"
        yield context.issue("settings", logs.folder / DETAIL, text)


def _mean_tokens(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    mean = logs.mean_tokens
    if not context.closed:
        return
    for name in needed_tests(context.benchmark):
        bounds = find_test(context.benchmark, name).mean_token_bounds
        if bounds is not None and (mean is None or not bounds[0] <= mean <= bounds[1]):
            shown = "not in the log" if mean is None else f"{mean:.2f}"
            text = f"mean output tokens are {shown}, expected {bounds[0]:.2f} to {bounds[1]:.2f}"
            yield context.issue("mean-tokens", logs.folder / DETAIL, text)
    if mean is None:
        return
    most = context.benchmark.dataset(accuracy=False).max_new_tokens + _FIRST_TOKEN
    if mean > most * (1 + _EDGE):
        text = f"mean output tokens are {mean:.2f}, but no output has more than {most - _FIRST_TOKEN}"
        yield context.issue("cross-check", logs.folder / DETAIL, text)
    for other, where in _same_prompts(context):
        if abs(mean / other - 1) > _SAME_PROMPTS:
            text = f"mean output tokens are {mean:.2f}, for the same prompts in {where} {other:.2f}"
            yield context.issue(
                "cross-check", logs.folder / DETAIL, f"{text}: {_SAME_PROMPTS:.0%} apart at most"
            )


def _same_prompts(context: CheckContext) -> Iterator[tuple[float, str]]:
    """Mean output lengths of other runs with the same prompts and the same limit, and their files."""
    benchmark, path = context.benchmark, context.dir.path
    for name in needed_tests(benchmark):
        test = find_test(benchmark, name)
        file = path / name / test.verify_file
        if test.mean_token_bounds is None or not file.is_file():
            continue
        if mean := test.read(file.read_text(encoding="utf-8", errors="replace")).figure:
            yield mean, f"{name}/{test.verify_file}"
    ours, theirs = benchmark.dataset(accuracy=False), benchmark.dataset(accuracy=True)
    file = path / ACCURACY / ACCURACY_TEXT
    if (ours.file, ours.max_new_tokens) == (theirs.file, theirs.max_new_tokens) and file.is_file():
        text = file.read_text(encoding="utf-8", errors="replace")
        if mean := parse_accuracy(text, (_TOKENS_PER_SAMPLE,)).score(_TOKENS_PER_SAMPLE):
            yield mean, (ACCURACY / ACCURACY_TEXT).as_posix()


def _shown(logs: Logs, key: str) -> object:
    return logs.values.get(key, "not in the log")


def _audit(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    effective = logs.detail.effective
    for name in ("accuracy_log_rng_seed", "accuracy_log_probability", "accuracy_log_sampling_target"):
        if effective.get(name):
            text = f"{name} is {effective[name]}, expected 0"
            yield context.issue("audit-in-force", logs.folder / DETAIL, text)
    for message in logs.detail.warnings:
        if _AUDIT_WARNING in message:
            yield context.issue("audit-in-force", logs.folder / DETAIL, f"LoadGen's warning: {message}")
    log = context.dir.path / PERFORMANCE / ACCURACY_LOG
    if log.is_file() and log.stat().st_size > EMPTY_LOG_BYTES:
        yield context.issue(
            "audit-in-force", log, "the performance run logged answers, expected an empty log"
        )
