"""The files of a point, in a tree or in a run folder of either client, read within limits."""

from functools import cached_property
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.config.benchmark import Benchmark
from harness.endpoints.checks.finding import Finding, Severity, finding
from harness.endpoints.official_files import (
    Fields,
    is_offline,
    load_pattern,
    performance_dataset,
    read_table,
    steady_window,
    system_tps,
    table,
    target_concurrency,
    whole,
)
from harness.endpoints.planning.rules import EndpointsRules, rules_of
from harness.endpoints.point_run import PointRun, read_point_run
from harness.endpoints.run_folder import (
    ACCURACY,
    CONFIG,
    EVENTS,
    POINT_RUN,
    POINT_YAML,
    SUMMARY,
    SYSTEM_DESC,
    is_scored_alone,
)
from harness.errors import ConfigError

_AGENTIC_S = 2400.0  # §6.2, above 32 in flight


class PointFiles(msgspec.Struct, frozen=True, dict=True):
    """One point. A file that is missing, or cannot be read, is an empty table."""

    root: Path
    """what is checked"""
    folder: Path
    run: Path | None
    """the run folder, where it is known"""
    point: Fields = {}
    """point.yaml; empty for a run folder alone, ``concurrency`` where the file cannot be read"""
    config: Fields = {}
    summary: Fields = {}
    accuracy: Fields = {}
    system: Fields = {}
    record: PointRun | None = None
    problems: tuple[Finding, ...] = ()
    """files that cannot be read"""

    def where(self, name: str = "") -> str:
        """A file of the point, relative to what is checked; in a tree all lie in the point's folder."""
        return (self.folder / (Path(name).name if self.in_tree else name)).relative_to(self.root).as_posix()

    @property
    def scored_alone(self) -> bool:
        """Whether it is a run folder with an accuracy run alone, which is a part of another point."""
        return not self.in_tree and is_scored_alone(self.folder)

    @property
    def in_tree(self) -> bool:
        """Whether it is a point of a tree, and no run folder alone."""
        return bool(self.point)

    @property
    def is_described(self) -> bool:
        """Whether there is a point.yaml that could be read."""
        return len(self.point) > 1

    @property
    def log(self) -> Path | None:
        """The log of the run, where there is one."""
        folders = (one for one in (self.run, self.folder) if one is not None)
        return next((folder / EVENTS for folder in folders if (folder / EVENTS).is_file()), None)

    @cached_property
    def settings(self) -> Fields:
        """``settings`` of config.yaml."""
        return table(self.config, "settings")

    @cached_property
    def runtime_settings(self) -> Fields:
        """``runtime_settings`` of point.yaml."""
        return table(self.point, "runtime_settings")

    @property
    def load_pattern(self) -> str:
        """As the run had it; else as the point says."""
        return load_pattern(self.config) or str(self.runtime_settings.get("load_pattern") or "")

    @property
    def is_offline(self) -> bool:
        """Whether it is a dedicated Offline run, as point.yaml declares it, or else config.yaml."""
        return self.point.get("offline") == "dedicated" if self.is_described else is_offline(self.config)

    @property
    def concurrency(self) -> int | None:
        """Requests in flight, as the point declares them; of a run folder alone as it was configured."""
        if self.in_tree:
            return whole(self.point.get("concurrency"))
        return target_concurrency(self.config)

    @property
    def rules(self) -> EndpointsRules:
        """Those of the curve that this client ran, else the latest."""
        return rules_of(None if self.record is None else self.record.curve)

    @property
    def required_s(self) -> float | None:
        """Shortest issue time of the point; None where its concurrency is unknown."""
        if self.is_offline:
            return self.rules.issue_s
        if self.concurrency is None:
            return None
        least = self.rules.least_issue_s(self.concurrency)
        is_agentic = self.load_pattern == "agentic_inference" and least == self.rules.issue_s
        return _AGENTIC_S if is_agentic else least

    @property
    def dataset_size(self) -> int | None:
        """Samples of the performance dataset: by its official name, else as the run had it."""
        ours = None if self.record is None else self.record.curve.samples
        if self.is_short:
            return ours
        configured = performance_dataset(self.config)
        names = (self.point.get("dataset"), configured.get("name"))
        official = (one.performance for one in self.rules.models.values() if one.performance is not None)
        known = next((one.samples for one in official if one.dataset in names), None)
        claimed = steady_window(table(self.point, "steady_state")).size
        return known or ours or whole(configured.get("samples")) or claimed

    @property
    def benchmark(self) -> Benchmark | None:
        """The definition in configs/ of the model; None where there is none."""
        return self.rules.benchmark_of_point(self.point, self.config)

    @property
    def is_short(self) -> bool:
        """Whether the run was a short rehearsal."""
        return self.record is not None and self.record.curve.short

    @property
    def system_tps(self) -> float | None:
        """Output tokens per second of the summary."""
        return system_tps(self.summary)


def point_in_tree(root: Path, folder: Path, run: Path | None) -> PointFiles:
    """A point of a tree. ``run`` is its run folder, where it is known; it may be gone."""
    problems: list[Finding] = []
    point = _table(root, folder / POINT_YAML, problems)
    system = _table(root, folder / SYSTEM_DESC, problems)
    stated = point or {"concurrency": whole(folder.name[1:])}
    return _point(PointFiles(root, folder, run, stated, system=system), problems)


def point_of_run(root: Path, folder: Path) -> PointFiles:
    """A run folder alone."""
    return _point(PointFiles(root, folder, folder), [])


def _point(of: PointFiles, problems: list[Finding]) -> PointFiles:
    """The point with its other files."""
    config = _table(of.root, of.root / of.where(CONFIG), problems)
    summary = _table(of.root, of.root / of.where(SUMMARY), problems, needed=not of.scored_alone)
    accuracy = _table(of.root, of.root / of.where(ACCURACY), problems, needed=False)
    record = _record(of.root, of.run, problems)
    return replace(
        of, config=config, summary=summary, accuracy=accuracy, record=record, problems=tuple(problems)
    )


def _table(root: Path, path: Path, problems: list[Finding], *, needed: bool = True) -> Fields:
    where = path.relative_to(root).as_posix()
    if not path.exists():
        problems.extend([finding("missing", where, "is missing")] if needed else [])
        return {}
    found = read_table(path)
    if isinstance(found, str):
        problems.append(finding("unreadable", where, found))
        return {}
    return found


def _record(root: Path, run: Path | None, problems: list[Finding]) -> PointRun | None:
    """What this client knows of the run; None for a run of the official client."""
    if run is None:
        return None
    try:
        if (found := read_point_run(run)) is not None:
            rules_of(found.curve)  # an earlier version may have had rules for a cohort that has none here
        return found
    except ConfigError as error:
        what = str(error).removeprefix(f"{run / POINT_RUN}: ")
    name = run.name if not run.is_relative_to(root) else run.relative_to(root).as_posix()
    where = f"{name}/{POINT_RUN}"
    problems.append(finding("unreadable", where, what, remedy="", severity=Severity.WARNING))
    return None
