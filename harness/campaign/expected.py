"""The time that a step takes, as far as it follows from its settings."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from harness.campaign.rehearsal import BACKEND
from harness.campaign.steps import Step
from harness.config.expected_queries import ExpectedQueries, expected_queries
from harness.config.loadgen_settings import settings_of
from harness.config.plans import RunPlan

# LoadGen's values of what a conf file may leave out and no benchmark locks.
DEFAULTS = {
    "min_query_count": 100,
    "max_query_count": 0,
    "accuracy_sample_count_override": 0,
    "offline_expected_qps": 1.0,
    "server_target_qps": 1.0,
    "single_stream_expected_latency_ns": 1e7,
}


class Measured(msgspec.Struct, frozen=True):
    """What the performance runs of a campaign show about its other runs."""

    rates: Mapping[str, float]
    """samples/s of Offline, by benchmark: its accuracy runs and tests keep to no schedule"""
    samples: Mapping[Path, int]
    """of the datasets of performance runs"""


def expected_s(step: Step, measured: Measured) -> float | None:
    """Seconds at the rate that was asked for; None where no rate is known.

    It is not of other prompts than performance runs have: gpt-oss-120b's of accuracy and TEST07 have longer
    answers. Of TEST06's few samples the longest answer decides.
    """
    if step.plan is None or step.kind in ("trial", "search") or step.found_rate or not step.rate_known:
        return None
    if step.plan.client.backend == BACKEND:  # of a rehearsal, whose engine has no rate to ask for
        return None
    plan, client = step.plan, step.plan.client
    if (samples := measured.samples.get(client.input_file)) is None:
        return None
    found, asked = _at_its_rate(step, plan, samples)
    if step.test and found.samples < samples:
        return None
    rate = None if step.kind == "performance" else measured.rates.get(client.benchmark.name)
    if plan.scenario.one_query and (rate is not None or found.seconds is None):
        return found.samples / (rate or asked)
    return found.seconds


def _at_its_rate(step: Step, plan: RunPlan, samples: int) -> tuple[ExpectedQueries, float]:
    """Its queries, and Offline's rate."""
    assert step.conf is not None
    scenario = plan.scenario.loadgen
    settings = {**DEFAULTS, **plan.client.benchmark.loadgen.settings, **plan.round_settings}
    audit = {} if plan.audit is None else plan.audit.settings
    for name, value in {**step.conf.settings(plan), **audit}.items():
        settings |= {one.attribute: one.value(value) for one in settings_of(name, scenario)}
    found = expected_queries(settings, scenario, plan.max_samples or samples, accuracy=plan.accuracy)
    return found, float(settings["offline_expected_qps"])
