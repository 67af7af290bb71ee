"""The plan of a curve on the terminal, before anything is sent."""

from collections.abc import Iterator, Mapping

from harness.endpoints.curve import Curve, Point
from harness.endpoints.planning.expected import Expected, total
from harness.endpoints.planning.regions import LABELS, MANDATORY, ULTRA_LOW_MOST, regions
from harness.endpoints.planning.rules import EndpointsRules, rules_of
from harness.endpoints.planning.shortfalls import plan_shortfalls
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.text import aligned, duration, labelled

_COLUMNS = ("point", "band", "in flight", "issue time", "passes", "requests", "accuracy", "expected")
_SIDES = "<<>>>>>>"


def plan_lines(curve: Curve, times: Mapping[str, Expected], origin: str) -> Iterator[str]:
    """About 25 lines; ``origin`` describes how C_max was found, where it was not given."""
    rules = rules_of(curve)
    short = ", short: forms only" if curve.short else ""
    yield f"endpoints: {curve.benchmark}, rules of {rules.cohort}{short}: {NOT_A_RESULT}"
    yield f"curve     C_min {curve.c_min}, C_max {curve.c_max}{f' ({origin})' if origin else ''}"
    yield f"bands     {_bands(curve)}"
    yield f"dataset   {_dataset(curve)}"
    yield f"seeds     {_seeds(curve)}"
    yield f"Offline   {_offline(curve, rules)}"
    yield f"length    {_length(curve, rules)}"
    yield "order     the most in flight first: what breaks under load breaks there, in the least time"
    yield ""
    rows = (_COLUMNS, *(_cells(curve, point, times[point.name]) for point in curve.points))
    yield from aligned(rows, _SIDES)
    yield f"expected  {_hours(curve, times)}"
    yield from labelled("MISSING", plan_shortfalls(curve))


def _bands(curve: Curve) -> str:
    found = regions(curve.c_min, curve.c_max)
    shown = ", ".join(f"{LABELS[band]} {span}" for band, span in zip(MANDATORY, found, strict=False))
    return f"{shown}; margin {found.margin} counts for none"


def _dataset(curve: Curve) -> str:
    order = "each drawn anew" if curve.replacement else "a new order each pass"
    accuracy = f"{curve.accuracy_samples} of accuracy, unsalted" if curve.accuracy_samples else "no accuracy"
    return f"{curve.samples} samples, {order}, {curve.salt_bits} bits of salt each; {accuracy}"


def _seeds(curve: Curve) -> str:
    seeds = curve.seeds
    values = f"{seeds.scheduler}, {seeds.sample_index}, {seeds.model}"
    target = f" for {seeds.cohort}" if seeds.cohort else ""
    return f"set {seeds.name} of {seeds.published}{target}: {values}"


def _offline(curve: Curve, rules: EndpointsRules) -> str:
    if any(point.offline == "elected" for point in curve.points):
        return f"elected: the point at C_max, {curve.c_max} in flight"
    return (
        f"dedicated: {curve.samples} samples at once, at least {rules.offline_part} of the tokens/s at C_max"
    )


def _length(curve: Curve, rules: EndpointsRules) -> str:
    passes = (
        "one pass"
        if curve.short
        else f"{rules.window_passes} passes of a steady window, and more for the ramp"
    )
    return f"{passes}; warm-up and drain are not counted"


def _cells(curve: Curve, point: Point, time: Expected) -> tuple[str, ...]:
    offline = " = Offline" if point.offline == "elected" else ""
    return (
        point.name,
        f"{LABELS[point.band]}{offline}",
        str(point.concurrency),
        "-" if point.issue_s == 0 else duration(point.issue_s),
        str(point.passes),
        str(point.passes * curve.samples),
        str(curve.accuracy_samples) if point.accuracy else "-",
        _time(time),
    )


def _time(time: Expected) -> str:
    shown = duration(time.seconds)
    if time.seconds == 0:
        return "unknown"
    return f"at least {shown}" if time.at_least else shown


def _hours(curve: Curve, times: Mapping[str, Expected]) -> str:
    """The sum, and what it costs that the lower end has few requests in flight."""
    lowest = curve.points[-1]
    each = duration(lowest.passes * curve.samples / lowest.concurrency)
    remedy = ", less with a higher --c-min" if lowest.concurrency < ULTRA_LOW_MOST else ""
    return f"{_time(total(times))}; {lowest.name}: {each} for each second of a latency{remedy}"
