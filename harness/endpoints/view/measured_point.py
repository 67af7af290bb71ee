"""One measured point as its files show it: a run folder of either client, or `r<N>` of a published tree."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import to_builtins

from harness.analysis.statistics import user_tokens_per_s
from harness.config.benchmark import Benchmark
from harness.endpoints.accuracy import PointAccuracy, read_accuracy
from harness.endpoints.curve import Band, Offline
from harness.endpoints.numbers.both_definitions import DefinitionRow, both_definitions
from harness.endpoints.official_files import (
    Fields,
    SteadyWindow,
    is_offline,
    number,
    percentiles,
    read_table,
    steady_window,
    system_tps,
    table,
    target_concurrency,
    whole,
)
from harness.endpoints.planning.rules import load_endpoints_rules
from harness.endpoints.point_run import PointRun, read_point_run
from harness.endpoints.run_folder import ACCURACY, CONFIG, POINT_YAML, SUMMARY, SYSTEM_DESC
from harness.endpoints.steady.steady_block import block_of_summary
from harness.endpoints.view.point_settings import settings_of
from harness.errors import ConfigError
from harness.text import printable

USER_PERCENTILE = 90  # of TPOT, for the tokens per second of a user
_REMEDY = "restore it, or run the point again"
_C_MAX = "max_supported_concurrency"


class SteadyBlock(msgspec.Struct, frozen=True):
    """``steady_state`` of a point, as far as its files state it."""

    status: str | None
    verdict: str | None
    window: SteadyWindow


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One measured point; None for what its files do not say."""

    name: str
    """of its folder, such as `r64`"""
    folder: Path
    concurrency: int | None = None
    offline: Offline = "none"
    band: Band | None = None
    """None of a dedicated Offline run, and of a point outside of all"""
    declared_c_max: int | None = None
    declared_c_min: int | None = None
    """an override of C_min, which is otherwise the lowest point"""
    issued: int | None = None
    failed: int | None = None
    seconds: float | None = None
    """of the complete run"""
    system_tps: float | None = None
    """output tokens per second of the complete run"""
    tpot_ns: Mapping[int, float] = {}
    """by percentile"""
    ttft_ns: Mapping[int, float] = {}
    """by percentile"""
    kilowatts: float | None = None
    """provisioned power of the nodes that it uses; None: that of the system"""
    steady: SteadyBlock | None = None
    warm_up: Fields = {}
    """as point.yaml declares it"""
    scored: bool = False
    """whether it has an accuracy run"""
    accuracy: PointAccuracy | None = None
    """None also where the model has no targets here"""
    settings: Mapping[str, str] = {}
    """what was set, by name"""
    run: PointRun | None = None
    """what this client knows besides"""
    definitions: Sequence[DefinitionRow] = ()
    """each number as this project and as Endpoints define it; none of the official client's runs"""
    problems: Sequence[str] = ()
    """files that cannot be read, a line each"""

    @property
    def tps_per_user(self) -> float | None:
        """1000 / TPOT p90 in ms. A dedicated Offline run has no user."""
        return None if self.offline == "dedicated" else user_tokens_per_s(self.tpot_ns.get(USER_PERCENTILE))


def read_point(folder: Path, in_tree: Path | None = None) -> CurvePoint:
    """The point of a run folder, whose folder in a tree has files that it lacks; or of the latter alone."""
    files = _Files([folder] if in_tree is None else [folder, in_tree])
    summary, config, point, system = map(files.table, (SUMMARY, CONFIG, POINT_YAML, SYSTEM_DESC))
    run = files.run()
    concurrency = _concurrency(point, config, run)
    duration_ns, rate = number(summary.get("duration_ns")), system_tps(summary) or 0.0
    return CurvePoint(
        name=folder.name,
        folder=folder,
        concurrency=concurrency,
        offline=_offline(point, config, run),
        declared_c_max=whole(point.get(_C_MAX)) or whole(system.get(_C_MAX)),
        declared_c_min=whole(system.get("c_min_override")),
        issued=whole(summary.get("n_samples_issued")) if run is None else run.issued,
        failed=whole(summary.get("n_samples_failed")) if run is None else sum(run.failures.values()),
        seconds=None if duration_ns is None else duration_ns / 1e9,
        system_tps=rate if rate > 0 else None,
        tpot_ns=percentiles(summary, "tpot"),
        ttft_ns=percentiles(summary, "ttft"),
        kilowatts=number(point.get("point_power_kw")),
        steady=stated_block(point.get("steady_state") or block_of_summary(summary, concurrency)),
        warm_up=table(point, "warmup") if run is None or run.warm_up is None else to_builtins(run.warm_up),
        scored=files.find(ACCURACY) is not None,
        accuracy=files.accuracy(load_endpoints_rules().benchmark_of_point(point, config, run)),
        settings=settings_of(point, config, system, run),
        run=run,
        definitions=tuple(both_definitions(run.own, summary)) if run and run.own else (),
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

    def table(self, name: str) -> Fields:
        """The content of a file; empty where there is none, or it cannot be read."""
        return stated_in(self.find(name), self.problems)

    def run(self) -> PointRun | None:
        """What this client knows; None for a run of the official client, or where it cannot be read."""
        try:
            return next(filter(None, map(read_point_run, self._folders)), None)
        except ConfigError as error:
            self.problems.append(str(error))
            return None


def stated_in(path: Path | None, problems: list[str]) -> Fields:
    """The table of a file, empty where there is none; one that cannot be read adds a line to ``problems``."""
    found = {} if path is None or not path.is_file() else read_table(path)
    if isinstance(found, str):
        problems.append(f"{path}: {printable(found)}; {_REMEDY}")
        return {}
    return found


def _concurrency(point: Fields, config: Fields, run: PointRun | None) -> int | None:
    if run is not None:
        return run.point.concurrency
    return whole(point.get("concurrency")) or target_concurrency(config)


def stated_block(found: object) -> SteadyBlock | None:
    """``steady_state`` in the form of point.yaml; None for what is no table."""
    if not isinstance(found, Mapping):
        return None
    status, verdict = (
        text if isinstance(text := found.get(name), str) else None for name in ("status", "verdict")
    )
    return SteadyBlock(status, verdict, steady_window(found))


def _offline(point: Fields, config: Fields, run: PointRun | None) -> Offline:
    if run is not None:
        return run.point.offline
    declared: Offline | None = next((one for one in get_args(Offline) if one == point.get("offline")), None)
    return declared or ("dedicated" if is_offline(config) else "none")
