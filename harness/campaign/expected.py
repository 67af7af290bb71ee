"""The time that a step takes, as far as it follows from its settings."""

from collections.abc import Mapping

from harness.campaign.rehearsal import BACKEND
from harness.campaign.steps import Step
from harness.config.expected_queries import ExpectedQueries, expected_queries
from harness.config.loadgen_settings import settings_of
from harness.config.plans import RunPlan

# LoadGen's defaults of what a conf file may leave out.
_DEFAULTS = {
    "min_duration_ms": 600_000,
    "min_query_count": 1,
    "max_query_count": 0,
    "performance_sample_count_override": 0,
    "accuracy_sample_count_override": 0,
    "sample_concatenate_permutation": True,
    "performance_issue_unique": False,
    "offline_expected_qps": 1.0,
    "server_target_qps": 1.0,
    "single_stream_expected_latency_ns": 1e7,
    "schedule_rng_seed": 0,
}


def expected_s(step: Step, measured: Mapping[str, float]) -> float | None:
    """Seconds at the rate that was asked for; None where no rate is known.

    ``measured`` holds samples/s of Offline performance runs by benchmark: Offline's accuracy runs and tests
    keep to no schedule. Of prompts whose answers are longer, as gpt-oss-120b's of accuracy and TEST07,
    neither is the rate. Of TEST06's few samples the longest answer decides.
    """
    if step.plan is None or step.kind in ("trial", "search") or step.found_rate or not step.rate_known:
        return None
    if step.plan.client.backend == BACKEND:  # of a rehearsal, whose engine has no rate to ask for
        return None
    plan, benchmark = step.plan, step.plan.client.benchmark
    dataset = benchmark.dataset(accuracy=plan.accuracy) if plan.audit is None else plan.audit.dataset
    if dataset.file != benchmark.dataset(accuracy=False).file:
        return None
    found, asked = _at_its_rate(step, plan, dataset.samples)
    if step.test and found.samples < dataset.samples:
        return None
    rate = None if step.kind == "performance" else measured.get(benchmark.name)
    if plan.scenario.one_query and (rate is not None or found.seconds is None):
        return found.samples / (rate or asked)
    return found.seconds


def _at_its_rate(step: Step, plan: RunPlan, samples: int) -> tuple[ExpectedQueries, float]:
    """Its queries, and Offline's rate."""
    assert step.conf is not None
    scenario = plan.scenario.loadgen
    settings = {**_DEFAULTS, **plan.client.benchmark.loadgen.settings, **plan.round_settings}
    audit = {} if plan.audit is None else plan.audit.settings
    for name, value in {**step.conf.settings(plan), **audit}.items():
        settings |= {one.attribute: one.value(value) for one in settings_of(name, scenario)}
    found = expected_queries(settings, scenario, plan.max_samples or samples, accuracy=plan.accuracy)
    return found, float(settings["offline_expected_qps"])
