"""The time that a step takes, as far as it follows from its settings."""

from collections.abc import Mapping

from harness.campaign.steps import Step
from harness.config.expected_queries import expected_queries
from harness.config.loadgen_conf import ConfKey, read_conf
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

    ``measured`` holds samples/s of Offline runs by benchmark: an Offline accuracy run has no other rate.
    """
    if step.plan is None or step.kind == "trial" or step.found_rate:
        return None
    plan = step.plan
    if plan.audit is None and not (plan.accuracy and plan.scenario.one_query):
        return _of_plan(plan)
    dataset = plan.client.benchmark.dataset(accuracy=True) if plan.audit is None else plan.audit.dataset
    rate = measured.get(plan.client.benchmark.name)
    return None if rate is None else dataset.samples / rate


def _of_plan(plan: RunPlan) -> float | None:
    scenario = plan.scenario.loadgen
    key = ConfKey(plan.model_key, scenario, interactive=bool(plan.scenario.key_suffix))
    rows = read_conf(plan.user_conf, key).settings
    settings = {**_DEFAULTS, **plan.client.benchmark.loadgen.settings, **plan.round_settings}
    for name, value in rows.items():
        settings |= {one.attribute: one.value(value) for one in settings_of(name, scenario)}
    samples = plan.max_samples or plan.client.benchmark.dataset(accuracy=plan.accuracy).samples
    return expected_queries(settings, scenario, samples, accuracy=plan.accuracy).seconds
