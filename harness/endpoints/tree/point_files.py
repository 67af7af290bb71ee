"""point.yaml and system_desc.json, rules §8.3 and §8.2, from a run folder and the system's TOML."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from harness.endpoints.official_files import at, is_number, load_pattern
from harness.endpoints.planning.rules import PublishedSeeds
from harness.endpoints.point_run import IdleRoundTrip
from harness.endpoints.run_folder import WARM_UP_REQUESTS
from harness.endpoints.tree.power import Power, power_of
from harness.endpoints.tree.run_facts import RunFacts, servers_of_points
from harness.endpoints.tree.system_file import Parallelism, SystemFile
from harness.json_files import Json
from harness.peak.ladder.steps import NOT_A_RESULT

_EARLIEST_NS, _LATEST_NS = 1.5e18, 4e18  # 2017 to 2096: a monotonic clock has less

# Fields of §8.3 that every point discloses.
DISCLOSED = (
    "division",
    "max_supported_concurrency",
    "model_name",
    "model_precision",
    "link_to_model",
    "dataset_name",
    "dataset_link",
    "seed_set",
    "target_cohort",
)
# Fields of §8.2 without which a system is not described, and those of each node type.
DESCRIBED = (
    "system_name",
    "shortened_system_name",
    "system_availability_status",
    "system_size",
)
DESCRIBED_NODE = (
    "host_processor_model_name",
    "host_processor_core_count",
    "host_memory_configuration",
    "host_network_card_count",
    "driver",
    "filesystem",
)


class CurveFacts(msgspec.Struct, frozen=True):
    """What all points of one curve share."""

    system: SystemFile
    power: Power
    c_max: int
    c_min_override: int | None
    offline: Mapping[str, str]
    """`dedicated` or `elected`, by the point's name"""
    highest_tps: float
    framework: str
    network: IdleRoundTrip | None
    label: str | None
    """None where the official client ran every point"""
    seed_sets: tuple[PublishedSeeds, ...]


def curve_facts(
    system: SystemFile, runs: Sequence[RunFacts], seed_sets: tuple[PublishedSeeds, ...]
) -> CurveFacts:
    """From all points, of which one at least is at a fixed concurrency: C_max, Offline, the highest rate."""
    fixed = [one.concurrency for one in runs if not one.dedicated]
    dedicated = {one.name: "dedicated" for one in runs if one.dedicated}
    ours = [one.run for one in runs if one.run is not None]
    curve = ours[0].curve if ours else None
    c_max = system.system.max_supported_concurrency or (curve.c_max if curve else max(fixed))
    override = system.system.c_min_override
    if override is None and curve is not None and curve.c_min != min(fixed):
        override = curve.c_min
    engines = sorted({server.software for server in servers_of_points(runs)})
    first = min(ours, key=lambda run: run.started, default=None)
    return CurveFacts(
        system=system,
        power=power_of(system),
        c_max=c_max,
        c_min_override=override,
        # Without a run of its own, the point at C_max is elected.
        offline=dedicated or {one.name: "elected" for one in runs if one.concurrency == c_max},
        highest_tps=max(one.system_tps for one in runs),
        framework=system.system.serving_framework or ", ".join(engines),
        network=first.network if first else None,
        label=NOT_A_RESULT if ours else None,
        seed_sets=seed_sets,
    )


def point_yaml(one: RunFacts, of: CurveFacts) -> Json:
    """point.yaml. What is not known is left out, and named by ``missing``."""
    system, parallelism = of.system, of.system.parallelism_of(one.name)
    published = one.seed_set(of.seed_sets)
    average = at(one.summary, "output_sequence_lengths", "avg")
    found = {
        "concurrency": one.concurrency,
        "run_date": _run_date(one),
        "dataset": one.dataset_name,
        "division": system.division,
        "max_supported_concurrency": of.c_max,
        **_model(one, of),
        "dataset_name": (not one.is_short and system.dataset.dataset_name) or one.dataset_name,
        "dataset_type": "Performance" if one.accuracy is None else "Accuracy + Performance",
        "dataset_link": system.dataset.dataset_link,
        "shared_src": f"src/{system.implementation}",
        "shared_docs": "docs",
        "seed_set": one.run.curve.seeds.name if one.run else published and published.id,
        "target_cohort": system.target_cohort or (one.run.curve.seeds.cohort if one.run else ""),
        "offline": of.offline.get(one.name, "none"),
        "runtime_settings": _runtime_settings(one, of),
        "warmup": _warm_up(one, system),
        "steady_state": one.steady_state,
        "speculative_decoding": _drafter(system),
        "nodes_used": _nodes_used(parallelism),
        "dp_shortfall": _shortfall(system, parallelism),
        "output_token_average": average if is_number(average) else None,
        **_efficiency(one, of, parallelism),
        "notes": _notes(one, of),
    }
    return {name: value for name, value in found.items() if value not in (None, "", {})}


def system_description(one: RunFacts, of: CurveFacts) -> Json:
    """system_desc.json. All points of a curve have the same but for throughput and parallelism."""
    given = of.system.system
    labelled = f"{of.system.submitter}, {of.label}" if of.label else of.system.submitter
    found = {
        "submitter_org_names": labelled,
        "division": of.system.division,
        "system_name": given.system_name,
        "shortened_system_name": given.shortened_system_name,
        "system_category": given.system_category,
        "system_availability_status": given.system_availability_status,
        "availability_url": given.availability_url,
        "target_availability_date": given.target_availability_date,
        "max_supported_concurrency": of.c_max,
        "c_min_override": of.c_min_override,
        "system_size": given.system_size,
        "system_node_ensemble_count": len(of.system.node_types),
        "system_node_ensemble_total": of.system.nodes,
        "serving_framework": of.framework,
        "cooling": of.system.cooling,
        "network_topology": given.network_topology,
        "baseline_network_latency": _baseline(of.network),
        "notes": "; ".join(filter(None, (of.label, given.notes))),
        "node_types": list(_node_types(of)),
        "tps_utilization": round(one.system_tps / of.highest_tps, 6),
        **_parallelism(of.system.parallelism_of(one.name)),
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _model(one: RunFacts, of: CurveFacts) -> Json:
    given = of.system.model
    return {
        "model_name": given.model_name or one.model_name,
        "model_precision": given.model_precision,
        "link_to_model": given.link_to_model or _served_link(one),
        "link_to_model_transformation": given.link_to_model_transformation,
        "model_notes": "; ".join(filter(None, (of.label, given.model_notes))),
    }


def _served_link(one: RunFacts) -> str | None:
    """The repository that our servers loaded, where they reported one and not a folder."""
    for server in servers_of_points([one]):
        path = server.model_path or ""
        if path.count("/") == 1 and not path.startswith((".", "/")):
            revision = f"/tree/{server.revision}" if server.revision else ""
            return f"https://huggingface.co/{path}{revision}"
    return None


def _run_date(one: RunFacts) -> str | None:
    if one.run is not None:
        return one.run.started.strftime("%Y-%m-%d")
    at = one.summary.get("test_started_at")  # ns of the wall clock in some versions, else of another clock
    if isinstance(at, int | float) and _EARLIEST_NS < at < _LATEST_NS:
        return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d")
    return None


def _runtime_settings(one: RunFacts, of: CurveFacts) -> Json:
    runtime = one.runtime
    seeds = {
        "scheduler_rng_seed": runtime.get("scheduler_random_seed"),
        "sample_index_rng_seed": runtime.get("dataloader_random_seed"),
        "model_seed": _model_seed(one, of),
    }
    found: Json = {
        "load_pattern": load_pattern(one.config),
        # The official client has no such setting since September 2026.
        "min_duration_ms": round(one.run.point.issue_s * 1000) if one.run else runtime.get("min_duration_ms"),
        "min_sample_count": one.samples,
        "stream_all_chunks": bool(at(one.config, "settings", "client", "stream_all_chunks")),
        "runtime": {name: seed for name, seed in seeds.items() if seed is not None},
    }
    if one.run is not None:
        found["salt"] = one.run.curve.salt_bits  # bits of each request; no official field has them
    if one.warm_up.get("enabled"):
        found["warmup"] = {"salt": bool(one.warm_up.get("salt"))}
    return {name: value for name, value in found.items() if value is not None}


def _model_seed(one: RunFacts, of: CurveFacts) -> int | None:
    """The seed of the model's sampling: that of the configuration, else of the published set."""
    if one.run is not None:
        return one.run.curve.seeds.model
    if isinstance(own := at(one.config, "model_params", "seed"), int):
        return own
    published = one.seed_set(of.seed_sets)
    return published.model_seed if published else None


def _warm_up(one: RunFacts, system: SystemFile) -> Json | None:
    """The declared fields of §6.3.3; None where a warm-up ran that nothing describes."""
    if one.run is not None and one.run.warm_up is not None:
        found: Json = msgspec.to_builtins(one.run.warm_up)
        return found | {"logs_retained": (one.folder / WARM_UP_REQUESTS).is_file()}
    if one.run is None and one.warm_up.get("enabled"):
        return None if system.warm_up is None else dict(msgspec.to_builtins(system.warm_up))
    none: Json = {"duration_s": 0, "requests_issued": 0, "requests_completed": 0, "concurrency": 0}
    return none | {"data_source": "none", "initialization_steps": []}


def _drafter(system: SystemFile) -> Json | None:
    if system.drafter is None:
        return None
    stated = msgspec.to_builtins(system.drafter)
    return {name: value for name, value in stated.items() if value}


def _nodes_used(given: Parallelism) -> list[Json] | None:
    used = (given.nodes_used or {}).items()
    return [{"system_node_ensemble_id": int(number), "nodes": nodes} for number, nodes in used] or None


def _shortfall(system: SystemFile, given: Parallelism) -> Json | None:
    """Fewer data-parallel replicas than fit, with the submitter's reason."""
    most = most_replicas(system, given)
    if not given.dp_shortfall or most is None:
        return None
    return {
        "dp_actual": given.data_parallel or 1,
        "dp_formula": most,
        "reason": given.dp_shortfall,
    }


def most_replicas(system: SystemFile, given: Parallelism) -> int | None:
    """Replicas that fit on all accelerators, §4.5.3; None where no parallelism is declared."""
    parts = (given.tensor_parallel, given.pipeline_parallel, given.expert_parallel)
    if given.disaggregated or not any((*parts, given.data_parallel)):
        return None
    replica = math.prod(part or 1 for part in parts)
    return sum(node.number_of_nodes * node.accelerators for node in system.node_types) // replica


def _efficiency(one: RunFacts, of: CurveFacts, given: Parallelism) -> Json:
    """Throughput per kW of the nodes that the point uses."""
    kw = of.power.kw(given.nodes_used)
    if not kw:
        return {}
    return {"point_power_kw": kw, "system_tps_per_kw": round(one.system_tps / kw, 1)}


def _notes(one: RunFacts, of: CurveFacts) -> str | None:
    if of.label is None:
        return None
    short = "; passes and durations are far below the rules'" if one.is_short else ""
    return f"{of.label}: a rehearsal, not run with the reference client{short}"


def _baseline(network: IdleRoundTrip | None) -> Json | None:
    """The idle round trip before the first point."""
    if network is None:
        return None
    return {
        "round_trips": network.count,
        "min_us": round(network.min_ns / 1000, 1),
        "p50_us": round(network.p50_ns / 1000, 1),
    }


def _node_types(of: CurveFacts) -> Iterator[Json]:
    for number, node in enumerate(of.system.node_types, 1):
        stated = msgspec.to_builtins(node)
        del stated["power"]
        stated["inference_backend"] = node.inference_backend or of.framework
        # Without these keys the official checker refuses the whole description.
        kept = ("host_memory_configuration", "host_network_card_count", "driver", "filesystem")
        yield {"system_node_ensemble_id": number} | {
            name: value for name, value in stated.items() if value not in ("", 0) or name in kept
        }


def _parallelism(given: Parallelism) -> Json:
    names = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")
    return {name: getattr(given, name) for name in (*names, "disaggregated", "batch")}
