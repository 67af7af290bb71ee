"""Decisions and checks between the plan and the first query."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness.config import rule_checks
from harness.config.audit_config import test_named
from harness.config.expected_queries import Issue, expected_issue
from harness.config.loadgen_conf import Conf, Number, Target, parse_conf, read_conf
from harness.config.loadgen_settings import ACCURACY_MODE, PERFORMANCE_MODE, TEST_MODES
from harness.config.run_plan import MOST_WORKERS, RunPlan
from harness.dataset.samples import SampleSet, load_samples, prompt_efforts
from harness.errors import ConfigError
from harness.files import AUDIT_CONFIG
from harness.record.resolved_plan import Placement, ResolvedPlan, ServerInfo
from sut.loadgen.binding import Readback
from sut.processes.machine_limits import check_workers, machine_limits
from sut.servers.differences import replica_warnings
from sut.servers.routers import router_warnings
from sut.servers.server_info import (
    check_capacity,
    model_deviations,
    model_warnings,
    parameter_warnings,
    stream_warnings,
)
from sut.supervisor.connection_limits import ConnectionLimits
from sut.supervisor.placement import choose, expected_load, server_is_here, this_machine

# Offline asks for twice what the server runs at once, so that its queue never runs dry.
_QUEUE_FACTOR = 2
# LoadGen's own rates: queries (Server) or samples (Offline) each second, ms of a query in SingleStream.
_LOADGEN_RATES = {"target_qps": "1 per second", "target_latency": "10 ms"}
# A guess for each rank of a server that does not report it: vLLM's default on GPUs of at least 70 GiB
# (max_num_seqs in vLLM 0.32.0's arg_utils.py). Too many only wait in the server's queue.
_UNKNOWN_RANK_RUNS = 1024


@dataclass(frozen=True, slots=True)
class Inputs:
    """The dataset, and the settings of the conf files for this run, by LoadGen's key.

    ``audit`` are those of an audit.config, None without one; ``settings`` hold them too. ``warnings`` name
    the rows that LoadGen skips.
    """

    samples: SampleSet
    settings: Mapping[str, Number]
    audit: Mapping[str, Number] | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked plan. ``concurrency`` None: LoadGen alone decides how many queries are in flight.

    ``connections``: the most that are expected in all. ``conf_warnings``: rows of conf files that LoadGen
    skips. ``audit``: the audit settings in force, None for none. ``left_out``: servers by URL, and why.
    """

    plan: RunPlan
    samples: SampleSet
    readback: Readback
    servers: tuple[ServerInfo, ...]
    placement: Placement
    concurrency: int | None
    connections: int
    deviations: tuple[str, ...]
    issue: Issue
    warnings: tuple[str, ...] = ()
    conf_warnings: tuple[str, ...] = ()
    audit: Mapping[str, Number] | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)


def read_inputs(plan: RunPlan, *, rate_follows: bool = False) -> Inputs:
    """Read and check the files of a plan. Raises ConfigError and DatasetError.

    ``rate_follows``: the runs have a rate of their own, so that the file's is not missed.
    """
    target = Target(plan.model_key, plan.scenario.loadgen, interactive=bool(plan.scenario.key_suffix))
    user = read_conf(plan.user_conf, target)
    mlperf = Conf() if plan.mlperf_conf is None else read_conf(plan.mlperf_conf, target, "mlperf")
    audit, skipped = _audit_settings(plan, target)
    settings = {**mlperf.settings, **user.settings, **(audit or {})}
    samples = load_samples(
        plan.input_file, vocabulary_size=plan.benchmark.vocabulary_size, max_samples=plan.max_samples
    )
    rates = () if rate_follows else _rate_warnings(plan, settings)
    warnings = (*plan.warnings, *mlperf.warnings, *user.warnings, *skipped, *rates)
    return Inputs(samples, settings, audit, warnings)


def _audit_settings(plan: RunPlan, target: Target) -> tuple[Mapping[str, Number] | None, tuple[str, ...]]:
    """The audit settings of this run and what LoadGen skips of them. Raises ConfigError for another mode."""
    if plan.audit is not None:
        return plan.audit.settings, ()
    if plan.audit_text is None:
        return None, ()
    source = f"--audit-config {plan.audit_config}"
    conf = parse_conf(plan.audit_text, source, target, "audit")
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


def place_workers(plan: RunPlan, inputs: Inputs) -> Placement:
    """Workers and cores for this plan on this machine."""
    load = expected_load(plan, inputs.settings)
    if plan.num_workers is not None:
        check_workers(plan.num_workers)
    placement = choose(this_machine(), load, plan.num_workers, server_here=server_is_here(plan))
    if placement.workers > MOST_WORKERS:
        raise ConfigError(
            f"--max-concurrency {plan.max_concurrency} needs {placement.workers} workers {placement.reason}; "
            "allow more open files (ulimit -Hn) or lower it"
        )
    return placement


def prepare(
    plan: RunPlan,
    inputs: Inputs,
    placement: Placement,
    readback: Readback,
    servers: tuple[ServerInfo, ...],
) -> Prepared:
    """Check settings, dataset and servers against the rules. Raises ConfigError and ServerError."""
    samples = inputs.samples
    deviations = (
        *plan.deviations,
        *_setting_deviations(plan, inputs, readback),
        *_dataset_deviations(plan, samples),
        *model_deviations(servers, plan.benchmark),
    )
    concurrency, expected, warnings = _client_load(plan, inputs, placement, servers)
    _require_official(plan, deviations)
    return Prepared(
        plan,
        samples,
        readback,
        servers,
        placement,
        concurrency,
        expected,
        deviations,
        expected_issue(readback, plan.scenario.loadgen, len(samples), accuracy=plan.accuracy),
        warnings,
        inputs.warnings,
        inputs.audit,
    )


def prepare_rows(
    plan: RunPlan, samples: SampleSet, placement: Placement, servers: tuple[ServerInfo, ...], rows: int
) -> Prepared:
    """The same for ``rows`` rows without LoadGen and its settings. Raises ServerError."""
    inputs = Inputs(samples, {}, None, ())
    concurrency, expected, warnings = _client_load(plan, inputs, placement, servers)
    deviations = tuple(model_deviations(servers, plan.benchmark))
    issue = Issue(rows, len(samples), exact=True, seconds=None)
    return Prepared(plan, samples, {}, servers, placement, concurrency, expected, deviations, issue, warnings)


def _client_load(
    plan: RunPlan, inputs: Inputs, placement: Placement, servers: tuple[ServerInfo, ...]
) -> tuple[int | None, int, tuple[str, ...]]:
    """Requests in flight (None: as LoadGen issues them), connections expected, and warnings.

    Raises ServerError where the servers cannot take the dataset.
    """
    samples = inputs.samples
    check_capacity(
        servers,
        int(samples.lengths.max()),
        plan.parameters.max_new_tokens,
        int(samples.ids.max()) + 1,
        samples.longest(plan.parameters.max_new_tokens),
    )
    limits = ConnectionLimits(machine_limits(), placement.workers, tuple(server.url for server in servers))
    concurrency = _concurrency(plan, servers, limits)
    expected = concurrency or expected_load(plan, inputs.settings).open_expected or 1
    warnings = (
        *model_warnings(servers, plan.benchmark),
        *replica_warnings(servers),
        *router_warnings(servers),
        *parameter_warnings(servers, plan.parameters),
        *(stream_warnings(servers) if not plan.scenario.streams and plan.parameters.stream else ()),
        *limits.warnings(expected, all_at_once=not plan.scenario.poisson),
    )
    return concurrency, expected, warnings


def _require_official(plan: RunPlan, deviations: tuple[str, ...]) -> None:
    if deviations and plan.audit is not None and plan.audit.official:
        raise ConfigError(
            f"{plan.audit.test} would not be official: {'; '.join(deviations)}; "
            "remove what deviates, or add --non-official to run it anyway"
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


def resolved_plan(prepared: Prepared) -> ResolvedPlan:
    """The plan as a record has it."""
    settled = {
        "samples": len(prepared.samples),
        "dataset_sha256": prepared.samples.sha256,
        "placement": prepared.placement,
        "concurrency": prepared.concurrency,
        "loadgen_settings": prepared.readback,
        "conf_warnings": prepared.conf_warnings,
        "expected": prepared.issue,
        "audit_settings": prepared.audit,
    }
    plan: dict[str, Any] = msgspec.to_builtins(prepared.plan, enc_hook=str)
    return msgspec.convert(
        plan | msgspec.to_builtins(settled), ResolvedPlan, dec_hook=lambda kind, value: kind(value)
    )


def _setting_deviations(plan: RunPlan, inputs: Inputs, readback: Readback) -> tuple[str, ...]:
    locked = rule_checks.locked_settings(
        plan.benchmark,
        plan.scenario,
        accuracy=plan.accuracy,
        audit=None if plan.audit is None else plan.audit.settings,
    )
    found = rule_checks.setting_deviations(locked, readback, inputs.settings, len(inputs.samples))
    if plan.audit is None and inputs.audit is not None:
        found = (_audit_deviation(inputs.audit), *found)
    if plan.scenario.one_query and not plan.accuracy and plan.audit is None:
        found += rule_checks.offline_deviations(readback, plan.benchmark.dataset(accuracy=False))
    if plan.mlperf_conf is not None:
        found += (f"--mlperf-conf {plan.mlperf_conf} is used in place of LoadGen's own mlperf.conf",)
    return found


def _dataset_deviations(plan: RunPlan, samples: SampleSet) -> tuple[str, ...]:
    markers = plan.benchmark.reasoning_effort_ids
    if plan.audit is not None:
        rule = plan.audit.dataset
    else:
        with_audit = plan.audit_text is not None
        rule = rule_checks.dataset_rule(
            plan.benchmark, accuracy=plan.accuracy, audit=with_audit, samples=len(samples)
        )
    return rule_checks.dataset_deviations(rule, len(samples), prompt_efforts(samples, markers), bool(markers))


def _concurrency(plan: RunPlan, servers: Sequence[ServerInfo], limits: ConnectionLimits) -> int | None:
    """The given limit, checked against the machine; in Offline by default the most that fits."""
    if plan.max_concurrency is not None:
        limits.check(plan.max_concurrency)
    if plan.max_concurrency is not None or not plan.scenario.one_query:
        return plan.max_concurrency
    wanted = sum(
        server.max_running_requests or _UNKNOWN_RANK_RUNS * (server.dp_size or 1) for server in servers
    )
    return min(_QUEUE_FACTOR * wanted, limits.max_connections)
