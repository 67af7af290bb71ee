"""The plan of a curve: its points, their order and lengths, where they are scored; what cannot be planned."""

import functools
import random
from dataclasses import replace

import pytest

from harness.endpoints.endpoints_options import parse_options
from harness.endpoints.planning.curve_plan import known_c_max, plan_rehearsal, spread, with_enough_passes
from harness.endpoints.planning.regions import MANDATORY, regions
from harness.endpoints.planning.rules import load_endpoints_rules
from harness.endpoints.tree.client_config import ruleset
from harness.errors import ConfigError

RULES = load_endpoints_rules()


@functools.cache
def parsed(*words):
    return parse_options(["run", "--input-file", "x.parquet", *words])


def curve(*words, samples=6396, accuracy_samples=4395, replicas=1, **asked):
    options = replace(parsed(*words), **asked)
    c_max = known_c_max(options)
    return plan_rehearsal(
        options,
        samples=samples,
        accuracy_samples=accuracy_samples,
        c_max=1024 if c_max is None else c_max,
        replicas=replicas,
    )


def test_a_curve_with_a_dedicated_offline_run():
    """8 points, the most in flight first; each band scored once, where that takes the least time."""
    found = curve(c_min=1)
    rows = [(p.name, p.concurrency, p.band, p.accuracy, p.issue_s, p.passes, p.offline) for p in found.points]
    assert rows == [
        ("r1024", 1024, "high", True, 1320, 5, "none"),
        ("offline", 6396, "offline", True, 1200, 1, "dedicated"),
        ("r323", 323, "high", False, 1320, 5, "none"),
        ("r103", 103, "med", True, 1320, 5, "none"),
        ("r33", 33, "med", False, 1320, 5, "none"),
        ("r11", 11, "low", True, 660, 5, "none"),
        ("r4", 4, "low", False, 660, 5, "none"),
        ("r1", 1, "ultra_low", True, 660, 5, "none"),
    ]
    assert (found.model_name, found.c_min, found.c_max, found.samples) == ("gpt-oss-120b", 1, 1024, 6396)


def test_an_elected_offline_point_is_that_at_c_max():
    points = curve(offline="elected").points
    assert len(points) == 7
    assert [(p.name, p.accuracy) for p in points if p.offline == "elected"] == [("r1024", True)]
    assert {p.offline for p in points[1:]} == {"none"}


def test_without_an_accuracy_dataset_nothing_is_scored():
    assert not any(point.accuracy for point in curve(accuracy_samples=0).points)


@pytest.mark.parametrize(
    ("c_max", "replicas", "c_min"),
    [(1024, 1, 16), (1024, 24, 24), (1024, 512, 32), (40, 1, 1), (6000, 1, 32)],
)
def test_c_min_has_a_request_for_each_replica_and_a_64th_of_c_max(c_max, replicas, c_min):
    assert curve(c_max=c_max, replicas=replicas).c_min == c_min


def test_every_band_is_covered_wherever_it_can_be():
    draw = random.Random(28)
    for _ in range(2000):
        c_min = draw.randint(1, 32)
        c_max = draw.choice((draw.randint(33, 70), draw.randint(33, 20_000)))
        found, steps = regions(c_min, c_max), spread(c_min, c_max, 7)
        assert (steps[0], steps[-1], len(steps)) == (c_min, c_max, min(7, c_max - c_min + 1))
        filled = {band for band, span in zip(MANDATORY, found, strict=False) if span.start <= span.end}
        assert {found.band(step) for step in steps} == filled


def test_the_official_package_finds_points_and_scores_where_it_wants_them():
    context = pytest.importorskip("submission_checker.models.aggregate.context")
    official = pytest.importorskip("submission_checker.models.regions")
    draw = random.Random(28)
    for _ in range(500):
        c_min, c_max = draw.randint(1, 32), draw.randint(50, 6000)
        fixed = [point for point in curve(c_max=c_max, c_min=c_min).points if point.offline == "none"]
        theirs = official.compute_regions(c_max, min(point.concurrency for point in fixed))
        scored = [p.concurrency for p in fixed if p.accuracy]
        candidates = [(number, context.accuracy_bands(number, theirs), False) for number in scored]
        owner = context.match_accuracy_bands(candidates)
        assert len(scored) == len(owner) == 4
        covered = {official.covered_region(point.concurrency, theirs) for point in fixed}
        assert covered == {"low_latency", "low_concurrency", "med_concurrency", "high_concurrency"}


def test_own_concurrencies_in_any_order():
    found = curve("--concurrency", "256,1,4,16,32,64,128")
    assert (found.c_min, found.c_max) == (1, 256)
    assert [point.concurrency for point in found.points] == [256, 6396, 128, 64, 32, 16, 4, 1]
    assert {point.concurrency for point in found.points if point.accuracy} == {256, 6396, 32, 4, 1}


def test_c_min_above_the_lowest_point_and_a_point_in_the_margin():
    found = curve("--concurrency", "1,8,10,40,100,256,270", "--c-min", "8", "--c-max", "256")
    assert {point.concurrency: (point.band, point.accuracy) for point in found.points} == {
        1: ("ultra_low", False),
        8: ("ultra_low", True),
        10: ("low", True),
        40: ("med", True),
        100: ("high", False),
        256: ("high", True),
        270: ("margin", False),
        6396: ("offline", True),
    }


def test_short_is_the_fewest_samples_once():
    found = curve("--short", samples=64, accuracy_samples=96)
    assert (found.c_max, found.samples, found.accuracy_samples, found.short) == (40, 45, 45, True)
    assert {(point.passes, point.issue_s) for point in found.points} == {(1, 0.0)}
    assert len({point.concurrency for point in found.points}) == 8
    assert curve("--short", "--c-max", "50", samples=64).samples == 57  # the margin ends at 56


def test_offline_has_the_passes_that_take_its_time():
    """They are issued at once; 20 requests/s for 1200 s and a tenth more are 4.1 datasets."""
    (offline,) = (point for point in curve().points if point.offline == "dedicated")
    assert with_enough_passes(offline, 6396, 20.0).passes == 5
    assert with_enough_passes(offline, 6396, 0.1) == offline
    short = curve(short=True, c_max=40).points[1]
    assert with_enough_passes(short, 45, 1e6) == short


def test_seeds_of_a_file(tmp_path):
    path = tmp_path / "seeds.yaml"
    path.write_text(
        "cohort:\n  version: 1.0\n  cohort-id: 2026-12-C0\n  seed_sets:\n"
        "    - {id: B, scheduler_rng_seed: 1, sample_index_rng_seed: 2, model_seed: 3}\n"
        "    - {id: C, scheduler_rng_seed: 4, sample_index_rng_seed: 5, model_seed: 18446744073709551615}\n"
    )
    first = curve("--seed-sets", str(path)).seeds
    assert (first.name, first.cohort, first.published) == ("B", "", "2026-12-C0")
    assert (first.scheduler, first.sample_index, first.model) == (1, 2, 3)
    other = curve("--seed-sets", str(path), "--seed-set", "C", "--target-cohort", "2027-01-C1").seeds
    assert (other.name, other.cohort, other.model) == ("C", "2027-01-C1", 2**64 - 1)
    assert ruleset(other) == "mlperf-endpoints-v1.0-2026-12-C0-C"


def test_the_earlier_form_of_a_file_names_no_cohort(tmp_path):
    path = tmp_path / "seeds.yaml"
    path.write_text("seed_sets: [{id: Z, scheduler_rng_seed: 1, sample_index_rng_seed: 2, model_seed: 3}]")
    assert curve("--seed-sets", str(path)).seeds.published == RULES.cohort


IMPOSSIBLE = {
    "a dataset smaller than C_max": (("--c-max", "1024"), {"samples": 1000}, "1000 samples"),
    "a dataset of C_max samples": (("--c-max", "64"), {"samples": 64}, "at most 63"),
    "a dataset of C_max, and not of a point above it": (
        ("--concurrency", "1,4,20,60,100,256,282", "--c-max", "256"),
        {"samples": 282},
        "282 requests in flight of the highest point.*each of --concurrency, to at most 281",
    ),
    "a short dataset": (("--short",), {"samples": 33}, "33 samples.* or less: pass a larger dataset"),
    "no curve": (("--c-max", "32"), {}, "C_max is 32"),
    "C_max of 0": (("--c-max", "0"), {}, "C_max is 0"),
    "C_min too high": (("--c-max", "64", "--c-min", "33"), {}, "C_min is 33"),
    "C_min above C_max": (("--c-max", "64", "--c-min", "100"), {}, "C_min is 100"),
    "C_min of 0": (("--c-max", "64", "--c-min", "0"), {}, "C_min is 0"),
    "no room between them": (("--c-max", "33", "--c-min", "32"), {}, r"Medium \(empty\)"),
    "no room for seven": (
        ("--c-max", "35", "--c-min", "30"),
        {},
        "6 points.*; raise --c-max",
    ),
    "no low point": (("--concurrency", "40,50,60,70,80,90,100"), {}, "begins with 40"),
    "an empty band": (("--concurrency", "1,4,64,80,100,120,256"), {}, r"band Medium \(8-41\)"),
    "two empty bands": (
        ("--concurrency", "2,40"),
        {},
        r"band Low \(3-5\) and band Medium \(6-13\) of .*: add one in each",
    ),
    "too few": (("--concurrency", "1,4,20,256"), {}, "4 points.*; give more numbers with"),
    "too many": (
        ("--concurrency", ",".join(map(str, range(1, 43)))),
        {},
        "42 points.*; give fewer",
    ),
    "one twice": (("--concurrency", "1,4,4,20,60,100,256"), {}, "4 twice"),
    "below 1": (("--concurrency", "0,1,4,20,60,100,256"), {}, "C_min is 0"),
    "below C_min": (("--concurrency", "0,1,4,20,60,256", "--c-min", "1"), {}, "numbers from 1 to"),
    "C_max is no point": (("--concurrency", "1,4,5,20,60,100,256", "--c-max", "300"), {}, "without 300"),
    "C_min is no point": (("--concurrency", "1,4,5,20,60,100,256", "--c-min", "2"), {}, "without 2"),
    "above the margin": (("--concurrency", "1,4,20,60,100,256,283", "--c-max", "256"), {}, "at most 282"),
    "above the margin of a short one": (
        ("--short", "--concurrency", "1,4,9,11,14,16,20,43,60", "--c-min", "14", "--c-max", "43"),
        {},
        "at most 48",
    ),
    "an unknown set": (("--seed-set", "B"), {}, "expected one of A"),
    "no cohort": (("--target-cohort", "v1"), {}, "no cohort"),
    "an early cohort": (("--target-cohort", "2026-09-C1"), {}, "the first are those of 2026-10-C1"),
    "a cohort that takes other seeds": (("--target-cohort", "2026-12-C1"), {}, "2026-10-C1 to 2026-12-C0"),
    "another benchmark": (("--benchmark", "llama3.1-8b-edge"), {}, "llama3.1-8b-edge is not one"),
}


@pytest.mark.parametrize(("words", "datasets", "said"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_planned_is_one_line(words, datasets, said):
    with pytest.raises(ConfigError, match=said) as error:
        curve(*words, **datasets)
    assert "\n" not in str(error.value)


BAD_SEEDS = {
    "no mapping": ("[1, 2]", "no file of seed sets"),
    "no sets": ("cohort: {cohort-id: 2026-10-C1, seed_sets: []}", "no seed sets"),
    "nothing": ("", "no file of seed sets"),
    "a seed is missing": (
        "seed_sets: [{id: A, scheduler_rng_seed: 1, model_seed: 1}]",
        "sample_index_rng_seed",
    ),
    "a seed is text": (
        "seed_sets: [{id: A, scheduler_rng_seed: '1', sample_index_rng_seed: 2, model_seed: 1}]",
        "Expected `int`",
    ),
    "a seed is negative": (
        "seed_sets: [{id: A, scheduler_rng_seed: -1, sample_index_rng_seed: 2, model_seed: 1}]",
        ">= 0",
    ),
    "a seed is too large": (
        f"seed_sets: [{{id: A, scheduler_rng_seed: {2**64}, sample_index_rng_seed: 2, model_seed: 1}}]",
        "at most 18446744073709551615",
    ),
    "an id twice": (
        "seed_sets:\n" + "- {id: A, scheduler_rng_seed: 1, sample_index_rng_seed: 2, model_seed: 1}\n" * 2,
        "same id",
    ),
    "a cohort of its own kind": (
        "cohort: {cohort-id: soon, seed_sets: [{id: A, scheduler_rng_seed: 1, sample_index_rng_seed: 2, "
        "model_seed: 1}]}",
        "'soon' is no cohort",
    ),
    "an anchor": ("seed_sets: &all []", "anchor"),
}


@pytest.mark.parametrize(("text", "said"), BAD_SEEDS.values(), ids=BAD_SEEDS)
def test_a_file_of_seeds_that_is_none_is_one_line(text, said, tmp_path):
    path = tmp_path / "seeds.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        curve("--seed-sets", str(path))
    assert "\n" not in str(error.value)
