"""The client's part between the plan and the first query: workers, servers, connections."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.config.client_plan import MOST_WORKERS
from harness.config.generation import SamplingParameters
from harness.config.plans import ClientPlan
from harness.config.protocol import Dialect, prompts_of
from harness.dataset.model_template import open_model_template
from harness.dataset.round_trip import with_texts
from harness.dataset.samples import SampleSet
from harness.errors import ConfigError
from harness.grading.decoding.output_decoder import tokenizer_file
from harness.grading.decoding.text_tokenizer import text_tokenizer
from harness.record.settled import Placement, ServerInfo, running_limit
from sut.processes.machine_limits import check_workers, machine_limits
from sut.servers.apis import asked_by
from sut.servers.discovery import Servers
from sut.servers.server_checks import (
    check_capacity,
    model_deviations,
    model_warnings,
    parameter_warnings,
    replica_warnings,
    router_warnings,
    stream_warnings,
)
from sut.servers.setting_checks import (
    queue_warnings,
    setting_deviations,
    setting_warnings,
    unseen_option_warnings,
)
from sut.supervisor.connection_limits import ConnectionLimits
from sut.supervisor.placement import Load, choose, server_is_here, this_machine, with_requests_for_all

# Offline asks for twice what the server runs at once, so that its queue never runs dry.
_QUEUE_FACTOR = 2
_TEMPLATE_FIELDS = "chat_template_kwargs"  # the field of a request with what its template is given
_MANY_TOKENS = 2_000_000  # their texts take seconds
# By default asked to add nothing to a text: see sut/wire/openai.py.
_TOLD_WHAT_TO_ADD: tuple[Dialect, ...] = ("openai", "trtllm")

log = logging.getLogger("mlperf")


class PreparedClient(msgspec.Struct, frozen=True):
    """The client's part of a plan, checked against its servers and this machine."""

    plan: ClientPlan
    samples: SampleSet
    servers: tuple[ServerInfo, ...]
    placement: Placement
    concurrency: int | None
    """requests in flight; None: the issuer alone decides"""
    connections: int
    """the most that are expected in all"""
    deviations: tuple[str, ...]
    """of the servers' model, and of the prompts that they get"""
    warnings: tuple[str, ...]
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)
    """servers by URL, and why"""
    all_at_once: bool = False
    """all queries are issued at the start, and the times of tokens are not measured"""


def place_workers(plan: ClientPlan, load: Load) -> Placement:
    """Workers and cores for this load on this machine."""
    placement = choose(this_machine(), load, plan.num_workers, server_here=server_is_here(plan))
    if placement.workers > MOST_WORKERS:
        raise ConfigError(
            f"--max-concurrency {plan.max_concurrency} needs {placement.workers} workers {placement.reason}; "
            "allow more open files (ulimit -n) or lower it"
        )
    check_workers(placement.workers, placement.reason, asked=plan.num_workers is not None)
    return placement


def client_holds(plan: ClientPlan, servers: Sequence[ServerInfo]) -> int:
    """Connections that fit, with the workers for what the servers run at once."""
    workers = place_workers(plan, Load(open_at_most=running_limit(servers))).workers
    return ConnectionLimits(machine_limits(), workers, [server.url for server in servers]).max_connections


def as_sent(plan: ClientPlan, samples: SampleSet, first_row: int = 0) -> SampleSet:
    """The samples with their prompts as text, where the plan's API takes text.

    ``first_row``: that of the first sample in the file. Raises ConfigError without the model's tokenizer, or
    that which is asked for, and DatasetError where the text of a prompt is another prompt.
    """
    if plan.tokenizer is not None:  # where nothing may be text, too
        tokenizer_file(plan.benchmark, plan.input_file, plan.tokenizer)
    if plan.api is None or prompts_of(plan.api) == "ids":
        return samples
    source = text_tokenizer(plan.benchmark, plan.input_file, plan.tokenizer)
    if len(samples.ids) > _MANY_TOKENS:
        log.info("prompts   encoding the text of %d with %s, to prove it", len(samples), source.name)
    template = open_model_template(Path(source.name).parent) if plan.api == "chat" else None
    sent = with_texts(samples, plan.api, plan.benchmark.tokenizer, source.open(), template, first_row)
    if sent.as_text is None:
        return sent
    facts = replace(sent.as_text, tokenizer=source.name, tokenizer_sha256=source.sha256)
    log.info("prompts   as text: %s", facts)
    return replace(sent, as_text=facts)


def prepare_client(
    plan: ClientPlan, samples: SampleSet, load: Load, placement: Placement, servers: Servers
) -> PreparedClient:
    """Check the servers and the connections to them. ``samples`` are those of ``as_sent``.

    Raises ServerError where the servers cannot take the dataset, ConfigError where too many connections
    are asked for.
    """
    found = asked_by(servers.found, plan.api)
    plan = replace(plan, parameters=_with_fields(plan.parameters, samples, found[0].wire))
    longest = samples.longest(plan.parameters.max_new_tokens)
    check_capacity(found, longest, int(samples.ids.max()) + 1, plan.benchmark)
    limits = ConnectionLimits(machine_limits(), placement.workers, tuple(server.url for server in found))
    concurrency = _concurrency(plan, load, found, limits)
    placement = with_requests_for_all(placement, concurrency)
    connections = concurrency or load.open_expected or 1
    if load.queries is not None:
        connections = min(connections, load.queries)
    warnings = (
        *servers.warnings,
        *model_warnings(found, plan.benchmark),
        *setting_warnings(found),
        *replica_warnings(found),
        *router_warnings(found),
        *unseen_option_warnings(found),
        *parameter_warnings(found, plan.parameters),
        *(stream_warnings(found) if _streams_for_nothing(plan, load) else ()),
        *queue_warnings(found, connections, all_at_once=load.all_at_once),
        *limits.warnings(connections, all_at_once=load.all_at_once),
    )
    of_prompts = samples.as_text.deviations if samples.as_text else ()
    deviations = (*model_deviations(found, plan.benchmark), *setting_deviations(found), *of_prompts)
    return PreparedClient(
        plan,
        samples,
        found,
        placement,
        concurrency,
        connections,
        deviations,
        warnings,
        servers.left_out,
        load.all_at_once,
    )


def _with_fields(parameters: SamplingParameters, samples: SampleSet, dialect: Dialect) -> SamplingParameters:
    """The parameters with the fields that prompts need in all requests. ConfigError for other values."""
    if samples.as_text is None:
        return parameters
    fields: dict[str, Any] = samples.as_text.fields
    if samples.as_text.put_before and dialect in _TOLD_WHAT_TO_ADD:
        fields = {"add_special_tokens": True}
    if dialect == "llamacpp":  # its template takes all of them from one place
        own = {name: value for name, value in fields.items() if name != _TEMPLATE_FIELDS}
        fields = {_TEMPLATE_FIELDS: fields.get(_TEMPLATE_FIELDS, {}) | own}
    for name, value in fields.items():
        if parameters.extra.get(name, value) != value:
            raise ConfigError(
                f"--generation-config: {name} is {parameters.extra[name]!r}, but the prompts of "
                f"{samples.path.name} need {value!r}; remove it"
            )
    return replace(parameters, extra=parameters.extra | fields)


def _streams_for_nothing(plan: ClientPlan, load: Load) -> bool:
    return load.all_at_once and not load.as_measured and plan.parameters.stream


def _concurrency(
    plan: ClientPlan, load: Load, servers: tuple[ServerInfo, ...], limits: ConnectionLimits
) -> int | None:
    """The given limit, checked against the machine; for queries that come all at once the most that fits."""
    limit = plan.max_concurrency
    if limit is not None:
        limit = min(limit, load.open_at_most or limit)  # one query at a time has no other
        limits.check(limit)
    if limit is not None or not load.all_at_once:
        return limit
    return min(_QUEUE_FACTOR * running_limit(servers), limits.max_connections)
