"""What keeps a measured curve from being a submission, as far as its files say: the gravest first.

``check`` judges a tree with the official checker and rule by rule; these lines are for who looks at a page.
"""

from collections.abc import Iterator, Sequence

from harness.endpoints.planning.regions import LABELS, MANDATORY
from harness.endpoints.planning.rules import EndpointsRules
from harness.endpoints.planning.shortfalls import CLIENT, NAMED, not_run, run_shortfalls
from harness.endpoints.steady.steady_point import WINDOWABLE, is_official
from harness.endpoints.view.curve_files import MeasuredCurve
from harness.endpoints.view.measured_point import CurvePoint
from harness.grouping import by_key
from harness.text import first_few


def shortfalls(curve: MeasuredCurve) -> list[str]:
    """A line each."""
    ours = {one.name: one.run for one in curve.points if one.run is not None}
    return [
        *run_shortfalls(ours),
        *not_run([one.name for one in curve.not_run]),
        *_numberless(curve.points),
        *curve.problems,
        *(problem for one in curve.points for problem in one.problems),
        *_failures(curve.points),
        *_too_short(curve.points, curve.rules),
        *_partial(curve.points),
        *_unsteady(curve.points),
        *_accuracy(curve),
        *_offline(curve),
        *([CLIENT] if ours else []),
    ]


def _too_short(points: Sequence[CurvePoint], rules: EndpointsRules) -> Iterator[str]:
    """Without those that rehearse the forms only."""
    full = [one for one in points if one.run is None or not one.run.curve.short]
    least = {
        one.name: rules.least_issue_s(None if one.offline == "dedicated" else one.concurrency) for one in full
    }
    short = [one for one in full if 0 < _issued_s(one) < least[one.name]]
    if short:
        told = [f"{one.name} {_issued_s(one):,.0f} of {least[one.name]:,.0f} s" for one in short]
        yield f"issued for less than the rules' time (section 6.2): {_list(told)}"


def _issued_s(point: CurvePoint) -> float:
    """The time that counts: that of the official window, else of the run's issue, else of the run.

    Of a dedicated Offline run, which issues everything at once, it is that of the run.
    """
    if point.offline == "dedicated":
        return point.seconds or 0.0
    window = point.steady.window.duration_s if is_steady(point) and point.steady else None
    return window or (point.run.issue_s if point.run is not None else None) or point.seconds or 0.0


def _partial(points: Sequence[CurvePoint]) -> Iterator[str]:
    broken = [one.name for one in points if one.run is not None and one.run.issued % one.run.curve.samples]
    if broken:
        yield f"the last pass of the dataset is incomplete (section 6.4): {_list(broken)}"


def is_steady(point: CurvePoint) -> bool:
    """Whether its files state an official window."""
    block = point.steady
    return block is not None and is_official(block.status, block.verdict)


def _numberless(points: Sequence[CurvePoint]) -> Iterator[str]:
    """An incomplete point has another line."""
    ended = [one for one in points if one.run is None or one.run.complete]
    if unknown := [one.name for one in ended if one.system_tps is None and not one.problems]:
        yield f"no numbers: {_list(unknown)}"


def _failures(points: Sequence[CurvePoint]) -> Iterator[str]:
    failed = [f"{one.name} {one.failed:,} of {one.issued or 0:,}" for one in points if one.failed]
    if failed:
        yield f"failed requests: {_list(failed)}"


def _unsteady(points: Sequence[CurvePoint]) -> Iterator[str]:
    """A dedicated Offline run has no steady state."""
    found = [one for one in points if one.offline != "dedicated" and one.system_tps and not is_steady(one)]
    if found:
        words = by_key((steady_word(one), one.name) for one in found)
        told = "; ".join(f"{word} {_list(names)}" for word, names in words.items())
        yield f"no official steady window, so that the complete run counts (section 4.4): {told}"


def steady_word(point: CurvePoint) -> str:
    """``STEADY STATE``, or why there is none."""
    block = point.steady
    if block is None:
        return "not judged"
    return (block.verdict if block.status == WINDOWABLE else block.status) or "not judged"


def _accuracy(curve: MeasuredCurve) -> Iterator[str]:
    points = curve.points
    missed = by_key(
        (one.accuracy.line, one.name)
        for one in points
        if one.accuracy is not None and not one.accuracy.passed
    )
    for line, names in missed.items():
        yield f"accuracy of {_list(names)}: {line}"
    if unknown := [one.name for one in points if one.scored and one.accuracy is None]:
        yield f"accuracy without a target, since the model is none of the rules' here: {_list(unknown)}"
    scored = [one.concurrency for one in points if one.scored and one.offline != "dedicated"]
    known = list(filter(None, scored))
    bands = curve.regions.unscored(known, curve.c_min_override) if curve.regions else MANDATORY
    lacking = [LABELS[band] for band in bands]
    if not any(one.scored for one in points if one.offline != "none"):
        lacking.append("Offline")
    if lacking:
        yield f"no accuracy run (section 5.3): {_list(lacking)}"


def _offline(curve: MeasuredCurve) -> Iterator[str]:
    least = curve.rules.offline_part
    if (part := offline_part(curve)) is not None and part < least:
        yield (
            f"Offline has {part:.1%} of the throughput at C_max, the rules ask for {least:.0%} "
            "at least (section 5.7.2)"
        )


def offline_part(curve: MeasuredCurve) -> float | None:
    """The throughput of a dedicated Offline run as a part of that at C_max."""
    at_most = next((one for one in curve.steps if one.concurrency == curve.c_max), None)
    if curve.offline is None or curve.offline.offline != "dedicated" or at_most is None:
        return None
    rate, highest = curve.offline.system_tps, at_most.system_tps
    return rate / highest if rate and highest else None


def _list(names: Sequence[str]) -> str:
    return first_few(names, NAMED)
