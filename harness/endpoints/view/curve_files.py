"""The points of a curve as a folder shows them, for the page and for comparisons.

Three kinds of folders are read alike: a rehearsal, plain run folders of this client or the official one, and
one curve of a published tree (``results/<system>/<model>/r<N>/``).
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from harness.endpoints.curve import Curve, Point
from harness.endpoints.official_files import at, number
from harness.endpoints.planning.regions import Regions, regions
from harness.endpoints.planning.rules import EndpointsRules, rules_of
from harness.endpoints.rehearsal_record import read_rehearsal
from harness.endpoints.run_folder import (
    POINT_RUN,
    POINT_YAML,
    REHEARSAL,
    RUNS,
    SUMMARY,
    SYSTEM_POWER,
    TREE,
    point_folders,
)
from harness.endpoints.view.measured_point import CurvePoint, read_point, stated_in
from harness.errors import ConfigError
from harness.record.output_dir import is_aside
from harness.text import first_few

Kind = Literal["rehearsal", "run folders", "published tree"]

_DEEPEST = 6  # from the root of a tree to a point: org, submission, results, system, model, point
_NAMED = 4  # curves that an error lists


class MeasuredCurve(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder holds of a curve."""

    folder: Path
    kind: Kind
    points: Sequence[CurvePoint]
    """by concurrency, a dedicated Offline run last; of a rehearsal also those that have only begun"""
    plan: Curve | None = None
    """of this client's points; None for those of the official client"""
    regions: Regions | None = None
    """None where C_min and C_max are no curve's"""
    kilowatts: float | None = None
    """provisioned power of the system"""
    problems: Sequence[str] = ()
    """files that cannot be read, a line each"""

    @property
    def rules(self) -> EndpointsRules:
        """Those that it is judged by."""
        return rules_of(self.plan)

    @property
    def steps(self) -> Sequence[CurvePoint]:
        """The measured points at a fixed concurrency."""
        return [one for one in self.points if one.system_tps and one.tps_per_user]

    @property
    def offline(self) -> CurvePoint | None:
        """The Offline point, dedicated or elected."""
        return next((one for one in self.points if one.offline != "none"), None)

    @property
    def not_run(self) -> Sequence[Point]:
        """The points of the plan that have no run folder."""
        begun = {(one.offline == "dedicated", one.concurrency) for one in self.points}
        return () if self.plan is None else self.plan.not_run(begun)

    @property
    def c_max(self) -> int | None:
        """As declared; else the highest measured concurrency."""
        declared = [one.declared_c_max for one in self.points if one.declared_c_max]
        if self.plan is not None:
            return self.plan.c_max
        return max(declared or _concurrencies(self.points), default=None)

    @property
    def c_min_override(self) -> int | None:
        """As declared; None where C_min is the lowest concurrency."""
        if self.plan is not None:
            return self.plan.c_min_override
        return next((one.declared_c_min for one in self.points if one.declared_c_min), None)

    @property
    def settings(self) -> Mapping[str, str]:
        """What was set at the points: one value, or all that occur."""
        names = dict.fromkeys(name for one in self.points for name in one.settings)
        return {
            name: " / ".join(dict.fromkeys(one.settings[name] for one in self.points if name in one.settings))
            for name in names
        }


def read_curve(folder: Path) -> MeasuredCurve:
    """The curve of a folder. Raises ConfigError where there is none, or more than one."""
    if (rehearsal := read_rehearsal(folder)) is not None:
        return _with_bands(_rehearsal(folder, rehearsal.curve))
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; name a rehearsal, run folders or a published tree")
    if curves := _published(folder):
        return _with_bands(_tree(folder, curves))
    folders = [folder, *_folders(folder, 2)]
    runs = [one for one in folders if (one / SUMMARY).is_file() or (one / POINT_RUN).is_file()]
    if not runs:
        raise ConfigError(
            f"{folder}: no {REHEARSAL}, no run folder with {SUMMARY} and no r<N>/{POINT_YAML}; name a "
            "rehearsal, a folder of run folders or a published tree"
        )
    points = [read_point(one) for one in runs]
    plan = next((one.run.curve for one in points if one.run is not None), None)
    return _with_bands(MeasuredCurve(folder=folder, kind="run folders", points=_in_order(points), plan=plan))


def _rehearsal(folder: Path, plan: Curve) -> MeasuredCurve:
    """Points that have not begun are in the plan alone."""
    built = {one.name: one for curve in _published(folder / TREE) for one in _measured(curve)}
    points = [
        replace(
            read_point(run, built.get(f"r{point.concurrency}")),
            concurrency=point.concurrency,
            offline=point.offline,
        )
        for point in plan.points
        if (run := folder / RUNS / point.name).is_dir()
    ]
    systems = list((folder / TREE).glob(f"*/*/results/*/{SYSTEM_POWER}"))
    kilowatts, problems = _power(systems[0].parent if systems else folder)
    return MeasuredCurve(
        folder=folder,
        kind="rehearsal",
        points=_in_order(points),
        plan=plan,
        kilowatts=kilowatts,
        problems=problems,
    )


def _tree(folder: Path, curves: Sequence[Path]) -> MeasuredCurve:
    if len(curves) > 1:
        named = first_few((one.relative_to(folder) for one in curves), _NAMED)
        raise ConfigError(f"{folder}: {len(curves)} curves ({named}); name the folder of one")
    points = [read_point(one) for one in _measured(curves[0])]
    kilowatts, problems = _power(curves[0].parent)
    return MeasuredCurve(
        folder=folder,
        kind="published tree",
        points=_in_order(points),
        kilowatts=kilowatts,
        problems=problems,
    )


def _published(folder: Path) -> list[Path]:
    """The folders of curves in a tree: those with points r<N> that hold their files without folders."""
    found = [folder, *_folders(folder, _DEEPEST)]
    return [one for one in found if _measured(one)]


def _measured(curve: Path) -> list[Path]:
    return [one for one in point_folders(curve) if (one / Path(SUMMARY).name).is_file()]


def _folders(folder: Path, depth: int) -> list[Path]:
    """The folders below, in order, without what was moved aside and all that is in it."""
    found: list[Path] = []
    for name, inner, _ in os.walk(folder):
        level = len(Path(name).relative_to(folder).parts)
        inner[:] = sorted(one for one in inner if not is_aside(Path(name, one)))
        found += [Path(name, one) for one in inner]
        if level + 1 >= depth:
            inner.clear()
    return found


def _power(system: Path) -> tuple[float | None, Sequence[str]]:
    """As the file states it; the components are the checker's to add up."""
    problems: list[str] = []
    found = stated_in(system / SYSTEM_POWER, problems)
    watts = number(at(found, "computed", "total_system_power_w"))
    computed = None if watts is None else watts / 1000
    return number(found.get("provisioned_power_kw")) or computed, tuple(problems)


def _in_order(points: Sequence[CurvePoint]) -> Sequence[CurvePoint]:
    return sorted(points, key=lambda one: (one.offline == "dedicated", one.concurrency or 0))


def _concurrencies(points: Sequence[CurvePoint | Point]) -> list[int]:
    return [one.concurrency for one in points if one.concurrency and one.offline != "dedicated"]


def _with_bands(curve: MeasuredCurve) -> MeasuredCurve:
    """The bands between C_min and C_max."""
    points = curve.points if curve.plan is None else curve.plan.points
    lowest = curve.c_min_override or min(_concurrencies(points), default=0)
    try:
        spans = regions(lowest, curve.c_max or 0)
    except ConfigError:
        return curve
    banded = [
        replace(one, band=spans.band(one.concurrency))
        if one.concurrency and one.offline != "dedicated"
        else one
        for one in curve.points
    ]
    return replace(curve, points=banded, regions=spans)
