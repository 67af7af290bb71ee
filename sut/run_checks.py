"""LoadGen's part between the plan and the first query: dataset, conf files, and the rules."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from harness.analysis.early_stopping import fewest_queries, target_percentile, too_few_queries
from harness.config import rule_checks
from harness.config.audit_config import test_named
from harness.config.benchmark import DatasetRule
from harness.config.expected_queries import ExpectedQueries, ended_by
from harness.config.loadgen_conf import Conf, ConfKey, parse_conf, read_conf
from harness.config.loadgen_settings import (
    ACCURACY_MODE,
    LEAST_PERCENTILE,
    MOST_PERCENTILE,
    PERFORMANCE_MODE,
    TEST_MODES,
    Number,
    Setting,
    limits_ns,
)
from harness.config.plans import RunPlan
from harness.dataset.published import other_than_published
from harness.dataset.samples import SampleSet, load_samples, prompt_efforts
from harness.errors import ConfigError
from harness.files import AUDIT_CONFIG
from harness.record.settled import Settled
from harness.text import counted
from sut.prepare import PreparedClient

# LoadGen's own rates: queries (Server) or samples (Offline) each second, ms of a query in SingleStream.
_LOADGEN_RATES = {"target_qps": "1 per second", "target_latency": "10 ms"}
_MOST_QUERIES = 10**9  # LoadGen keeps some hundred bytes of each


class Inputs(msgspec.Struct, frozen=True):
    """The files of a run: the dataset, and what the conf files set for its model and scenario."""

    samples: SampleSet
    settings: Mapping[str, Number]
    """by LoadGen's key, with those of an audit.config"""
    audit: Mapping[str, Number] | None
    """those of an audit.config alone, None without one"""
    warnings: tuple[str, ...]
    """about the flags, and the rows that LoadGen skips"""


def read_inputs(plan: RunPlan, *, rate_follows: bool) -> Inputs:
    """Read and check the files of a plan. Raises ConfigError and DatasetError.

    ``rate_follows``: the runs have a rate of their own, so that the file's is not missed.
    """
    run = plan.conf_key
    user = read_conf(plan.user_conf, run)
    mlperf = Conf() if plan.mlperf_conf is None else read_conf(plan.mlperf_conf, run, "mlperf")
    audit, skipped = _audit_settings(plan, run)
    settings = {**mlperf.settings, **user.settings, **(audit or {})}
    client = plan.client
    samples = load_samples(
        client.input_file, vocabulary_size=client.benchmark.vocabulary_size, max_samples=plan.max_samples
    )
    rates = () if rate_follows else _rate_warnings(plan, settings)
    warnings = (*client.warnings, *mlperf.warnings, *user.warnings, *skipped, *rates)
    return Inputs(samples, settings, audit, warnings)


def _audit_settings(plan: RunPlan, run: ConfKey) -> tuple[Mapping[str, Number] | None, tuple[str, ...]]:
    """The audit settings of this run and what LoadGen skips of them. Raises ConfigError for another mode."""
    if plan.audit_text is None:
        return None, ()
    source = f"--audit-config {plan.audit_config}"
    conf = parse_conf(plan.audit_text, source, run, "audit")
    wanted, mode = _mode_number(accuracy=plan.accuracy), conf.settings.get("mode")
    if mode not in (None, wanted):
        flag = "omit --accuracy" if plan.accuracy else "add --accuracy"
        remedy = flag if mode == _mode_number(accuracy=not plan.accuracy) else "remove the row"
        raise ConfigError(
            f"{source}: mode = {mode}, but a run in {plan.mode} mode needs {wanted}: "
            f"LoadGen would run another mode than asked for; {remedy}"
        )
    return conf.settings, conf.warnings


def _mode_number(*, accuracy: bool) -> int:
    return TEST_MODES.index(ACCURACY_MODE if accuracy else PERFORMANCE_MODE)


def _rate_warnings(plan: RunPlan, settings: Mapping[str, Number]) -> Iterator[str]:
    """A warning where the conf file has no rate for this model and scenario: LoadGen then has its own."""
    key = plan.scenario.rate_key
    if key not in settings:
        yield (
            f"{plan.user_conf}: no row sets {key} for {plan.model_key} and "
            f"{plan.scenario.loadgen}: LoadGen takes its own, {_LOADGEN_RATES[key]}"
        )


def settle(
    inputs: Inputs, prepared: PreparedClient, readback: dict[str, Setting], expected: ExpectedQueries
) -> Settled:
    """What the record adds to the plan."""
    return Settled(
        samples=len(inputs.samples),
        dataset_sha256=inputs.samples.sha256,
        prompts=inputs.samples.as_text,
        placement=prepared.placement,
        concurrency=prepared.concurrency,
        audit_settings=None if inputs.audit is None else dict(inputs.audit),
        loadgen_settings=readback,
        conf_warnings=inputs.warnings,
        expected=expected,
    )


def rule_deviations(plan: RunPlan, inputs: Inputs, readback: Mapping[str, Setting]) -> tuple[str, ...]:
    """LoadGen's settings and the dataset against the rules.

    Raises ConfigError for settings that LoadGen reads back differently and that nobody asked for.
    """
    return (
        *plan.client.deviations,
        *_setting_deviations(plan, inputs, readback),
        *_dataset_deviations(plan, inputs.samples),
    )


def require_official(plan: RunPlan, deviations: tuple[str, ...]) -> None:
    """Refuse an official run or compliance test that deviates. Raises ConfigError."""
    if deviations and plan.official:
        raise ConfigError(
            f"--official: the run would be NOT OFFICIAL: {'; '.join(deviations)}; "
            "remove what deviates, or omit the flag"
        )
    if deviations and plan.audit is not None and plan.audit.official:
        raise ConfigError(
            f"{plan.audit.test} would not be official: {'; '.join(deviations)}; "
            "remove what deviates, or add --rehearsal to run it anyway"
        )


def require_limits(plan: RunPlan, readback: Mapping[str, Setting]) -> None:
    """Refuse a percentile without early stopping, and limits that no answer keeps. Raises ConfigError."""
    if plan.scenario.one_query:
        return
    percentile = target_percentile(plan.scenario, readback)
    if not LEAST_PERCENTILE <= percentile <= MOST_PERCENTILE:
        raise ConfigError(
            f"{_row(plan, 'target_latency_percentile')} is {percentile * 100:g}, expected "
            f"{LEAST_PERCENTILE * 100:g} to {MOST_PERCENTILE * 100:g}; the rules say "
            f"{90 if plan.scenario.one_at_a_time else 99}"
        )
    for name, limit_ns in limits_ns(plan.scenario, readback).items():
        if not limit_ns:
            raise ConfigError(
                f"{_row(plan, f'{name.lower()}_latency')} is 0, which is a limit for LoadGen, and no answer "
                "keeps it; for a trial without a limit write a large one, such as 3600000 ms"
            )


def _row(plan: RunPlan, key: str) -> str:
    """``user.conf: gpt-oss-120b.Server.KEY``: the file that decides on a setting, and the row in it."""
    if plan.audit_text is not None:
        file = plan.audit_config if plan.audit is None else plan.audit.file
        source = f"--audit-config {file}"
        if key in parse_conf(plan.audit_text, source, plan.conf_key, "audit").settings:
            return f"{source}: *.*.{key}"
    return f"{plan.conf_with(key)}: {plan.model_key}.{plan.scenario.loadgen}.{key}"


def require_times_of_tokens(plan: RunPlan, readback: Mapping[str, Setting]) -> None:
    """Refuse answers of which LoadGen can compute no TPOT, in accuracy mode, too. Raises ConfigError."""
    if readback["use_token_latencies"] and plan.client.parameters.max_new_tokens == 1:
        raise ConfigError(
            "max_new_tokens is 1, expected 2 or more: LoadGen can compute no TPOT of an answer with a single "
            "token and logs an error for each, so that the run is INVALID; raise --max-new-tokens, or that "
            "of the generation config; to measure prefills alone, put '*.*.use_token_latencies = 0' into "
            "the --user-conf"
        )


def require_enough_queries(plan: RunPlan, readback: Mapping[str, Setting], expected: ExpectedQueries) -> None:
    """Refuse a run without a query, and one that an early end or early stopping is certain to make INVALID.

    Raises ConfigError.
    """
    if not expected.samples:
        raise ConfigError(
            f"{_row(plan, 'min_query_count')} is 0: LoadGen would have no query to issue, and crash; write "
            f"{fewest_queries(plan, readback)} or more"
        )
    if expected.samples > _MOST_QUERIES:
        raise ConfigError(
            f"{plan.user_conf}: LoadGen would plan {expected.samples:.3g} samples by target_qps, "
            f"min_duration and min_query_count, expected at most {_MOST_QUERIES:.0e}; lower the one that is "
            "wrong"
        )
    key = "performance_issue_same_index"
    if readback["performance_issue_same"] and not plan.accuracy and readback[key] >= expected.dataset:
        raise ConfigError(
            f"{_row(plan, key)} is {readback[key]:g}, LoadGen has "
            f"{counted(expected.dataset, 'sample')}, counted from 0, and would crash; write less"
        )
    if plan.accuracy or plan.audit_text is not None:
        return  # a compliance test counts whether LoadGen reports VALID or not
    if row := ended_by(readback, plan.scenario.loadgen, expected):
        raise ConfigError(ends_early(plan, row))
    most = expected.samples if expected.exact else int(readback["max_query_count"])
    if most and (problem := too_few_queries(most, plan, readback)):
        raise ConfigError(problem)


def ends_early(plan: RunPlan, row: str) -> str:
    """What a conf row does by which LoadGen ends a run, and what to do."""
    return (
        f"{plan.conf_with(row)}: {row} would end the run early, which LoadGen logs as an error, so that it "
        "is INVALID; remove the row: a run ends by min_query_count and min_duration"
    )


def stray_audit_config(plan: RunPlan) -> str | None:
    """A warning when the working directory holds an audit.config: other harnesses use it without a flag."""
    stray = Path(AUDIT_CONFIG).absolute()
    if not stray.exists() or plan.audit_config == stray:
        return None
    return f"{stray} is not used: the audit settings of a run are those of --audit-config"


def _audit_deviation(audit: Mapping[str, Number]) -> str:
    return f"audit settings are in force ({_test_name(audit)}): no result of a performance or accuracy run"


def _test_name(audit: Mapping[str, Number]) -> str:
    return test_named(audit) or "of no known test"


def _setting_deviations(plan: RunPlan, inputs: Inputs, readback: Mapping[str, Setting]) -> tuple[str, ...]:
    locked = rule_checks.locked_settings(
        plan.client.benchmark,
        plan.scenario,
        accuracy=plan.accuracy,
        audit=None if plan.audit is None else plan.audit.settings,
    )
    found = rule_checks.setting_deviations(locked, readback, inputs.settings, len(inputs.samples))
    if plan.audit is None and inputs.audit is not None:
        found = (_audit_deviation(inputs.audit), *found)
    if plan.scenario.one_query and not plan.accuracy and plan.audit is None:
        found += rule_checks.offline_deviations(readback, plan.client.benchmark.dataset(accuracy=False))
    if plan.mlperf_conf is not None:
        found += (f"--mlperf-conf {plan.mlperf_conf} is read on top of LoadGen's own; omit the flag",)
    return found


def dataset_warnings(plan: RunPlan, samples: SampleSet) -> tuple[str, ...]:
    """A file of the official size that is not the published one. Raises OSError."""
    rule = _dataset_rule(plan, samples)
    if len(samples) != rule.samples:
        return ()
    found = other_than_published(plan.client.benchmark.name, rule, plan.client.input_file)
    return (found,) if found else ()


def _dataset_rule(plan: RunPlan, samples: SampleSet) -> DatasetRule:
    if plan.audit is not None:
        return plan.audit.dataset
    with_audit = plan.audit_text is not None
    return rule_checks.dataset_rule(
        plan.client.benchmark, accuracy=plan.accuracy, audit=with_audit, samples=len(samples)
    )


def _dataset_deviations(plan: RunPlan, samples: SampleSet) -> tuple[str, ...]:
    markers = plan.client.benchmark.reasoning_effort_ids
    rule = _dataset_rule(plan, samples)
    meant = rule_checks.benchmarks_with(plan.client.input_file, len(samples), plan.client.benchmark)
    efforts = prompt_efforts(samples, markers)
    return rule_checks.dataset_deviations(rule, len(samples), efforts, bool(markers), meant)
