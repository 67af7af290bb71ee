"""The title block of a run's page: the verdict that counts, its figures against their bounds, its doubts."""

from collections.abc import Iterator

from harness.analysis.run_outcome import STATUS_OF, RunOutcome, limit_status, metric_text, number
from harness.report.html.page import Badge, Tile
from harness.text import counted, first_few, moment

_SHOWN = 3  # deviations that are named in the title block


def outcome_badges(one: RunOutcome) -> Iterator[Badge]:
    """The verdict that counts first: green only where score and test have passed, too."""
    verdict = one.verdict
    yield Badge(verdict.text, verdict.status, _explains(one))
    if verdict.text != one.result:
        yield Badge(f"run {one.result}", "bad" if one.result != "VALID" else "plain", "#verdict")
    if one.record is not None and not one.official:
        yield Badge("NOT OFFICIAL", "warn", "#deviations")
    if one.record is not None and one.record.warnings:
        yield Badge(counted(len(one.record.warnings), "warning"), "plain", "#warnings")


def _explains(one: RunOutcome) -> str:
    """The section that explains the verdict."""
    if one.verdict.text == one.result or (one.score is None and one.compliance is None):
        return "#verdict"
    return "#accuracy" if one.score is not None else ""


def score_reasons(one: RunOutcome) -> Iterator[str]:
    """The failed metrics, and the test that failed or is not verified."""
    if one.score is not None and not one.score.target.met:
        missed = [f"{name} is {metric_text(metric)}" for name, metric in one.metrics if not metric.met]
        lacking = (
            [f"{counted(len(one.score.missing), 'sample', 'has')} no output"] if one.score.missing else []
        )
        yield f"The score is missed by the {one.score.target.mode} rules: {'; '.join([*missed, *lacking])}."
    test = one.compliance
    if test is not None and test.passed is False:
        yield f"{test.test} failed" + (f": {test.measured}." if test.measured else ".")
    if test is not None and test.passed is None:
        yield f"{test.test} is not verified yet."


def deviation_reasons(one: RunOutcome) -> Iterator[str]:
    """The first deviations from the rules."""
    if one.record is not None and (deviations := one.record.deviations):
        yield f"NOT OFFICIAL: {first_few(deviations, _SHOWN, '; ')}"


def outcome_tiles(one: RunOutcome) -> Iterator[Tile]:
    """Score and test against their bounds, then the p99 as parts of their limits."""
    for name, metric in one.metrics:
        word = "PASS" if metric.met else "FAIL"
        bound = metric_text(metric).partition(", ")[2]
        yield Tile(
            f"{number(metric.value)} {word}", f"{name}, {bound}", "good" if metric.met else "bad", "#accuracy"
        )
    test = one.compliance
    if test is not None and test.figure is not None:
        word = {True: " PASS", False: " FAIL", None: ""}[test.passed]
        name = ", ".join(filter(None, (test.test, test.bounds)))
        yield Tile(f"{test.figure:g}{word}", name, STATUS_OF[test.passed])
    for name, part in one.p99_parts.items():
        yield Tile(f"{part:.1%}", f"{name} p99, of its limit", limit_status(part), "#verdict")


def clock(seconds: float) -> str:
    """``1:05`` or ``2:03:10``, as the charts have it; parts of a second below ten seconds."""
    return f"{seconds:.3g} s" if seconds < 10 else moment(round(seconds))
