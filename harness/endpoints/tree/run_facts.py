"""What a run folder says of its point, whichever client wrote it; point_run.json is used if there is one."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from harness.config.benchmark import Benchmark
from harness.endpoints.accuracy import read_accuracy
from harness.endpoints.official_files import (
    OFFLINE_PATTERN,
    Fields,
    at,
    is_number,
    is_offline,
    load_pattern,
    performance_dataset,
    read_table,
    system_tps,
    table,
    target_concurrency,
    whole,
)
from harness.endpoints.planning.rules import EndpointsDataset, EndpointsRules, PublishedSeeds, rules_of
from harness.endpoints.point_run import PointRun, read_point_run
from harness.endpoints.run_folder import ACCURACY, CONFIG, SUMMARY, is_scored_alone, runs_in
from harness.endpoints.steady.steady_block import block_of_summary
from harness.errors import ConfigError
from harness.json_files import Json
from harness.record.settled import ServerInfo
from harness.text import counted

_TOO_MANY = 1 << 31  # requests in flight
_AGAIN = "remove its folder and repeat the command, or leave it out"


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One point as its folder has it."""

    folder: Path
    config: Fields
    summary: Fields
    accuracy: Path | None
    """accuracy_results.json, which may be in another folder"""
    run: PointRun | None
    """None: the folder is the official client's"""

    @property
    def rules(self) -> EndpointsRules:
        """Those of the curve that this client ran, else the latest."""
        return rules_of(None if self.run is None else self.run.curve)

    @property
    def dedicated(self) -> bool:
        """Whether it is an Offline run of its own."""
        return is_offline(self.config)

    @property
    def concurrency(self) -> int:
        """Requests in flight; of a dedicated Offline run the samples of the dataset, as the rules have it."""
        if self.dedicated:
            return self.samples or int(self.summary["n_samples_issued"])
        return target_concurrency(self.config) or 0

    @property
    def name(self) -> str:
        """The folder of the point in a tree."""
        return f"r{self.concurrency}"

    @property
    def samples(self) -> int | None:
        """Of the performance dataset."""
        if self.run is not None:
            return self.run.curve.samples
        official = self.official_dataset
        stated = whole(performance_dataset(self.config).get("samples"))
        return official.samples if stated is None and official else stated

    @property
    def dataset_name(self) -> str:
        """In the rules' spelling where the model has one."""
        if official := self.official_dataset:
            return official.dataset
        return str(performance_dataset(self.config).get("name", "")).partition("::")[0]

    @property
    def is_short(self) -> bool:
        """Whether it rehearses the forms only: its number of samples and its score mean nothing."""
        return self.run is not None and self.run.curve.short

    @property
    def official_dataset(self) -> EndpointsDataset | None:
        """The performance dataset that the rules name for the model; a short rehearsal has a part of it."""
        if self.is_short:
            return None
        model = self.rules.models.get(self.model_name)
        return model.performance if model else None

    @property
    def model_name(self) -> str:
        """The canonical name of the benchmark's model; empty where no file has it."""
        if self.run is not None:
            return self.run.curve.model_name
        return self.rules.model_in(self.config)

    @property
    def benchmark(self) -> Benchmark | None:
        """The definition in configs/, by the model's name."""
        return self.rules.benchmark_of_point({}, self.config, self.run)

    @property
    def system_tps(self) -> float:
        """Output tokens per second of the complete run."""
        return system_tps(self.summary) or 0.0

    @property
    def runtime(self) -> Fields:
        """Durations and seeds in the client's configuration."""
        return table(self.config, "settings", "runtime")

    def seed_set(self, published: Iterable[PublishedSeeds]) -> PublishedSeeds | None:
        """The published set whose seeds the client's configuration has."""
        own = (self.runtime.get("scheduler_random_seed"), self.runtime.get("dataloader_random_seed"))
        same = (one for one in published if (one.scheduler_rng_seed, one.sample_index_rng_seed) == own)
        return next(same, None)

    @property
    def warm_up(self) -> Fields:
        """The client's own warm-up in its configuration."""
        return table(self.config, "settings", "warmup")

    @property
    def steady_state(self) -> Json | None:
        """The detector's block in the form of point.yaml; None where there is none, or in no known form."""
        return block_of_summary(self.summary, self.concurrency)


def servers_of_points(runs: Iterable[RunFacts]) -> list[ServerInfo]:
    """The servers of each point that this client ran; those of the official client are not known."""
    return [server for one in runs if one.run is not None for server in one.run.servers]


def run_folders(given: Iterable[Path]) -> list[Path]:
    """The run folders among these, in a rehearsal's folder, or in a folder of them. Raises ConfigError."""
    found: list[Path] = []
    for path in given:
        if not path.is_dir():
            raise ConfigError(f"{path}: there is no such folder; give run folders, or a rehearsal's folder")
        if not (several := runs_in(path)):
            raise ConfigError(
                f"{path}: no run folder, expected {CONFIG} and {SUMMARY} in it or one level below"
            )
        found += several
    return found


def read_runs(folders: Sequence[Path]) -> list[RunFacts]:
    """The points, the lowest concurrency first. Raises ConfigError, with a note for each of several folders.

    A folder with an accuracy run alone belongs to the point of the same concurrency.
    """
    wrong, found, scored = [], [], []
    for folder in folders:
        try:
            if is_scored_alone(folder):
                scored.append(_facts(folder, {"n_samples_issued": 0}))
            else:
                found.append(_facts(folder, _summary(folder)))
        except ConfigError as error:
            wrong.append(str(error))
    wrong += [*_twice(found), *_other_models(found)]
    wrong += _scored_alone(found, scored)
    points = {one.name: one for one in found if one.accuracy is not None}
    wrong += _twice([*points.values(), *scored], "accuracy of ")
    if wrong:
        raise _unusable(wrong)
    apart = {one.concurrency: one.accuracy for one in scored}
    joined = [
        msgspec.structs.replace(one, accuracy=one.accuracy or apart.get(one.concurrency)) for one in found
    ]
    return sorted(joined, key=lambda one: (one.dedicated, one.concurrency))


def _unusable(wrong: Sequence[str]) -> ConfigError:
    if len(wrong) == 1:
        return ConfigError(wrong[0])
    error = ConfigError(f"{counted(len(wrong), 'run folder')} cannot be used, listed above; leave them out")
    for line in wrong:
        error.add_note(line)
    return error


def _twice(ones: Iterable[RunFacts], what: str = "") -> Iterator[str]:
    seen: dict[str, Path] = {}
    for one in ones:
        first = seen.setdefault(one.name, one.folder)
        if first is not one.folder:
            yield f"{one.folder}: {what}{one.name} again, as {first}; leave one of them out"


def _other_models(found: Sequence[RunFacts]) -> Iterator[str]:
    for one in found:
        if one.model_name != found[0].model_name:
            yield (
                f"{one.folder}: {one.model_name or 'an unknown model'}, but {found[0].folder} is of "
                f"{found[0].model_name or 'an unknown model'}; a tree has one curve, so build two"
            )


def _scored_alone(found: Sequence[RunFacts], scored: Sequence[RunFacts]) -> Iterator[str]:
    points = {one.name for one in found}
    for one in scored:
        if one.name not in points:
            yield f"{one.folder}: no {SUMMARY}, and no other folder has the point {one.name}; {_AGAIN}"


def _facts(folder: Path, summary: Fields) -> RunFacts:
    accuracy = folder / ACCURACY
    facts = RunFacts(
        folder=folder,
        config=_table(folder / CONFIG),
        summary=summary,
        accuracy=accuracy if accuracy.is_file() else None,
        run=read_point_run(folder),
    )
    if (benchmark := facts.benchmark) is not None:
        scored = read_accuracy(folder, benchmark)
        if scored is None or not scored.metrics:  # the official client writes null where its grading failed
            facts = msgspec.structs.replace(facts, accuracy=None)
    pattern, concurrency = load_pattern(facts.config), facts.concurrency
    if pattern not in ("concurrency", OFFLINE_PATTERN) or not 1 <= concurrency < _TOO_MANY:
        raise ConfigError(
            f"{folder / CONFIG}: load_pattern {pattern or None} with {concurrency} in flight, "
            f"expected concurrency with a target_concurrency, or max_throughput; {_AGAIN}"
        )
    return facts


def _summary(folder: Path) -> Fields:
    path = folder / SUMMARY
    found = _table(path)
    for name in ("n_samples_issued", "duration_ns", "output_sequence_lengths.total"):
        if not is_number(value := at(found, *name.split("."))) or value <= 0:
            raise ConfigError(f"{path}: {name} is {value!r}, expected a number above 0; {_AGAIN}")
    return found


def _table(path: Path) -> Fields:
    found = read_table(path)
    if isinstance(found, str):
        raise ConfigError(f"{path}: {found}; {_AGAIN}")
    return found
