"""What was set at a point, by name: from its own files, and from what this client saw."""

from collections.abc import Iterator, Mapping

from harness.endpoints.point_run import PointRun
from harness.endpoints.view.official_forms import ConfigYaml, ModelParameters, PointYaml, SystemDescription

MODEL, DATASET, DATASET_FILE = "model", "dataset", "dataset (sha256)"

_Stated = Iterator[tuple[str, str | None]]


def settings_of(
    point: PointYaml, config: ConfigYaml, system: SystemDescription, run: PointRun | None
) -> Mapping[str, str]:
    """What a file declares counts before the client's configuration, what this client saw before both."""
    stated = [*_configured(config.model_params), *_declared(point, system), *_seen(run)]
    return {name: text for name, text in stated if text}


def _configured(model: ModelParameters) -> _Stated:
    yield MODEL, model.name
    yield "most tokens of an answer", _text(model.max_new_tokens)
    yield from _sampling(model.temperature, model.top_p, model.top_k)


def _sampling(temperature: float | None, top_p: float | None, top_k: int | None) -> _Stated:
    yield "temperature", _text(temperature)
    yield "top_p", _text(top_p)
    is_off = top_k is not None and top_k <= 0  # 0, or -1 in the official file
    yield "top_k", "off" if is_off else _text(top_k)


def _declared(point: PointYaml, system: SystemDescription) -> _Stated:
    yield MODEL, point.model_name
    yield "model precision", point.model_precision or system.model_precision
    yield DATASET, point.dataset_name
    yield "seed set", point.seed_set
    yield "target cohort", point.target_cohort
    yield "system", system.system_name
    yield "engine", system.serving_framework
    yield "nodes", _text(system.system_node_ensemble_total)
    yield "nodes used", _joined(" + ", *(_text(one.nodes) for one in point.nodes_used or ()))
    yield "accelerators of a node", _joined(", ", *_accelerators(system))
    yield "parallelism", _joined(", ", *_parallelism(system))


def _accelerators(system: SystemDescription) -> Iterator[str]:
    for node in system.node_types:
        for one in node.accelerator_info:
            yield f"{one.accelerators_per_node or '?'} x {one.accelerator_model_name or '?'}"


def _parallelism(system: SystemDescription) -> Iterator[str]:
    for name, ways in (
        ("TP", system.tensor_parallel),
        ("PP", system.pipeline_parallel),
        ("EP", system.expert_parallel),
        ("DP", system.data_parallel),
    ):
        if ways is not None:
            yield f"{name} {ways}"


def _seen(run: PointRun | None) -> _Stated:
    if run is None:
        return
    curve, parameters = run.curve, run.parameters
    yield MODEL, curve.model_name
    yield "seed set", curve.seeds.name
    yield "target cohort", curve.seeds.cohort
    yield "engine", ", ".join(sorted({one.software for one in run.servers}))
    yield "servers", str(len(run.servers))
    yield "weights", ", ".join(sorted({one.names for one in run.servers}))
    yield DATASET_FILE, run.dataset_sha256[:12]
    yield "samples", f"{curve.samples:,}"
    yield "order of samples", "with replacement" if curve.replacement else "a permutation in each pass"
    yield "salt", f"{curve.salt_bits} bits" if curve.salt_bits else "none"
    yield "rehearsed", "short, for the forms" if curve.short else "in full"
    yield "most tokens of an answer", str(parameters.max_new_tokens)
    yield from _sampling(parameters.temperature, parameters.top_p, parameters.top_k)
    if run.provenance.git is not None:
        yield "commit of the harness", run.provenance.git.commit[:12]


def _joined(between: str, *parts: str | None) -> str:
    return between.join(part for part in parts if part)


def _text(value: object) -> str | None:
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)
