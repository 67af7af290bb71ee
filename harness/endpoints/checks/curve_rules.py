"""Our rules of a curve: what its points have in common, and Offline against the point of C_max."""

import json
from collections.abc import Iterator, Mapping, Sequence

from harness.endpoints.checks.checked_point import PointFiles
from harness.endpoints.checks.finding import Finding, finding
from harness.endpoints.checks.point_rules import by_length
from harness.endpoints.official_files import Fields, number, shown, tables, whole
from harness.endpoints.point_run import PointRun
from harness.endpoints.run_folder import ACCURACY, POINT_YAML, SUMMARY, SYSTEM_DESC

_OF_THE_CURVE = ("model_precision", "max_supported_concurrency", "division", "target_cohort")
_OF_THE_WEIGHTS = ("quantization", "dtype")  # options of SGLang
_UTILIZATION_TOLERANCE = 0.005  # MLCommons's checker allows 0.1


def check_curve(points: Sequence[PointFiles]) -> Iterator[Finding]:
    """Rules over all points of one system and model."""
    measured = [one for one in points if not one.scored_alone]
    yield from _scored_alone(points, measured)
    if any(one.in_tree for one in measured):
        yield from _alike(measured)
        yield from _utilization(measured)
    yield from _weights(measured)
    yield from _offline(measured)
    yield from _copied(measured)


def _scored_alone(points: Sequence[PointFiles], measured: Sequence[PointFiles]) -> Iterator[Finding]:
    """An accuracy run of no point, such as what is left of one that lost its summary."""
    known = {(one.is_offline, one.concurrency) for one in measured}
    for one in points:
        if (one.is_offline, one.concurrency) not in known:
            yield finding("missing", one.where(SUMMARY), "is missing, and no other folder has this point")


def _alike(points: Sequence[PointFiles]) -> Iterator[Finding]:
    """What describes the curve, and not a point. A point.yaml that cannot be read is a finding of its own."""
    described = [one for one in points if one.is_described]
    for name in _OF_THE_CURVE:
        yield from _unlike_the_others(
            name, {one.where(POINT_YAML): shown(one.point.get(name)) for one in described}
        )


def _weights(points: Sequence[PointFiles]) -> Iterator[Finding]:
    """Their precision, as far as the servers of a rehearsal's points reported their options.

    A rehearsal is continued at servers that were started again.
    """
    reported = {one.where(): _options(one.record) for one in points if one.record is not None}
    for name in _OF_THE_WEIGHTS:
        stated = {
            where: ", ".join(sorted({str(one.get(name, "not set")) for one in options}))
            for where, options in reported.items()
            if options
        }
        yield from _unlike_the_others(name, stated)


def _options(run: PointRun) -> Sequence[Mapping[str, object]]:
    """Those of the servers that report any."""
    return [server.settings for server in run.servers if server.settings]


def _unlike_the_others(name: str, stated: Mapping[str, str]) -> Iterator[Finding]:
    """The places where what is stated is not the usual value."""
    values = list(stated.values())
    usual = max(values, key=values.count, default="")
    for where, value in stated.items():
        if value != usual:
            text, expected = f"{name} is {value}", f"{usual} as in the other points"
            yield finding("points-differ", where, text, expected=expected)


def _utilization(points: Sequence[PointFiles]) -> Iterator[Finding]:
    rates = {one.folder: one.system_tps for one in points}
    most = max((rate for rate in rates.values() if rate is not None), default=0.0)
    for one in points:
        rate, stated = rates[one.folder], number(one.system.get("tps_utilization"))
        if rate is None or not most:
            continue
        if stated is None or abs(stated - rate / most) > _UTILIZATION_TOLERANCE:
            text = f"tps_utilization is {'missing' if stated is None else stated}"
            yield finding("tps-utilization", one.where(SYSTEM_DESC), text, expected=f"{rate / most:.4f}")


def _offline(points: Sequence[PointFiles]) -> Iterator[Finding]:
    offline = next((one for one in points if one.is_offline), None)
    if offline is None:
        return
    c_max = _c_max(points)
    top = next((one for one in points if one.concurrency == c_max and not one.is_offline), None)
    if top is not None and offline.system_tps is not None and top.system_tps is not None:
        least = offline.rules.offline_part * top.system_tps
        if offline.system_tps < least:
            text = f"system_tps is {offline.system_tps:,.1f}"
            where = offline.where(SUMMARY)
            expected = f"{least:,.1f} or more, as of {top.where()}"
            yield by_length(offline, "offline-throughput", where, text, expected=expected)
    at_once, size = offline.concurrency, offline.dataset_size
    wrong = []
    if at_once is not None and size is not None and at_once != size:
        wrong.append(f"{size:,}, the dataset")
    if at_once is not None and c_max is not None and at_once < c_max:
        wrong.append(f"C_max {c_max:,} or more")
    for expected in wrong:
        where = offline.where(POINT_YAML)
        yield finding("offline-concurrency", where, f"is {at_once:,}", expected=expected)


def _copied(points: Sequence[PointFiles]) -> Iterator[Finding]:
    """A file of one run in two points: a summary has latencies in ns, an accuracy run its duration."""
    yield from _twice(points, SUMMARY, [one.summary for one in points])
    yield from _twice(points, ACCURACY, [_timed(one.accuracy) for one in points])


def _timed(accuracy: Fields) -> Fields:
    """Without durations the files of two runs may be the same."""
    timed = any(number(score.get("duration_s")) for score in tables(accuracy, "accuracy_scores"))
    return accuracy if timed else {}


def _twice(points: Sequence[PointFiles], name: str, contents: Sequence[Fields]) -> Iterator[Finding]:
    found: dict[str, PointFiles] = {}
    for one, content in zip(points, contents, strict=True):
        first = found.setdefault(json.dumps(content, sort_keys=True, default=str), one)
        if content and first is not one:
            yield finding("copied", one.where(name), f"is of the same run as {first.where(name)}")


def _c_max(points: Sequence[PointFiles]) -> int | None:
    """As it is declared; of run folders the highest concurrency."""
    declared = [whole(one.system.get("max_supported_concurrency")) for one in points]
    ran = [one.concurrency for one in points if not one.is_offline]
    found = [value for value in declared if value is not None] or [
        value for value in ran if value is not None
    ]
    return max(found, default=None)
