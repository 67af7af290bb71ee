"""Checks of every run's LoadGen logs: complete, without errors, of the right scenario and round."""

from collections.abc import Iterator
from pathlib import Path

from harness.config.loadgen_settings import NS_PER_MS, PERFORMANCE_MODE
from harness.config.rounds import available_rounds, seeds_of
from harness.files import ACCURACY, DETAIL, PERFORMANCE, SUMMARY
from harness.loadgen_logs.contradictions import contradictions, disagreements
from harness.loadgen_logs.summary_and_detail import LoadgenDetail
from harness.submission.checks.context import CheckContext, Logs, read_logs
from harness.submission.checks.issue import Issue
from harness.text import first_few

_VERSION = "loadgen_version"  # "6.0.17 @ 0123456789"
_LISTED = 3  # figures that differ: two logs of different runs differ in all
_COMPLETE = "Max query count reached"  # this is harmless where every sample was issued


def logged(value: object) -> object:
    """A value of the detail log for a message; one that it does not have is no ``None``."""
    return "not in the log" if value is None else value


def check_logs(
    context: CheckContext, logs: Logs, mode: str, *, samples: int | None = None
) -> Iterator[Issue]:
    """All issues of one run's logs; damaged logs are not checked further.

    ``mode`` is LoadGen's name of the mode, ``samples`` the count of a compliance test, which may end at its
    max_query_count.
    """
    damage = list(_damage(context, logs))
    yield from damage
    if damage:
        return
    yield from _errors(context, logs, samples)
    found = logs.detail.effective.get("test_mode")
    if found != mode:
        yield context.issue("mode", logs.folder / DETAIL, f"test_mode is {logged(found)}, expected {mode}")
    elif mode == PERFORMANCE_MODE:
        yield from _figures(context, logs)
    yield from _scenario(context, logs)
    yield from _seeds(context, logs)


def check_versions(context: CheckContext) -> Iterator[Issue]:
    """All runs of a result have one version of LoadGen; another release of one series is a warning.

    Five of the published v6.0 results were run with several of 6.0.
    """
    tests = (Path(test) / PERFORMANCE for test in context.benchmark.compliance)
    found = {folder: read_logs(context, folder).detail.values for folder in (PERFORMANCE, ACCURACY, *tests)}
    numbers = {
        folder: str(values[_VERSION]).split(" ")[0] for folder, values in found.items() if _VERSION in values
    }
    if len(set(numbers.values())) < 2:
        return
    shown = ", ".join(f"{folder.as_posix()} {number}" for folder, number in numbers.items())
    series = {tuple(number.split(".")[:2]) for number in numbers.values()}
    text = f"LoadGen's version is not the same in all runs: {shown}"
    yield context.issue("origin", Path(), text, is_warning=len(series) == 1)


def usable(logs: Logs) -> bool:
    """Whether both logs are complete, so that their values can be checked."""
    return not logs.detail.problem and not logs.summary.problem


def _damage(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    for name, problem in ((SUMMARY, logs.summary.problem), (DETAIL, logs.detail.problem)):
        if problem == "missing":
            yield context.missing(logs.folder / name)
        elif problem:
            yield context.issue("log-damaged", logs.folder / name, f"is {problem}")


def _figures(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    """Figures of a performance run that contradict each other."""
    text = (context.dir.path / logs.folder / SUMMARY).read_text(encoding="utf-8", errors="replace")
    found = list(disagreements(text, logs.detail))
    if found:
        yield context.issue("logs-disagree", logs.folder / SUMMARY, first_few(found, _LISTED, "; "))
    for what in contradictions(logs.detail):
        yield context.issue("cross-check", logs.folder / DETAIL, what)


def _errors(context: CheckContext, logs: Logs, samples: int | None) -> Iterator[Issue]:
    """One issue for all error messages, with the first one."""
    counted_there, counted_here = logs.summary.errors, logs.detail.error_count
    if counted_there != counted_here:
        text = f"the summary counts {counted_there} errors, the detail log has {counted_here}"
        yield context.issue("logs-disagree", logs.folder / SUMMARY, text)
    count = max(counted_here, int(logs.detail.number("num_errors") or 0))
    if count:
        first = next(iter(logs.detail.errors), "no message")
        text = f"LoadGen logged {count} error{'s' * (count > 1)}: {first}"
        is_complete = samples is not None and logs.detail.samples_issued == samples
        harmless = is_complete and all(_COMPLETE in message for message in logs.detail.errors or ("",))
        yield context.issue("loadgen-errors", logs.folder / DETAIL, text, is_warning=harmless)


def _scenario(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    found = logs.detail.effective.get("scenario")
    if found != context.scenario.loadgen:
        wanted = f"{context.scenario.loadgen} in a folder {context.dir.folder}"
        text = f"scenario is {logged(found)}, expected {wanted}"
        yield context.issue("scenario", logs.folder / DETAIL, text)
    elif context.scenario.poisson:
        yield from _limits(context, logs)


def _limits(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    """The latency limits: the only logged difference between Server and Interactive."""
    expected = context.benchmark.latency_limits.get(context.scenario)
    if expected is None or (found := _limits_of(logs.detail)) == (expected.ttft_ms, expected.tpot_ms):
        return
    named = _named(context, found)
    text = (
        f"TTFT/TPOT limits of the run are {logged(found[0])}/{logged(found[1])} ms"
        f"{f', those of {named[0]}' if named else ''}, expected {expected.ttft_ms}/{expected.tpot_ms} "
        f"for {context.dir.folder}"
    )
    yield context.issue("scenario" if named else "settings", logs.folder / DETAIL, text)


def is_of_other_limits(context: CheckContext, detail: LoadgenDetail) -> bool:
    """Whether the run had the limits of another scenario of the benchmark: it lies in the wrong folder."""
    named = _named(context, _limits_of(detail))
    return bool(named) and context.scenario not in named


def _limits_of(detail: LoadgenDetail) -> tuple[float | None, float | None]:
    """The limits of TTFT and TPOT in ms that LoadGen had; None for no number."""
    ttft, tpot = (detail.number(f"requested_server_{name}_latency") for name in ("ttft", "tpot"))
    return None if ttft is None else ttft / NS_PER_MS, None if tpot is None else tpot / NS_PER_MS


def _named(context: CheckContext, found: tuple[float | None, float | None]) -> list[str]:
    """The scenarios that have these limits."""
    limits = context.benchmark.latency_limits
    return [name for name, limit in limits.items() if found == (limit.ttft_ms, limit.tpot_ms)]


def _seeds(context: CheckContext, logs: Logs) -> Iterator[Issue]:
    expected = context.rules.seeds
    found = {name: logs.detail.effective.get(name) for name in expected}
    if found == expected:
        return
    path = logs.folder / DETAIL
    if other := next((name for name in available_rounds() if seeds_of(name) == found), None):
        remedy = f"name the round (--round {other}), or repeat the run with this round's LoadGen"
        yield context.issue("seeds", path, f"the seeds are those of {other}", remedy=remedy)
        return
    wrong = [name for name, seed in expected.items() if found[name] != seed]
    text = ", ".join(f"{name} is {logged(found[name])}, expected {expected[name]}" for name in wrong)
    yield context.issue("seeds", path, text)


def check_sample_counts(context: CheckContext, logs: Logs, expected: int, *settings: str) -> Iterator[Issue]:
    """Compare dataset size, samples issued and ``settings`` of the detail log with ``expected``."""
    found = {name: logs.detail.values.get(name) for name in (*settings, "qsl_reported_total_count")}
    for name, value in {**found, "samples issued": logs.detail.samples_issued}.items():
        if value != expected:
            text = f"{name} is {logged(value)}, expected {expected}"
            yield context.issue("sample-count", logs.folder / DETAIL, text)
