"""What is asked of the LoadGen logs of every run: whole, without errors, of this scenario and this round."""

from collections.abc import Iterator

from harness.submission.checks.check_context import Logs, Subject
from harness.submission.checks.issue import Complaint
from harness.submission.layout import DETAIL, SUMMARY

_NS_PER_MS = 1_000_000


_COMPLETE = "Max query count reached"  # an end as planned, where every sample was issued


def check_logs(subject: Subject, logs: Logs, mode: str, *, samples: int | None = None) -> Iterator[Complaint]:
    """``mode`` is LoadGen's: PerformanceOnly or AccuracyOnly. Damaged logs get no further complaints.

    ``samples`` are those of a test, which may end at its count of queries.
    """
    damage = list(_damage(subject, logs))
    yield from damage
    if damage:
        return
    yield from _agreement(subject, logs)
    yield from _errors(subject, logs, samples)
    found = logs.detail.effective.get("test_mode")
    if found != mode:
        yield subject.complaint("mode", logs.folder / DETAIL, f"test_mode is {found}, expected {mode}")
    yield from _scenario(subject, logs)
    yield from _seeds(subject, logs)


def usable(logs: Logs) -> bool:
    """Whether values of the detail log can be believed."""
    return not logs.detail.problem and not logs.summary.problem


def _damage(subject: Subject, logs: Logs) -> Iterator[Complaint]:
    for name, problem in ((SUMMARY, logs.summary.problem), (DETAIL, logs.detail.problem)):
        if problem == "missing":
            yield subject.complaint("missing-file", logs.folder / name, "is missing")
        elif problem:
            yield subject.complaint("log-damaged", logs.folder / name, f"is {problem}")


def _agreement(subject: Subject, logs: Logs) -> Iterator[Complaint]:
    """Both files say the same of what both say."""
    summary, detail = logs.summary, logs.detail
    valid = {"VALID": True, "INVALID": False}.get(str(detail.values.get("result_validity")))
    pairs = {
        "scenario": (summary.scenario, detail.effective.get("scenario") if summary.scenario else None),
        "result": (summary.result_valid, valid),
        "errors": (summary.errors, detail.error_count),
        "mean latency": (
            summary.figures.get("Mean latency (ns)"),
            detail.values.get("result_mean_latency_ns"),
        ),
    }
    for name, (one, other) in pairs.items():
        if one != other:
            text = f"{name} is {one} in the summary and {other} in the detail log"
            yield subject.complaint("logs-disagree", logs.folder / SUMMARY, text)


def _errors(subject: Subject, logs: Logs, samples: int | None) -> Iterator[Complaint]:
    """One complaint for all messages: the first says what kind of trouble it is."""
    count = max(logs.detail.error_count, int(logs.number("num_errors") or 0))
    if count:
        first = next(iter(logs.detail.errors), "no message")
        text = f"LoadGen logged {count} error{'s' * (count > 1)}: {first}"
        is_complete = samples is not None and logs.samples_issued == samples
        harmless = is_complete and all(_COMPLETE in message for message in logs.detail.errors or ("",))
        yield subject.complaint("loadgen-errors", logs.folder / DETAIL, text, note=harmless)


def _scenario(subject: Subject, logs: Logs) -> Iterator[Complaint]:
    found = logs.detail.effective.get("scenario")
    if found != subject.loadgen_scenario:
        text = f"scenario is {found}, expected {subject.loadgen_scenario} in a folder {subject.place.folder}"
        yield subject.complaint("scenario", logs.folder / DETAIL, text)
    elif subject.is_server:
        yield from _limits(subject, logs)


def _limits(subject: Subject, logs: Logs) -> Iterator[Complaint]:
    """Server and Interactive differ in nothing else that LoadGen logs."""
    requested = logs.detail.requested
    found = [_milliseconds(requested.get(f"server_{name}_latency")) for name in ("ttft", "tpot")]
    limits = subject.benchmark.latency_limits
    expected = limits.get(subject.scenario)
    if expected is None or found == [expected.ttft_ms, expected.tpot_ms]:
        return
    named = [name for name, limit in limits.items() if found == [limit.ttft_ms, limit.tpot_ms]]
    text = (
        f"TTFT/TPOT limits of the run are {found[0]}/{found[1]} ms"
        f"{f', those of {named[0]}' if named else ''}, expected {expected.ttft_ms}/{expected.tpot_ms} "
        f"for {subject.place.folder}"
    )
    yield subject.complaint("scenario", logs.folder / DETAIL, text)


def _milliseconds(value: object) -> object:
    return value / _NS_PER_MS if isinstance(value, int | float) else value


def _seeds(subject: Subject, logs: Logs) -> Iterator[Complaint]:
    effective = logs.detail.effective
    wrong = {name: effective.get(name) for name, seed in subject.seeds.items() if effective.get(name) != seed}
    if wrong:
        shown = ", ".join(
            f"{name} is {found}, expected {subject.seeds[name]}" for name, found in wrong.items()
        )
        yield subject.complaint("seeds", logs.folder / DETAIL, shown)


def check_sample_counts(subject: Subject, logs: Logs, expected: int, *settings: str) -> Iterator[Complaint]:
    """The dataset's size, samples that were issued, and ``settings`` of the detail log, against the rule."""
    found = {name: logs.values.get(name) for name in (*settings, "qsl_reported_total_count")}
    for name, value in {**found, "samples issued": logs.samples_issued}.items():
        if value != expected:
            text = f"{name} is {value}, expected {expected}"
            yield subject.complaint("sample-count", logs.folder / DETAIL, text)
