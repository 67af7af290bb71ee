"""What keeps a curve from being a submission, as far as its plan shows it."""

from collections.abc import Iterator
from datetime import date

from harness.endpoints.curve import Curve
from harness.endpoints.planning.cohorts import cohort_name, cohort_number, publication
from harness.endpoints.planning.rules import EndpointsRules


def shortfalls(curve: Curve, rules: EndpointsRules) -> Iterator[str]:
    """Each with its section of the rules, the ones that a flag can change first.

    Times and passes are none of these: a point is planned with the least ones or more.
    """
    if curve.short:
        yield "--short: one pass over the first samples and no least time, forms only (sections 6.2, 6.4)"
    else:
        yield from _dataset(curve, rules)
    yield from _seeds(curve, rules)
    if not curve.accuracy_samples:
        yield "no accuracy runs: set --accuracy-file (section 4.3)"
    yield "requests are sent by this client, not by MLCommons's own, unmodified (section 2.1.1)"


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
