"""The plan of a curve: which numbers of requests in flight, in which order, how long, where scored.

Points lie as the rules' regions do: equally far from each other in the logarithm of concurrency less C_min,
two in each of the three regions. The walk begins with C_max and ends with C_min: what breaks under load, a
server that runs out of memory, a limit on open files, a TPOT that drifts, breaks there within the least time
of a point, while the points at the lower end take hours and fail least.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from harness.endpoints.curve import Curve, Offline, Point, SeedSet
from harness.endpoints.endpoints_options import RehearsalOptions
from harness.endpoints.planning.regions import LABELS, MANDATORY, ULTRA_LOW_MOST, Regions, regions
from harness.endpoints.planning.rules import EndpointsRules, load_endpoints_rules
from harness.endpoints.planning.seed_sets import chosen_seeds, read_seed_sets
from harness.errors import ConfigError
from harness.text import counted

# The window leaves out the ramp at the start, which is at least one pass where it is cut. A point that only
# just reaches the rules' time and passes has no window that does, and hours were for nothing.
_RAMP_PASSES = 1
_RAMP_TIME = 1.1
_MOST_REQUESTS = 1 << 20
# A pass with few requests in flight takes hours. The curves of the rules' Appendix B have such ratios.
_C_MAX_TO_C_MIN = 64
_SHORT_C_MAX = 40  # the three regions above 32 are wide enough for a point each


def known_c_max(options: RehearsalOptions) -> int | None:
    """C_max where no ladder has to find it."""
    if options.c_max is not None:
        return options.c_max
    if options.concurrency:
        return max(options.concurrency)
    return _SHORT_C_MAX if options.short else None


def plan_rehearsal(
    options: RehearsalOptions, *, samples: int, accuracy_samples: int, c_max: int, replicas: int
) -> Curve:
    """The curve of these options from C_min to C_max, for datasets of these sizes. Raises ConfigError.

    ``c_min`` None: the least of ``concurrency``, else one request for each of the ``replicas``, data-parallel
    ranks too, which is as fast as one alone, and at least a 64th of C_max. ``short`` uses as few samples as
    the points can do with.
    """
    rules, seeds = _rules_and_seeds(options)
    lowest = _lowest(options.c_min, c_max, options.concurrency, replicas)
    found = regions(lowest, c_max)
    steps = tuple(sorted(options.concurrency)) or spread(lowest, c_max, rules.fewest_points)
    used = min(samples, found.margin.end + 1) if options.short else samples
    _check_bands(steps, found)
    _check_steps(steps, found, rules, options)
    _check_dataset(samples, used, max(steps[-1], c_max))
    scored = _scored(steps, found) if accuracy_samples else frozenset()
    plan = _Plan(rules, found, used, scored, c_max, options.offline, options.short)
    return Curve(
        benchmark=options.benchmark,
        model_name=rules.model_name(options.benchmark),
        c_min=lowest,
        c_max=c_max,
        points=tuple(_in_order(plan, steps)),
        samples=used,
        accuracy_samples=min(accuracy_samples, used) if options.short else accuracy_samples,
        seeds=seeds,
        replacement=options.with_replacement,
        short=options.short,
    )


def _rules_and_seeds(options: RehearsalOptions) -> tuple[EndpointsRules, SeedSet]:
    """Those of the cohort that is asked for, else of the set of seeds that is."""
    asked = options.target_cohort
    published = None if options.seed_sets is None else read_seed_sets(options.seed_sets)
    rules = load_endpoints_rules(asked or (published and published[0].cohort))
    return rules, chosen_seeds(rules, published or rules.seed_sets, options.seed_set, asked)


def _lowest(c_min: int | None, c_max: int, concurrency: Sequence[int], replicas: int) -> int:
    if c_min is not None:
        return c_min
    if not concurrency:
        return min(max(1, replicas, c_max // _C_MAX_TO_C_MIN), ULTRA_LOW_MOST)
    if (least := min(concurrency)) > ULTRA_LOW_MOST:
        raise ConfigError(
            f"--concurrency begins with {least}: no point in band Ultra Low (1-{ULTRA_LOW_MOST}); add one"
        )
    return least


def with_enough_passes(offline: Point, samples: int, requests_per_s: float) -> Point:
    """A dedicated Offline run with as many passes as take its least time.

    They are all issued at once, so that their number is needed before: from the rate at C_max, which runs
    first.
    """
    needed = math.ceil(_RAMP_TIME * offline.issue_s * requests_per_s / samples)
    return replace(offline, passes=max(offline.passes, needed))


def spread(c_min: int, c_max: int, count: int) -> tuple[int, ...]:
    """``count`` concurrencies from C_min to C_max, equally far in the logarithm above C_min.

    Fewer where there are not as many numbers.
    """
    width = math.log2(c_max - c_min) / (count - 1)
    found = {c_min, c_max, *(round(c_min + 2 ** (width * step)) for step in range(1, count - 1))}
    free = (number for number in range(c_max, c_min, -1) if number not in found)
    return tuple(sorted({*found, *itertools.islice(free, count - len(found))}))


class _Plan(NamedTuple):
    """What all points of a curve share."""

    rules: EndpointsRules
    regions: Regions
    samples: int
    scored: frozenset[int]
    c_max: int
    offline: Offline
    short: bool


def _in_order(plan: _Plan, steps: Sequence[int]) -> Iterator[Point]:
    """From the most requests in flight to the fewest; Offline behind C_max, with which it is compared."""
    for concurrency in reversed(steps):
        yield _point(plan, concurrency)
        if concurrency == plan.c_max and plan.offline == "dedicated":
            yield _dedicated(plan)


def _point(plan: _Plan, concurrency: int) -> Point:
    band = plan.regions.band(concurrency)
    assert band is not None  # _check_steps
    elected = plan.offline == "elected" and concurrency == plan.c_max
    issue_s = plan.rules.least_issue_s(concurrency) * _RAMP_TIME
    return Point(
        name=f"r{concurrency}",
        concurrency=concurrency,
        band=band,
        offline="elected" if elected else "none",
        accuracy=concurrency in plan.scored,
        issue_s=0.0 if plan.short else issue_s,
        passes=1 if plan.short else plan.rules.window_passes + _RAMP_PASSES,
    )


def _dedicated(plan: _Plan) -> Point:
    """It has no steady window; how many passes take its time is known once C_max has run."""
    return Point(
        name="offline",
        concurrency=plan.samples,
        band="offline",
        offline="dedicated",
        accuracy=bool(plan.scored),
        issue_s=0.0 if plan.short else plan.rules.least_issue_s(plan.samples),
        passes=plan.rules.least_passes,
    )


def _scored(steps: Sequence[int], found: Regions) -> frozenset[int]:
    """The most requests in flight of each band: the same answers in the least time.

    The rules ask for exactly one in each band.
    """
    highest = {found.band(step): step for step in steps}
    return frozenset(highest[band] for band in MANDATORY)


def _check_steps(
    steps: Sequence[int], found: Regions, rules: EndpointsRules, options: RehearsalOptions
) -> None:
    shown = ", ".join(map(str, steps))
    for lower, higher in itertools.pairwise(steps):
        if lower == higher:
            raise ConfigError(f"--concurrency has {lower} twice, expected each once")
    if steps[0] < 1 or steps[-1] > _MOST_REQUESTS:
        raise ConfigError(f"--concurrency has {shown}, expected numbers from 1 to {_MOST_REQUESTS}")
    for name, needed in (("c-min", found.ultra_low.end), ("c-max", found.high.end)):
        if needed not in steps:
            raise ConfigError(
                f"--concurrency has {shown} without {needed}, which is --{name}: it has to be a point"
            )
    if steps[-1] > found.margin.end:
        raise ConfigError(
            f"--concurrency has {steps[-1]}, expected at most {found.margin.end}, C_max and 10 %; "
            "raise --c-max"
        )
    most = rules.most_points - (options.offline == "dedicated")
    if not rules.fewest_points <= len(steps) <= most:
        own = f"give {'fewer' if len(steps) > most else 'more'} numbers with --concurrency"
        raise ConfigError(
            f"{counted(len(steps), 'point')} ({shown}), expected {rules.fewest_points} to {most}; "
            f"{own if options.concurrency else 'raise --c-max, or set --concurrency'}"
        )


def _check_bands(steps: Sequence[int], found: Regions) -> None:
    covered = {found.band(step) for step in steps}
    missing = [pair for pair in zip(MANDATORY, found, strict=False) if pair[0] not in covered]
    if missing:
        bands = " and ".join(f"band {LABELS[band]} ({span})" for band, span in missing)
        if any(span.start > span.end for _, span in missing):
            remedy = "C_max is too close to C_min; raise --c-max"
        else:
            remedy = "add one" if len(missing) == 1 else "add one in each"
        ends = f"C_min {found.ultra_low.end} and C_max {found.high.end}"
        raise ConfigError(f"no point in {bands} of {ends}: {remedy}")


def _check_dataset(samples: int, used: int, most: int) -> None:
    """One more than the most in flight: the folder of Offline, which its samples name, is one of its own."""
    if used <= most:
        lower = f"set --c-max, and each of --concurrency, to at most {samples - 1}"
        larger = f"no curve has a C_max of {ULTRA_LOW_MOST} or less: pass a larger dataset"
        raise ConfigError(
            f"--input-file has {samples} samples, expected more than the {most} requests in flight of the "
            f"highest point; {lower if samples - 1 > ULTRA_LOW_MOST else larger}"
        )
