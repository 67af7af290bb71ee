"""What keeps a curve of this client from being a submission, as its plan and the runs of its points show it.

The plan, the page and NOT_A_RESULT.txt have these lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from harness.endpoints.curve import Curve
from harness.endpoints.planning.cohorts import cohort_name, cohort_number, publication
from harness.endpoints.planning.rules import EndpointsRules, rules_of
from harness.endpoints.point_run import PointRun
from harness.grouping import by_key
from harness.text import first_few

CLIENT = "requests are sent by this client, not by MLCommons's own, unmodified (section 2.1.1)"
_CONTINUES = "the same command continues there"
NAMED = 6  # points that a line lists


def plan_shortfalls(curve: Curve) -> Iterator[str]:
    """Each with its section of the rules, the ones that a flag can change first.

    Times and passes are none of these: a point is planned with the least ones or more.
    """
    yield from _planned(curve)
    if not curve.accuracy_samples:
        yield "no accuracy runs: set --accuracy-file (section 4.3)"
    yield CLIENT


def run_shortfalls(runs: Mapping[str, PointRun]) -> Iterator[str]:
    """Those of points by name, the gravest first; a line that not all of them have ends with its points."""
    kinds = (_of_plan, _of_end, _of_work)
    found = by_key((line, name) for of in kinds for name, run in runs.items() for line in of(run))
    for line, names in found.items():
        yield line if len(names) == len(runs) else f"{line} ({first_few(names, NAMED)})"


def not_run(names: Sequence[str]) -> Iterator[str]:
    """The line on points of the plan that are not there; none without any."""
    if names:
        yield f"points of the plan that were not run: {first_few(names, NAMED)}; {_CONTINUES}"


def _of_plan(run: PointRun) -> Iterator[str]:
    return _planned(run.curve)


def _of_end(run: PointRun) -> Iterator[str]:
    if not run.complete:
        why = run.interrupted_by or "; ".join(run.errors) or "its run has not ended"
        yield f"incomplete, {why}: {_CONTINUES}"


def _of_work(run: PointRun) -> Iterator[str]:
    yield from run.deviations
    if run.client_bound:
        yield "the client may have been the bottleneck"


def _planned(curve: Curve) -> Iterator[str]:
    rules = rules_of(curve)
    if curve.short:
        yield "--short: one pass over the first samples and no least time, forms only (sections 6.2, 6.4)"
    else:
        yield from _dataset(curve, rules)
    yield from _seeds(curve, rules)


def _seeds(curve: Curve, rules: EndpointsRules) -> Iterator[str]:
    """Of a cohort that was asked for they are checked already (``chosen_seeds``)."""
    seeds = curve.seeds
    last = cohort_number(seeds.published) + rules.adoption_cohorts - 1
    if not seeds.cohort and date.today() >= publication(last):
        upto = cohort_name(last)
        yield f"seed set {seeds.name} is for new submissions up to {upto}: set --seed-sets (section 4.6)"


def _dataset(curve: Curve, rules: EndpointsRules) -> Iterator[str]:
    model = rules.models[curve.model_name]
    for kind, samples, official in (
        ("performance", curve.samples, model.performance),
        ("accuracy", curve.accuracy_samples, model.accuracy),
    ):
        expected = 0 if official is None else official.samples
        if samples and samples != expected:
            yield f"{kind} dataset of {samples} samples, expected {expected} (section 6.4)"
