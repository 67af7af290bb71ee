"""The seeds of a curve: a set that MLCommons published, for a cohort that may take it (§4.6)."""

from pathlib import Path

import msgspec

from harness.endpoints.curve import SeedSet
from harness.endpoints.planning.cohorts import cohort_name, cohort_number
from harness.endpoints.planning.rules import EndpointsRules, PublishedSeeds
from harness.errors import ConfigError
from harness.yaml_files import read_yaml

_MOST_SEED = (1 << 64) - 1
_SEEDS = ("scheduler_rng_seed", "sample_index_rng_seed", "model_seed")


class _Cohort(msgspec.Struct, rename={"cohort_id": "cohort-id"}):
    seed_sets: tuple[PublishedSeeds, ...]
    cohort_id: str | None = None


class _File(msgspec.Struct):
    """Both official forms: sets below the cohort of their publication, or, earlier, without one."""

    cohort: _Cohort | None = None
    seed_sets: tuple[PublishedSeeds, ...] = ()


def read_seed_sets(path: Path) -> tuple[PublishedSeeds, ...]:
    """The sets of a file in the official form. Raises ConfigError."""
    try:
        file = msgspec.convert(read_yaml(path), _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: no file of seed sets: {error}") from error
    nested = file.cohort or _Cohort(file.seed_sets)
    found = tuple(msgspec.structs.replace(one, cohort=nested.cohort_id) for one in nested.seed_sets)
    if not found:
        raise ConfigError(f"{path}: no seed sets, expected cohort.seed_sets with at least one")
    _check(path, found)
    return found


def _check(path: Path, found: tuple[PublishedSeeds, ...]) -> None:
    for one in found:
        for name in _SEEDS:
            if (seed := getattr(one, name)) > _MOST_SEED:
                raise ConfigError(
                    f"{path}: {name} of set {one.id!r} is {seed}, expected at most {_MOST_SEED}"
                )
    if len({one.id for one in found}) < len(found):
        raise ConfigError(f"{path}: two seed sets have the same id, expected one of each")
    if found[0].cohort is not None:
        cohort_number(found[0].cohort)


def not_for(name: str, published: str | None, cohort: str, rules: EndpointsRules) -> str | None:
    """The cohorts that may take a set published for this one; None where a submission to ``cohort`` may.

    Raises ConfigError for a cohort that is none.
    """
    if published is None:
        return None
    first = cohort_number(published)
    last = first + rules.adoption_cohorts - 1
    if first <= cohort_number(cohort) <= last:
        return None
    return f"seed set {name} is for {published} to {cohort_name(last)}"


def chosen_seeds(
    rules: EndpointsRules, published: tuple[PublishedSeeds, ...], name: str | None, cohort: str | None
) -> SeedSet:
    """One of these sets, for a submission to a cohort; no name: the first. Raises ConfigError."""
    one = next((one for one in published if name in (None, one.id)), None)
    if one is None:
        known = ", ".join(one.id for one in published)
        raise ConfigError(f"--seed-set {name} is not published, expected one of {known}; set --seed-sets")
    if cohort is not None and (refused := not_for(one.id, one.cohort, cohort, rules)):
        raise ConfigError(f"target cohort {cohort}: {refused}; set --seed-sets to a file of newer sets")
    return SeedSet(
        name=one.id,
        cohort=cohort or "",
        scheduler=one.scheduler_rng_seed,
        sample_index=one.sample_index_rng_seed,
        model=one.model_seed,
        published=one.cohort or cohort or rules.cohort,
    )
