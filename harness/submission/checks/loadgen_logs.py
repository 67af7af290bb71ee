"""Checks of every run's LoadGen logs: complete, without errors, of the right scenario and round."""

from collections.abc import Iterator

from harness.config.loadgen_settings import NS_PER_MS
from harness.files import DETAIL, SUMMARY
from harness.submission.checks.check_context import CheckContext, Logs
from harness.submission.checks.issue import Issue

_COMPLETE = "Max query count reached"  # no error where every sample was issued


def check_logs(
    context: CheckContext, logs: Logs, mode: str, *, samples: int | None = None
) -> Iterator[Issue]:
    """``mode`` is LoadGen's name of the mode. Damaged logs are not checked further.

    ``samples``: the count of a compliance test, which may end at its max_query_count.
    """
    damage = list(_damage(context, logs))
    yield from damage
    if damage:
        return
    yield from _agreement(context, logs)
    yield from _errors(context, logs, samples)
    found = logs.detail.effective.get("test_mode")
    if found != mode:
        yield context.issue("mode", logs.folder / DETAIL, f"test_mode is {found}, expected {mode}")
    yield from _scenario(context, logs)
    yield from _seeds(context, logs)


def usable(logs: Logs) -> bool:
    """Whether both logs are complete, so that their values can be checked."""
    return not logs.detail.problem and not logs.summary.problem


def _damage(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    for name, problem in ((SUMMARY, logs.summary.problem), (DETAIL, logs.detail.problem)):
        if problem == "missing":
            yield context.issue("missing-file", logs.folder / name, "is missing")
        elif problem:
            yield context.issue("log-damaged", logs.folder / name, f"is {problem}")


def _agreement(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    """Values that both files hold must be equal."""
    summary, detail = logs.summary, logs.detail
    pairs = {
        "scenario": (summary.scenario, detail.effective.get("scenario") if summary.scenario else None),
        "result": (summary.result_valid, detail.result_valid),
        "errors": (summary.errors, detail.error_count),
        "mean latency": (
            summary.figures.get("Mean latency (ns)"),
            detail.values.get("result_mean_latency_ns"),
        ),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            text = f"{name} is {one} in the summary and {other} in the detail log"
            yield context.issue("logs-disagree", logs.folder / SUMMARY, text)


def _errors(context: CheckContext, logs: Logs, samples: int | None) -> Iterator[Issue]:
    """One issue for all error messages, with the first one."""
    count = max(logs.detail.error_count, int(logs.number("num_errors") or 0))
    if count:
        first = next(iter(logs.detail.errors), "no message")
        text = f"LoadGen logged {count} error{'s' * (count > 1)}: {first}"
        is_complete = samples is not None and logs.samples_issued == samples
        harmless = is_complete and all(_COMPLETE in message for message in logs.detail.errors or ("",))
        yield context.issue("loadgen-errors", logs.folder / DETAIL, text, is_warning=harmless)


def _scenario(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    found = logs.detail.effective.get("scenario")
    if found != context.scenario.loadgen:
        text = f"scenario is {found}, expected {context.scenario.loadgen} in a folder {context.dir.folder}"
        yield context.issue("scenario", logs.folder / DETAIL, text)
    elif context.scenario.poisson:
        yield from _limits(context, logs)


def _limits(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    """The latency limits: the only logged difference between Server and Interactive."""
    requested = logs.detail.requested
    found = [_milliseconds(requested.get(f"server_{name}_latency")) for name in ("ttft", "tpot")]
    limits = context.benchmark.latency_limits
    expected = limits.get(context.scenario)
    if expected is None or found == [expected.ttft_ms, expected.tpot_ms]:
        return
    named = [name for name, limit in limits.items() if found == [limit.ttft_ms, limit.tpot_ms]]
    text = (
        f"TTFT/TPOT limits of the run are {found[0]}/{found[1]} ms"
        f"{f', those of {named[0]}' if named else ''}, expected {expected.ttft_ms}/{expected.tpot_ms} "
        f"for {context.dir.folder}"
    )
    yield context.issue("scenario", logs.folder / DETAIL, text)


def _milliseconds(value: object) -> object:
    return value / NS_PER_MS if isinstance(value, int | float) else value


def _seeds(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    effective = logs.detail.effective
    wrong = {
        name: effective.get(name) for name, seed in context.rules.seeds.items() if effective.get(name) != seed
    }
    if wrong:
        shown = ", ".join(
            f"{name} is {found}, expected {context.rules.seeds[name]}" for name, found in wrong.items()
        )
        yield context.issue("seeds", logs.folder / DETAIL, shown)


def check_sample_counts(context: CheckContext, logs: Logs, expected: int, *settings: str) -> Iterator[Issue]:
    """Compare dataset size, samples issued and ``settings`` of the detail log with ``expected``."""
    found = {name: logs.values.get(name) for name in (*settings, "qsl_reported_total_count")}
    for name, value in {**found, "samples issued": logs.samples_issued}.items():
        if value != expected:
            text = f"{name} is {value}, expected {expected}"
            yield context.issue("sample-count", logs.folder / DETAIL, text)
