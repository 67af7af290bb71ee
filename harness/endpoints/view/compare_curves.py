"""Two curves side by side: at equal concurrencies, and as step functions at equal speeds for a user."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from harness.arrays import Floats
from harness.endpoints.endpoints_options import CompareOptions
from harness.endpoints.planning.rules import is_same_model
from harness.endpoints.view.curve_charts import USER
from harness.endpoints.view.curve_files import MeasuredCurve, read_curve
from harness.endpoints.view.measured_point import USER_PERCENTILE, CurvePoint
from harness.endpoints.view.pareto import Overlap, StepFunction, overlap, step_function
from harness.endpoints.view.point_settings import DATASET, DATASET_FILE, MODEL, MOST_TOKENS, SAMPLES
from harness.errors import ConfigError
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.report.html.page import Badge, Chart, Page, PageTable, Section, Series
from harness.report.run_report import write_or_explain
from harness.text import aligned, show

_NONE = "-"
_NUMBERS = ("tokens/s", "tokens/s of a user", "TTFT p90, ms")
_SIDES = ("base", "this", "change")


class Comparison(msgspec.Struct, frozen=True):
    """Two curves, and what follows from both."""

    left: MeasuredCurve
    right: MeasuredCurve
    reasons: Sequence[str]
    """why the numbers do not compare the systems; none where they do"""

    @property
    def steps(self) -> tuple[StepFunction, StepFunction]:
        """Both curves as the rules draw them."""
        return step_function(self.left.points), step_function(self.right.points)


def compare(options: CompareOptions) -> int:
    """Print what differs and write the page; the exit code.

    Raises ConfigError for a folder that cannot be read or a page that cannot be written.
    """
    both = comparison(options.left, options.right)
    show(*compare_lines(both))
    write_or_explain(options.output, compare_page(both))
    show(str(options.output))
    return 0


def comparison(left: Path, right: Path) -> Comparison:
    """The curves of two folders. Raises ConfigError."""
    one, other = _measured(left), _measured(right)
    return Comparison(one, other, tuple(_incomparable(one, other)))


def _measured(folder: Path) -> MeasuredCurve:
    curve = read_curve(folder)
    if not any(one.system_tps for one in curve.points):
        why = next((problem for one in curve.points for problem in one.problems), "no point has tokens/s yet")
        raise ConfigError(f"{folder}: nothing to compare: {why}")
    return curve


def _incomparable(left: MeasuredCurve, right: MeasuredCurve) -> Iterator[str]:
    """Another model, other prompts or another length of answers, where both sides say which."""
    one, other = left.settings, right.settings
    if MODEL in one and MODEL in other and not is_same_model(one[MODEL], other[MODEL]):
        yield f"model: {one[MODEL]} and {other[MODEL]}"
    for name in (DATASET, DATASET_FILE, SAMPLES, MOST_TOKENS):
        if name in one and name in other and one[name] != other[name]:
            yield f"{name}: {one[name]} and {other[name]}"


def compare_lines(both: Comparison) -> Iterator[str]:
    """The tables for a terminal; the first line says whether the curves can be compared."""
    folders = f"{both.left.folder} and {both.right.folder}"
    reasons = "; ".join(both.reasons)
    yield f"NOT COMPARABLE: {folders}: {reasons}" if reasons else f"comparable: {folders}"
    yield summary(both)
    for table in _tables(both):
        yield ""
        yield table.title
        yield from aligned([table.header, *table.rows], table.sides)
    yield ""
    yield f"This is {NOT_A_RESULT}: two curves, as their files have them."


def summary(both: Comparison) -> str:
    """One sentence: the mean over the speeds that both have, and whether one curve is above the other."""
    found = overlap(*both.steps)
    if found is None:
        return "The curves have no tokens/s of a user in common."
    change = found.mean_right / found.mean_left - 1
    span = f"{found.slowest:,.1f} to {found.fastest:,.1f} tokens/s of a user"
    return f"tokens/s over {span}: {change:+.1%} in the mean; {_dominance(found)}."


def _dominance(found: Overlap) -> str:
    if not found.right_above and not found.right_below:
        return "the curves are equal there"
    if not found.right_below:
        return "nowhere below the base"
    if not found.right_above:
        return "nowhere above the base"
    return f"above the base over {found.right_above:.1%} of that range, below it over {found.right_below:.1%}"


class _Table(msgspec.Struct, frozen=True):
    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    sides: str = "<>"
    """alignment of the columns on a terminal"""


def _tables(both: Comparison) -> list[_Table]:
    """Those that have rows."""
    doubt = ", not comparable" if both.reasons else ""
    numbers = [text for name in _NUMBERS for text in _sides(name)]
    found = (
        _Table("points", f"At equal requests in flight{doubt}", ("in flight", *numbers), point_rows(both)),
        _Table(
            "users",
            f"At equal tokens/s of a user{doubt}",
            (_NUMBERS[1], *_sides("tokens/s")),
            user_rows(both),
        ),
        _Table(
            "settings",
            "Settings that differ, or that one side does not state",
            ("", *_SIDES[:2]),
            setting_rows(both),
            "<",
        ),
    )
    return [one for one in found if one.rows]


def _sides(name: str) -> tuple[str, ...]:
    return tuple(f"{name}, {side}" if side != "change" else side for side in _SIDES)


def point_rows(both: Comparison) -> list[tuple[str, ...]]:
    """Points with the same number of requests in flight, and the Offline points."""
    left, right = _by_concurrency(both.left), _by_concurrency(both.right)
    rows = [(name, *_pairs(left[name], right[name])) for name in left if name in right]
    one, other = both.left.offline, both.right.offline
    if one is not None and other is not None:
        name = "Offline" if one.offline == other.offline else f"Offline, {one.offline} and {other.offline}"
        rows.append((name, *_pairs(one, other)))
    return rows


def _by_concurrency(curve: MeasuredCurve) -> Mapping[str, CurvePoint]:
    """Without the dedicated Offline run; of two runs of a point the first."""
    found: dict[str, CurvePoint] = {}
    for one in curve.points:
        if one.offline != "dedicated" and one.concurrency and one.system_tps:
            found.setdefault(f"{one.concurrency:,}", one)
    return found


def _pairs(left: CurvePoint, right: CurvePoint) -> Iterator[str]:
    for one, other, form in (
        (left.system_tps, right.system_tps, "{:,.1f}"),
        (left.tps_per_user, right.tps_per_user, "{:,.2f}"),
        (_ttft_ms(left), _ttft_ms(right), "{:,.1f}"),
    ):
        yield _NONE if one is None else form.format(one)
        yield _NONE if other is None else form.format(other)
        yield f"{other / one - 1:+.1%}" if one and other else _NONE


def _ttft_ms(point: CurvePoint) -> float | None:
    found = point.ttft_ns.get(USER_PERCENTILE)
    return None if found is None or point.offline == "dedicated" else found / 1e6


def user_rows(both: Comparison) -> list[tuple[str, ...]]:
    """Both step functions at every speed of a user that is a point of either, where both have one."""
    left, right = both.steps
    found = overlap(left, right)
    if found is None:
        return []
    users = np.unique(np.concatenate([left.users, right.users]))
    users = users[(users >= found.slowest) & (users <= found.fastest)]
    return [
        (f"{user:,.2f}", f"{one:,.1f}", f"{other:,.1f}", f"{other / one - 1:+.1%}")
        for user, one, other in zip(users, left.at(users), right.at(users), strict=True)
    ]


def setting_rows(both: Comparison) -> list[tuple[str, ...]]:
    """What was set in two ways, then what only one side states."""
    one, other = both.left.settings, both.right.settings
    rows = [
        (name, one.get(name, _NONE), other.get(name, _NONE))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    ]
    return sorted(rows, key=lambda row: _NONE in row)


def compare_page(both: Comparison) -> Page:
    """The same as one page, with both curves in a chart."""
    comparable = Badge("NOT COMPARABLE", "bad") if both.reasons else Badge("comparable", "plain")
    return Page(
        "Comparison of two curves of MLPerf Endpoints",
        f"{both.right.folder} against the base {both.left.folder}",
        (Badge(NOT_A_RESULT.upper(), "warn"), comparable),
        [*both.reasons, summary(both)],
        (),
        [
            Section("curves", "Curves", charts=tuple(_chart(both))),
            *(Section(one.id, one.title, tables=[PageTable(one.header, one.rows)]) for one in _tables(both)),
        ],
        footer=f"This is {NOT_A_RESULT}. Curves are step functions, as the rules draw them (section 5.2).",
    )


def _chart(both: Comparison) -> Iterator[Chart]:
    left, right = both.steps
    users = np.unique(np.concatenate([left.users, right.users]))
    if not len(users):
        return
    lines, points = [], []
    for color, (side, one) in enumerate(zip(_SIDES, (left, right), strict=False)):
        measured = np.where(np.isin(users, one.users), one.at(users), np.nan)
        lines.append(Series(side, _measured_part(one, users), color, "steps"))
        points.append(Series(f"{side}: points", measured, color, "points"))
    title = "Tokens/s of the system by tokens/s of a user"
    yield Chart("pareto", title, users, [*lines, *points], "number", x_label=USER)


def _measured_part(one: StepFunction, users: Floats) -> Floats:
    """Without the speeds below its slowest point, which is C_max."""
    slowest = one.users[0] if len(one.users) else np.inf
    return np.where(users >= slowest, one.at(users), np.nan)
