"""What is read of the official files of a point. Fields that a file lacks are None; others are skipped."""

from typing import Any

import msgspec


class SteadyWindow(msgspec.Struct, frozen=True):
    """Super-passes count from 0 in the run, ends included."""

    super_pass_start: int | None = None
    super_pass_end: int | None = None
    super_pass_size: int | None = None
    duration_s: float | None = None

    @property
    def super_passes(self) -> int | None:
        """Their number."""
        if self.super_pass_start is None or self.super_pass_end is None:
            return None
        return self.super_pass_end - self.super_pass_start + 1


class SteadyBlock(msgspec.Struct, frozen=True):
    """``steady_state`` of point.yaml (section 4.4)."""

    status: str | None = None
    verdict: str | None = None
    window: SteadyWindow = SteadyWindow()


class Values(msgspec.Struct):
    """Statistics of one value of all requests."""

    total: float = 0.0
    percentiles: dict[str, float | None] = {}

    def __post_init__(self) -> None:
        """Write all keys as `90.0`; some versions of the client have `90`. Raises ValueError."""
        self.percentiles = {str(float(key)): value for key, value in self.percentiles.items()}

    def by_percentile(self) -> dict[int, float]:
        """Those of whole percents."""
        found = {float(key): value for key, value in self.percentiles.items() if value is not None}
        return {int(key): value for key, value in found.items() if key.is_integer()}


class Summary(msgspec.Struct):
    """result_summary.json."""

    n_samples_issued: int | None = None
    n_samples_failed: int | None = None
    duration_ns: float | None = None
    ttft: Values = msgspec.field(default_factory=Values)
    tpot: Values = msgspec.field(default_factory=Values)
    output_sequence_lengths: Values = msgspec.field(default_factory=Values)
    steady_state: dict[str, Any] | None = None
    """in the form of the official client's headline"""


class NodesUsed(msgspec.Struct):
    """One kind of node."""

    nodes: int | None = None


class DeclaredWarmUp(msgspec.Struct):
    """What was sent before the first counted request."""

    duration_s: float | None = None
    requests_issued: int | None = None
    requests_completed: int | None = None
    data_source: str | None = None
    concurrency: int | None = None


class PointYaml(msgspec.Struct):
    """point.yaml."""

    concurrency: int | None = None
    offline: str | None = None
    max_supported_concurrency: int | None = None
    model_name: str | None = None
    model_precision: str | None = None
    dataset_name: str | None = None
    seed_set: str | None = None
    target_cohort: str | None = None
    nodes_used: list[NodesUsed] | None = None
    point_power_kw: float | None = None
    warmup: DeclaredWarmUp | None = None
    steady_state: SteadyBlock | None = None


class LoadPattern(msgspec.Struct):
    """The load of config.yaml."""

    target_concurrency: int | None = None


class Settings(msgspec.Struct):
    """The settings of config.yaml."""

    load_pattern: LoadPattern = msgspec.field(default_factory=LoadPattern)


class ModelParameters(msgspec.Struct):
    """The model and its sampling in config.yaml."""

    name: str | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


class ConfigYaml(msgspec.Struct):
    """config.yaml, the official client's own settings."""

    type: str | None = None
    model_params: ModelParameters = msgspec.field(default_factory=ModelParameters)
    settings: Settings = msgspec.field(default_factory=Settings)


class Accelerators(msgspec.Struct):
    """One kind of accelerator in a node."""

    accelerator_model_name: str | None = None
    accelerators_per_node: int | None = None


class NodeType(msgspec.Struct):
    """One kind of node."""

    accelerator_info: list[Accelerators] = []


class SystemDescription(msgspec.Struct):
    """system_desc.json."""

    system_name: str | None = None
    max_supported_concurrency: int | None = None
    serving_framework: str | None = None
    model_precision: str | None = None
    system_node_ensemble_total: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    expert_parallel: int | None = None
    data_parallel: int | None = None
    node_types: list[NodeType] = []


class ComputedPower(msgspec.Struct):
    """What the descriptor adds up to."""

    total_system_power_w: float | None = None


class SystemPower(msgspec.Struct):
    """system_power.json."""

    provisioned_power_kw: float | None = None
    computed: ComputedPower | None = None

    @property
    def kilowatts(self) -> float | None:
        """As the file states it; the components are the checker's to add up."""
        if self.provisioned_power_kw is not None:
            return self.provisioned_power_kw
        watts = self.computed.total_system_power_w if self.computed is not None else None
        return None if watts is None else watts / 1000
