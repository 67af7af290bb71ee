"""The rules of a cohort: configs/endpoints/<cohort>.toml, in which a misspelt key is an error."""

import re
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.rounds import read_toml
from harness.endpoints.curve import Curve
from harness.endpoints.official_files import Fields, table
from harness.endpoints.planning.cohorts import cohort_number
from harness.endpoints.planning.regions import ULTRA_LOW_MOST
from harness.endpoints.point_run import PointRun
from harness.errors import ConfigError
from harness.files import CONFIG_DIR
from harness.toml_files import converted

_FOLDER = CONFIG_DIR / "endpoints"

Seed = Annotated[int, msgspec.Meta(ge=0)]


class PublishedSeeds(msgspec.Struct, frozen=True, kw_only=True):
    """A set of seeds that MLCommons published."""

    id: str
    cohort: str | None = None
    """of its publication; None where its file names none"""
    scheduler_rng_seed: Seed
    sample_index_rng_seed: Seed
    model_seed: Seed


class EndpointsDataset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An official dataset."""

    dataset: str
    """its name in point.yaml"""
    samples: int


class EndpointsModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A benchmark of MLPerf Endpoints."""

    benchmark: str | None = None
    """its name in configs/; None where this harness has none"""
    performance: EndpointsDataset | None = None
    accuracy: EndpointsDataset | None = None


class EndpointsRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the rules of a cohort fix for all curves. Times in s."""

    cohort: str
    ultra_low_issue_s: float
    """the shortest time of issue of a point with at most 32 requests in flight"""
    issue_s: float
    """of the others"""
    window_passes: int
    """the fewest passes of a steady window"""
    least_passes: int
    """the fewest of a run"""
    fewest_points: int
    """at fixed concurrency"""
    most_points: int
    """with the Offline point"""
    offline_part: float
    """of the throughput at C_max that a dedicated Offline run reaches at least"""
    least_salt_bits: int
    adoption_cohorts: int
    """for which a set of seeds can be taken, from that of its publication on"""
    seed_sets: tuple[PublishedSeeds, ...]
    models: dict[str, EndpointsModel]
    """by canonical name"""

    def least_issue_s(self, concurrency: int | None) -> float:
        """The shortest time of issue of a point; None: of a dedicated Offline run, or unknown."""
        is_ultra_low = concurrency is not None and concurrency <= ULTRA_LOW_MOST
        return self.ultra_low_issue_s if is_ultra_low else self.issue_s

    def model_name(self, benchmark: str) -> str:
        """The canonical name of a benchmark's model. Raises ConfigError."""
        for name, model in self.models.items():
            if model.benchmark == benchmark:
                return name
        known = ", ".join(model.benchmark for model in self.models.values() if model.benchmark)
        raise ConfigError(f"--benchmark {benchmark} is not one of MLPerf Endpoints, expected one of {known}")

    def model_of(self, name: str) -> str | None:
        """The canonical name of the model that has this name, or weights at this path; None for another."""
        return next((one for one in self.models if is_same_model(one, name)), None)

    def model_in(self, config: Fields) -> str:
        """The canonical name of the model in config.yaml, as it is served, else as submitted; "" for none."""
        served = str(table(config, "model_params").get("name") or "")
        stated = str(table(config, "submission_ref").get("model") or "")
        return self.model_of(served) or _canonical(stated)

    def benchmark_of_point(
        self, point: Fields, config: Fields, run: PointRun | None = None
    ) -> Benchmark | None:
        """The definition in configs/ of the model that was run, or else that the files name."""
        if run is not None:
            return load_benchmark(run.curve.benchmark)
        model = self.model_of(str(point.get("model_name") or self.model_in(config)))
        benchmark = None if model is None else self.models[model].benchmark
        return None if benchmark is None else load_benchmark(benchmark)


def _canonical(name: str) -> str:
    """A model's name as Endpoints spells it: `llama3_1-8b`."""
    return "".join(one if one.isalnum() or one in "_-" else "_" for one in name.rpartition("/")[2])


def is_same_model(one: str, other: str) -> bool:
    """Whether two names, such as `llama3_1-8b` and `meta-llama/Llama-3.1-8B-Instruct`, are of one model.

    The letters and digits of one, a path's last part, are in the other.
    """
    last = [_letters(name.rstrip("/").rpartition("/")[2]) for name in (one, other)]
    return all(last) and (last[0] in _letters(other) or last[1] in _letters(one))


@cache
def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def load_endpoints_rules(cohort: str | None = None) -> EndpointsRules:
    """The rules for submissions to a cohort: the latest ones up to it; None for the latest.

    Raises ConfigError for a cohort that is none or earlier than all rules, and for a malformed file.
    """
    files = sorted(_FOLDER.glob("*.toml"), key=lambda path: cohort_number(path.stem))
    wanted = cohort_number(cohort or files[-1].stem)
    holding = [path for path in files if cohort_number(path.stem) <= wanted]
    if not holding:
        raise ConfigError(f"no rules for submissions to {cohort}: the first are those of {files[0].stem}")
    return read_endpoints_rules(holding[-1])


def rules_of(curve: Curve | None) -> EndpointsRules:
    """The rules that a curve is planned by: of the cohort that was asked for, else of that of its seeds.

    None, of the official client's runs: the latest.
    """
    if curve is None:
        return load_endpoints_rules()
    return load_endpoints_rules(curve.seeds.cohort or curve.seeds.published)


def read_endpoints_rules(path: Path) -> EndpointsRules:
    """One file of rules. Raises ConfigError."""
    return converted(str(path), read_toml(path), EndpointsRules)
