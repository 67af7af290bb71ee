"""Checks of a performance run."""

from collections.abc import Iterator

from harness.config.loadgen_settings import BY_ATTRIBUTE, NS_PER_MS, PERFORMANCE_MODE
from harness.files import ACCURACY, ACCURACY_LOG, ACCURACY_TEXT, DETAIL, PERFORMANCE, SUMMARY
from harness.loadgen_logs.accuracy_log import EMPTY_LOG_BYTES
from harness.loadgen_logs.summary_and_detail import LoadgenDetail
from harness.submission.checks.context import CheckContext, read_logs
from harness.submission.checks.issue import Issue
from harness.submission.checks.loadgen_logs import check_logs, is_of_other_limits, logged, usable
from harness.submission.tree.accuracy_files import read_accuracy_text

# Settings of the benchmark that a performance run must have had exactly; open results need the first alone.
_ALWAYS_LOCKED = "use_token_latencies"
_LOCKED = (
    _ALWAYS_LOCKED,
    "sample_concatenate_permutation",
    "server_target_latency_percentile",
    "performance_issue_same",
    "performance_issue_unique",
)
# Rows of the detail log.
TTFT_P99 = "result_first_token_99.00_percentile_latency_ns"
TPOT_P99 = "result_time_per_output_token_99.00_percentile_ns"
_AUDIT_WARNING = "Audit Config"
_NETWORK_SUT = "Network SUT"  # every SUT of the network division has it in its name
# Largest difference between the mean output lengths of a performance run and of another run with the same
# prompts (TEST09 or accuracy): 1.8 % in the 117 published pairs of v6.0 and v5.1.
_SAME_PROMPTS = 0.05
_TOKENS_PER_SAMPLE = "tokens_per_sample"  # accuracy.txt names it so
# Some harnesses count the first token twice: published means are 129.09 at most where 128 are possible.
_FIRST_TOKEN, _EDGE = 1, 1e-3


def check_performance(context: CheckContext) -> Iterator[Issue]:
    """All issues of ``performance/run_1``."""
    logs = read_logs(context, PERFORMANCE)
    yield from check_logs(context, logs, PERFORMANCE_MODE)
    if not usable(logs):
        return
    if context.is_inferred:
        text = (
            f"the result is inferred from a run of {context.scenario.folder}: MLCommons's checker takes its "
            f"samples/s, and its table calls them tokens/s; a run of {context.dir.folder} has its own"
        )
        yield context.issue("scenario", logs.folder, text, is_warning=True)
    if logs.summary.result_valid is not True:
        unmet = ", ".join(name for name, met in logs.summary.constraints.items() if not met)
        found = logs.detail.values.get("result_validity")
        text = f"LoadGen's result is {found}: not satisfied: {unmet or 'no constraint named'}"
        yield context.issue("invalid", logs.folder / SUMMARY, text)
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
        for code, text in check(context, logs.detail):
            yield context.issue(code, logs.folder / DETAIL, text)
    log = context.dir.path / PERFORMANCE / ACCURACY_LOG
    if log.is_file() and log.stat().st_size > EMPTY_LOG_BYTES:
        text = "the performance run logged answers, expected an empty log"
        yield context.issue("audit-in-force", log, text)


_Found = Iterator[tuple[str, str]]  # code and text of an issue of the detail log


def _result(context: CheckContext, detail: LoadgenDetail) -> _Found:
    met, key = detail.values.get("early_stopping_met"), context.scenario.result
    if met is not True:
        yield "early-stopping", f"early_stopping_met is {logged(met)}, expected true"
    result = detail.number(key)
    if (result is None or result <= 0) and detail.effective.get("scenario") == context.scenario.loadgen:
        found = logged(detail.values.get(key))
        yield "invalid", f"{key}, the result, is {found}, expected a number above 0"


def _settings(context: CheckContext, detail: LoadgenDetail) -> _Found:
    settings = context.benchmark.loadgen.settings
    locked = _LOCKED if context.closed else (_ALWAYS_LOCKED,)
    for setting in (BY_ATTRIBUTE[name] for name in locked if name in settings):
        found, expected = detail.values.get(setting.detail_key), settings[setting.attribute]
        if found != expected and context.scenario.loadgen in setting.scenarios:
            yield "settings", f"{setting.detail_key} is {logged(found)}, expected {expected}"


def _samples(context: CheckContext, detail: LoadgenDetail) -> _Found:
    expected, values = context.benchmark.dataset(accuracy=False).samples, detail.values
    for key in ("effective_performance_sample_count", "qsl_reported_total_count"):
        if values.get(key) != expected:
            yield "sample-count", f"{key} is {logged(values.get(key))}, expected {expected}"
    generated, answered = values.get("generated_query_count"), values.get("result_query_count")
    if generated != answered:
        yield (
            "sample-count",
            f"result_query_count is {logged(answered)}, generated_query_count {logged(generated)}",
        )
    if context.scenario.one_query:
        yield from _one_query(context, detail, expected)


def _one_query(context: CheckContext, detail: LoadgenDetail, expected: int) -> _Found:
    """The official checker reads the setting only; the samples that were generated are checked here too."""
    key = "effective_min_query_count"
    queries = detail.number(key)
    if queries is None or queries < 1:
        yield "sample-count", f"{key} is {logged(detail.values.get(key))}, expected 1 or more"
    if not context.closed:
        return
    for key in ("effective_samples_per_query", "generated_samples_per_query"):
        found = detail.number(key)
        if found is None or found < expected:
            yield "samples-per-query", f"{key} is {logged(found)}, expected {expected} or more"


def _duration(context: CheckContext, detail: LoadgenDetail) -> _Found:
    expected = int(context.benchmark.loadgen.settings["min_duration_ms"])
    requested, lasted = detail.number("effective_min_duration_ms"), detail.lasted_s
    if requested is None or requested < expected:
        yield "min-duration", f"effective_min_duration_ms is {logged(requested)}, expected {expected} or more"
    elif lasted is not None and lasted < requested / 1000:
        text = f"the run lasted {lasted:.1f} s (power_end), min_duration was {requested / 1000:g} s"
        yield "min-duration", text


def _latency(context: CheckContext, detail: LoadgenDetail) -> _Found:
    limit = context.benchmark.latency_limits.get(context.scenario)
    if limit is None or is_of_other_limits(context, detail):
        return
    for name, key, most in (
        ("TTFT", TTFT_P99, limit.ttft_ms),
        ("TPOT", TPOT_P99, limit.tpot_ms),
    ):
        found = detail.number(key)
        if found is None or not found / NS_PER_MS < most:
            shown = logged(None if found is None else f"{found / NS_PER_MS:.2f} ms")
            yield "latency", f"p99 of {name} is {shown}, expected less than {most} ms"


def _target(context: CheckContext, detail: LoadgenDetail) -> _Found:
    """The latency bound of LoadGen's early stopping; 0 where only TTFT and TPOT count."""
    key = "effective_target_latency_ns"
    most_ms, found = context.rules.target_latency_ms.get(context.benchmark.name), detail.number(key)
    if most_ms is None or not context.scenario.poisson:
        return
    if found is None or found > most_ms * NS_PER_MS:
        shown = logged(detail.values.get(key))
        yield "latency", f"{key} is {shown}, expected {most_ms * NS_PER_MS} or less"


def _network(context: CheckContext, detail: LoadgenDetail) -> _Found:
    name = str(detail.values.get("sut_name"))
    if context.dir.division == "network" and _NETWORK_SUT not in name:
        yield "settings", f"sut_name is {name!r}, expected {_NETWORK_SUT!r} in it"


def _mean_tokens(context: CheckContext, detail: LoadgenDetail) -> _Found:
    mean = detail.mean_tokens
    if not context.closed:
        return
    shown = logged(None if mean is None else f"{mean:.2f}")
    yield from out_of_bounds(context, mean, f"mean output tokens are {shown}")
    if mean is None:
        return
    most = context.benchmark.dataset(accuracy=False).max_new_tokens
    if mean > (most + _FIRST_TOKEN) * (1 + _EDGE):
        yield "cross-check", f"mean output tokens are {mean:.2f}, but no output has more than {most}"
    for other, where in _same_prompts(context):
        if abs(mean / other - 1) > _SAME_PROMPTS:
            text = f"mean output tokens are {mean:.2f}, for the same prompts in {where} {other:.2f}"
            yield "cross-check", f"{text}: {_SAME_PROMPTS:.0%} apart at most"


def out_of_bounds(context: CheckContext, mean: float | None, what: str) -> _Found:
    """``what`` with the bounds of a compliance test that the mean output length of a run is not within."""
    for low, high in filter(None, (test.mean_token_bounds for test in context.tests)):
        if mean is None or not low <= mean <= high:
            yield "mean-tokens", f"{what}, expected {low:.2f} to {high:.2f}"


def _same_prompts(context: CheckContext) -> Iterator[tuple[float, str]]:
    """Mean output lengths of other runs with the same prompts and the same limit, and their files."""
    benchmark, path = context.benchmark, context.dir.path
    for test in context.tests:
        text = context.read_verified(test)
        if test.mean_token_bounds is None or text is None:
            continue
        if mean := test.read(text).figure:
            yield mean, f"{test.name}/{test.verify_file}"
    ours, theirs = benchmark.dataset(accuracy=False), benchmark.dataset(accuracy=True)
    file = path / ACCURACY / ACCURACY_TEXT
    is_same = (ours.file, ours.max_new_tokens) == (theirs.file, theirs.max_new_tokens)
    scores = read_accuracy_text(file, (_TOKENS_PER_SAMPLE,)) if is_same and file.is_file() else None
    if scores and (mean := scores.score(_TOKENS_PER_SAMPLE)):
        yield mean, (ACCURACY / ACCURACY_TEXT).as_posix()


def _audit(context: CheckContext, detail: LoadgenDetail) -> _Found:
    effective = detail.effective
    for name in ("accuracy_log_rng_seed", "accuracy_log_probability", "accuracy_log_sampling_target"):
        if effective.get(name):
            yield "audit-in-force", f"{name} is {effective[name]}, expected 0"
    for message in detail.warnings:
        if _AUDIT_WARNING in message:
            yield "audit-in-force", f"LoadGen's warning: {message}"
