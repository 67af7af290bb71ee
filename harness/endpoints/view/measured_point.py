"""One measured point as its files show it: a run folder of either client, or `r<N>` of a published tree."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar, get_args

import msgspec

from harness.config.benchmark import Benchmark, load_benchmark
from harness.endpoints.accuracy import PointAccuracy, read_accuracy
from harness.endpoints.curve import Band, Offline
from harness.endpoints.numbers.both_definitions import DefinitionRow, both_definitions
from harness.endpoints.planning.rules import load_endpoints_rules
from harness.endpoints.point_run import PointRun
from harness.endpoints.run_folder import ACCURACY, CONFIG, POINT_RUN, POINT_YAML, SUMMARY, SYSTEM_DESC
from harness.endpoints.steady.steady_block import block_of_summary
from harness.endpoints.view.official_forms import (
    ConfigYaml,
    DeclaredWarmUp,
    PointYaml,
    SteadyBlock,
    Summary,
    SystemDescription,
)
from harness.endpoints.view.point_settings import MODEL, settings_of
from harness.errors import ConfigError
from harness.files import read_decoded
from harness.text import printable
from harness.yaml_files import read_yaml

_NS_PER_S = 1e9
USER_PERCENTILE = 90  # of TPOT, for the tokens per second of a user
_REMEDY = "restore it, or run the point again"
_Form = TypeVar("_Form")


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One measured point; None for what its files do not say."""

    name: str
    """of its folder, such as `r64`"""
    folder: Path
    concurrency: int | None = None
    offline: Offline = "none"
    band: Band | None = None
    declared_c_max: int | None = None
    issued: int | None = None
    failed: int | None = None
    seconds: float | None = None
    """over which system_tps is taken"""
    tokens: float | None = None
    """output tokens of all answers"""
    tpot_ns: Mapping[int, float] = msgspec.field(default_factory=dict)
    """by percentile"""
    ttft_ns: Mapping[int, float] = msgspec.field(default_factory=dict)
    """by percentile"""
    kilowatts: float | None = None
    """provisioned power of the nodes that it uses; None: that of the system"""
    steady: SteadyBlock | None = None
    warm_up: DeclaredWarmUp | None = None
    scored: bool = False
    """whether it has an accuracy run"""
    accuracy: PointAccuracy | None = None
    """None also where the model has no targets here"""
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    """what was set, by name"""
    run: PointRun | None = None
    """what this client knows besides"""
    definitions: Sequence[DefinitionRow] = ()
    """each number as this project and as Endpoints define it"""
    problems: Sequence[str] = ()
    """files that cannot be read, a line each"""

    @property
    def system_tps(self) -> float | None:
        """Output tokens per second."""
        return self.tokens / self.seconds if self.tokens and self.seconds else None

    @property
    def tps_per_user(self) -> float | None:
        """1000 / TPOT p90 in ms. A dedicated Offline run has no user."""
        tpot = self.tpot_ns.get(USER_PERCENTILE)
        return _NS_PER_S / tpot if tpot and self.offline != "dedicated" else None


def read_point(folder: Path, *others: Path) -> CurvePoint:
    """The point of a folder; ``others`` hold files that it lacks."""
    files = _Files((folder, *others))
    summary = files.read(SUMMARY, Summary) or Summary()
    config = files.read(CONFIG, ConfigYaml) or ConfigYaml()
    point = files.read(POINT_YAML, PointYaml) or PointYaml()
    system = files.read(SYSTEM_DESC, SystemDescription) or SystemDescription()
    run = files.read(POINT_RUN, PointRun)
    settings = settings_of(point, config, system, run)
    concurrency = _concurrency(point, config, run)
    return CurvePoint(
        name=folder.name,
        folder=folder,
        concurrency=concurrency,
        offline=_offline(point, config, run),
        band=None if run is None else run.point.band,
        declared_c_max=point.max_supported_concurrency or system.max_supported_concurrency,
        issued=summary.n_samples_issued if run is None else run.issued,
        failed=summary.n_samples_failed if run is None else sum(run.failures.values()),
        seconds=None if summary.duration_ns is None else summary.duration_ns / _NS_PER_S,
        tokens=summary.output_sequence_lengths.total or None,
        tpot_ns=summary.tpot.by_percentile(),
        ttft_ns=summary.ttft.by_percentile(),
        kilowatts=point.point_power_kw,
        steady=point.steady_state or _steady(summary, concurrency),
        warm_up=point.warmup,
        scored=files.find(ACCURACY) is not None,
        accuracy=files.accuracy(_benchmark(settings.get(MODEL, ""), run)),
        settings=settings,
        run=run,
        definitions=both_definitions(None if run is None else run.own, msgspec.to_builtins(summary)),
        problems=tuple(files.problems),
    )


class _Files:
    """The files of a point in its folders. One that cannot be read becomes a line of ``problems``."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self.problems: list[str] = []

    def accuracy(self, benchmark: Benchmark | None) -> PointAccuracy | None:
        """The scores of an accuracy run beside the targets of its benchmark."""
        try:
            found = (read_accuracy(folder, benchmark) for folder in self._folders) if benchmark else iter(())
            return next(filter(None, found), None)
        except ConfigError as error:
            self.problems.append(str(error))
            return None

    def find(self, name: str) -> Path | None:
        """The first file of this name; a published tree holds it without its folder."""
        places = (folder / part for folder in self._folders for part in (name, Path(name).name))
        return next((one for one in places if one.is_file()), None)

    def read(self, name: str, form: type[_Form]) -> _Form | None:
        """The content of a file; None where there is none, or it cannot be read."""
        path = self.find(name)
        try:
            return None if path is None else decoded(path, form)
        except ConfigError as error:
            self.problems.append(str(error))
            return None


def _benchmark(model: str, run: PointRun | None) -> Benchmark | None:
    """A short rehearsal gives its model another name."""
    return benchmark_of(model) if run is None else load_benchmark(run.curve.benchmark)


@cache
def benchmark_of(model: str) -> Benchmark | None:
    """The benchmark of a model: its canonical name, or the path of its weights; None for another model."""
    rules = load_endpoints_rules()
    name = rules.model_of(model)
    benchmark = None if name is None else rules.models[name].benchmark
    return None if benchmark is None else load_benchmark(benchmark)


def decoded(path: Path, form: type[_Form]) -> _Form:
    """The content of a JSON or YAML file. Raises ConfigError."""
    try:
        if path.suffix == ".yaml":
            return msgspec.convert(read_yaml(path) or {}, form, strict=False)
        decoder = msgspec.json.Decoder(form, strict=False)
        return read_decoded(str(path), path, decoder.decode, _REMEDY)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {printable(str(error))}; {_REMEDY}") from error


def _concurrency(point: PointYaml, config: ConfigYaml, run: PointRun | None) -> int | None:
    if run is not None:
        return run.point.concurrency
    return point.concurrency or config.settings.load_pattern.target_concurrency


def _steady(summary: Summary, concurrency: int | None) -> SteadyBlock | None:
    """The block that the official client's headline amounts to."""
    if concurrency is None:
        return None
    found = block_of_summary(summary.steady_state, load_endpoints_rules().least_issue_s(concurrency))
    try:
        return None if found is None else msgspec.convert(found, SteadyBlock)
    except msgspec.ValidationError:
        return None


def _offline(point: PointYaml, config: ConfigYaml, run: PointRun | None) -> Offline:
    if run is not None:
        return run.point.offline
    declared: Offline | None = next((one for one in get_args(Offline) if one == point.offline), None)
    return declared or ("dedicated" if config.type == "offline" else "none")
