"""Regions: the numbers of the rules' Appendix B and worked examples, and the official package."""

import random

import pytest

from harness.endpoints.planning.regions import ULTRA_LOW_MOST, regions
from harness.errors import ConfigError

# Appendix B: C_max, C_min, and the last concurrency of Low, of Medium and of the margin.
APPENDIX_B = [
    (64, 2, 6, 18, 71),
    (128, 2, 7, 27, 141),
    (256, 2, 8, 42, 282),
    (256, 8, 14, 47, 282),
    (512, 8, 16, 71, 564),
    (1024, 8, 18, 109, 1127),
    (512, 16, 24, 79, 564),
    (1024, 16, 26, 117, 1127),
    (2048, 16, 29, 176, 2253),
    (1024, 32, 42, 131, 1127),
    (2048, 32, 45, 192, 2253),
    (4096, 32, 48, 287, 4506),
    (8192, 32, 52, 437, 9012),
    (16384, 32, 57, 676, 18023),
]
EXAMPLES = [(256, 1, 7, 41, 282), (8192, 32, 52, 437, 9012)]  # §5.4, B and A


@pytest.mark.parametrize(("c_max", "c_min", "low", "med", "margin"), APPENDIX_B + EXAMPLES)
def test_the_rules_own_numbers(c_max, c_min, low, med, margin):
    found = regions(c_min, c_max)
    assert found == ((1, c_min), (c_min + 1, low), (low + 1, med), (med + 1, c_max), (c_max + 1, margin))


@pytest.mark.engine
def test_the_official_package_has_the_same_regions_and_bands():
    official = pytest.importorskip("submission_checker.models.regions")
    names = {
        "low_latency": "ultra_low",
        "low_concurrency": "low",
        "med_concurrency": "med",
        "high_concurrency": "high",
        "margin": "margin",
        None: None,
    }
    draw = random.Random(28)
    for _ in range(3000):
        c_min = draw.randint(1, 32)
        c_max = draw.choice((draw.randint(33, 80), draw.randint(33, 5000), draw.randint(33, 10**6)))
        ours, theirs = regions(c_min, c_max), official.compute_regions(c_max, c_min)
        spans = (theirs.low_latency, theirs.low_concurrency, theirs.med_concurrency, theirs.high_concurrency)
        assert ours == tuple((span.start, span.end) for span in (*spans, theirs.margin))
        edges = [edge + step for span in ours for edge in span for step in (-1, 0, 1)]
        for concurrency in (number for number in edges if number > 0):
            assert ours.band(concurrency) == names[official.classify_concurrency(concurrency, theirs)]


@pytest.mark.engine
def test_the_official_package_matches_accuracy_runs_with_as_many_bands():
    official = pytest.importorskip("submission_checker.models.regions")
    matching = pytest.importorskip("submission_checker.models.aggregate.context")
    draw = random.Random(29)
    for _ in range(3000):
        c_min, c_max = draw.randint(1, 32), draw.randint(33, draw.choice((80, 2000)))
        scored = draw.sample(range(1, c_max + 1), draw.randint(0, 6))
        scored += draw.sample(sorted({*range(1, 34)} - {*scored}), draw.randint(0, 3))
        override = draw.choice((None, c_min))
        theirs = official.compute_regions(c_max, c_min, c_min_overridden=override is not None)
        found = matching.match_accuracy_bands(
            [(one, matching.accuracy_bands(one, theirs), False) for one in scored]
        )
        assert len(regions(c_min, c_max).unscored(scored, override)) == 4 - len(found), (c_min, c_max, scored)


def test_an_accuracy_run_fills_one_band():
    """8 in flight are of the Low band here, which ends at 11, and at most 32."""
    found = regions(1, 1024)
    assert found.unscored([8, 64, 256, 1024], None) == ["ultra_low"]
    assert found.unscored([8, 9, 64, 1024], None) == []
    assert found.unscored([8, 9, 64, 1024], 1) == ["ultra_low"]
    assert found.unscored([], None) == ["ultra_low", "low", "med", "high"]


def test_what_is_no_curve_is_one_line():
    for c_min, c_max, said in ((0, 64, "C_min is 0"), (33, 64, "C_min is 33"), (1, 32, "C_max is 32")):
        with pytest.raises(ConfigError, match=said):
            regions(c_min, c_max)


def test_where_c_max_is_next_to_c_min_regions_are_empty_and_still_none_overlaps():
    for c_min in range(1, 33):
        found = regions(c_min, 33)
        in_order = [found.band(number) for number in range(1, 34)]
        assert in_order == sorted(in_order, key=["ultra_low", "low", "med", "high"].index)
    assert regions(32, 33).band(33) == "low"
    assert ULTRA_LOW_MOST == 32
