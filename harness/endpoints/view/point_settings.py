"""What was set at a point, by name: from its own files, and from what this client saw."""

from collections.abc import Iterator, Mapping

from harness.endpoints.official_files import Fields, number, table, tables
from harness.endpoints.point_run import PointRun

MODEL, DATASET, DATASET_FILE = "model", "dataset", "dataset (sha256)"
SAMPLES, MOST_TOKENS = "samples", "most tokens of an answer"

_Stated = Iterator[tuple[str, str | None]]


def settings_of(point: Fields, config: Fields, system: Fields, run: PointRun | None) -> Mapping[str, str]:
    """What a file declares counts before the client's configuration, what this client saw before both."""
    stated = [*_configured(table(config, "model_params")), *_declared(point, system), *_seen(run)]
    return {name: text for name, text in stated if text}


def _configured(model: Fields) -> _Stated:
    yield MODEL, _text(model.get("name"))
    yield MOST_TOKENS, _text(model.get("max_new_tokens"))
    yield from _sampling(*(number(model.get(name)) for name in ("temperature", "top_p", "top_k")))


def _sampling(temperature: float | None, top_p: float | None, top_k: float | None) -> _Stated:
    yield "temperature", _text(temperature)
    yield "top_p", _text(top_p)
    is_off = top_k is not None and top_k <= 0  # 0, or -1 in the official file
    yield "top_k", "off" if is_off else _text(top_k)


def _declared(point: Fields, system: Fields) -> _Stated:
    for name, value in (
        (MODEL, point.get("model_name")),
        ("model precision", point.get("model_precision") or system.get("model_precision")),
        (DATASET, point.get("dataset_name")),
        ("seed set", point.get("seed_set")),
        ("target cohort", point.get("target_cohort")),
        ("system", system.get("system_name")),
        ("engine", system.get("serving_framework")),
        ("nodes", system.get("system_node_ensemble_total")),
    ):
        yield name, _text(value)
    yield "nodes used", _joined(" + ", *(_text(one.get("nodes")) for one in tables(point, "nodes_used")))
    yield "accelerators of a node", _joined(", ", *_accelerators(system))
    yield "parallelism", _joined(", ", *_parallelism(system))


def _accelerators(system: Fields) -> Iterator[str]:
    for node in tables(system, "node_types"):
        for one in tables(node, "accelerator_info"):
            yield " x ".join(
                _text(one.get(name)) or "?" for name in ("accelerators_per_node", "accelerator_model_name")
            )


def _parallelism(system: Fields) -> Iterator[str]:
    for name, kind in (("TP", "tensor"), ("PP", "pipeline"), ("EP", "expert"), ("DP", "data")):
        if ways := _text(system.get(f"{kind}_parallel")):
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
    yield SAMPLES, f"{curve.samples:,}"
    yield "order of samples", "with replacement" if curve.replacement else "a permutation in each pass"
    yield "salt", f"{curve.salt_bits} bits" if curve.salt_bits else "none"
    yield "rehearsed", "short, for the forms" if curve.short else "in full"
    yield MOST_TOKENS, str(parameters.max_new_tokens)
    yield from _sampling(parameters.temperature, parameters.top_p, parameters.top_k)
    if run.provenance.git is not None:
        yield "commit of the harness", run.provenance.git.commit[:12]


def _joined(between: str, *parts: str | None) -> str:
    return between.join(part for part in parts if part)


def _text(value: object) -> str | None:
    """A number or text, as a reader writes it; None for anything else."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str | int) else None
