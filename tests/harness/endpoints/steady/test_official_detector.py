"""Our steady state beside the official detector's: crop, plateau, window, numbers, trends, level shift."""

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from harness.endpoints.steady.steady_block import steady_headline
from harness.endpoints.steady.steady_point import steady_state
from harness.endpoints.steady.trend import change_point, direction, drift, interval, variation
from tests.harness.endpoints.steady.made_up_runs import SHAPES, run_of, write_run
from tests.harness.endpoints.steady.official_detector import SEED, frozen, load, outcome, summary

SCRIPT = os.environ.get("HARNESS_ENDPOINTS_STEADY_SCRIPT")
needs_script = pytest.mark.skipif(not SCRIPT, reason="HARNESS_ENDPOINTS_STEADY_SCRIPT names no script")

KEYS = ("sp_lo", "sp_hi", "n_super_passes", "n_samples", "plateau_index", "n_plateaus", "skipped_short")
RARE = {"steps down late": 40, "noisy": 40, "noise at the bound": 40, "precision": 40, "drifts up": 40}


@pytest.fixture(scope="module")
def official():
    return load(SCRIPT)


def ours(samples, size):
    state = steady_state(samples, size, 1200)
    headline = steady_headline(state)
    extent = headline["window"]
    return {
        "cropped": state.cropped,
        "super_passes": headline["n_super_passes"],
        "found": headline["found"],
        "window": extent and {key: value for key, value in extent.items() if key in KEYS},
        "ttft": headline["ttft"] and list(headline["ttft"].values()),
        "tpot": headline["tpot"] and list(headline["tpot"].values()),
        "tps": headline["tps"],
        "short_window": headline["short_window"],
        "anomaly": headline["anomaly"],
        "global_trend": headline["global_trend"],
        "drifting_up": list(headline["drifting_up"]),
        "tpot_p90": [None if p.tpot_count == 0 else p.tpot_p90 for p in state.passes[state.cropped :]],
    }


def assert_same(found, expected):
    """Numbers to nine digits; everything else equal."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, dict):
            assert found[key] is not None, key
            assert_same(found[key], value)
        else:
            assert _close(found[key], value), (key, found[key], value)


def _close(found, expected):
    if isinstance(expected, list) and isinstance(found, list | tuple):
        return len(found) == len(expected) and all(map(_close, found, expected))
    if isinstance(expected, float) and isinstance(found, float | int):
        return found == pytest.approx(expected, rel=1e-8, abs=1e-9)
    return found == expected


@pytest.mark.parametrize("name", SHAPES)
def test_as_frozen(name):
    assert_same(ours(run_of(SHAPES[name], SEED), SHAPES[name].size), frozen()[name])


def test_the_frozen_cases_show_every_outcome():
    cases = frozen().values()
    assert {case["found"] for case in cases} == {True, False}
    assert {case["short_window"]["dominant"] for case in cases if case["short_window"]} == {
        *("floor", "relaxation", "precision")
    }
    assert any(case["window"] is None for case in cases)
    assert any(case["window"] and case["window"]["skipped_short"] for case in cases)
    shifts = [case["anomaly"]["delta_pct"] > 0 for case in cases if case["anomaly"]]
    assert set(shifts) == {True, False}
    trends = {trend for case in cases for trend in case["global_trend"].values()}
    assert trends == {"up", "down", "steady", "insufficient"}


@needs_script
@pytest.mark.parametrize("name", SHAPES)
def test_as_the_script(official, name):
    shape = SHAPES[name]
    for seed in range(RARE.get(name, 5)):
        samples = run_of(shape, seed)
        assert_same(ours(samples, shape.size), outcome(official, samples, shape.size))


@needs_script
@pytest.mark.parametrize("length", range(1, 40))
def test_its_statistics(official, length):
    """Of series with and without ties, trends and steps."""
    for seed in range(20):
        draw = random.Random(1000 * length + seed)
        slope, step, digits = draw.choice((0, 0, 0.1, -0.3)), draw.choice((0, 0, 3)), draw.choice((0, 1, 9))
        values = [
            round(10 + slope * i + step * (2 * i > length) + draw.gauss(0, 1), digits) for i in range(length)
        ]
        array = np.array(values)
        assert direction(array) == official.mann_kendall_hamed_rao(values).verdict
        assert variation(array) == pytest.approx(official.cov(values), abs=1e-12)
        assert interval(array) == pytest.approx(official.batch_means_ci(values))
        if length < official.MIN_TREND_N:  # No plateau is shorter.
            continue
        assert drift(array) == pytest.approx(official._rel_drift(values))
        found, expected = change_point(array), official.pettitt(values)
        assert found.significant == expected["significant"]
        assert found.first == expected["change_point"] or not found.significant
        assert found.probability == pytest.approx(expected["pvalue"])


@needs_script
def test_as_the_program_with_a_tokenizer(tmp_path):
    """The script as its users start it: on a run folder, with a tokenizer, with ``--json``."""
    pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"w": 0, "?": 1}, "?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    (tmp_path / "words").mkdir()
    words.save(str(tmp_path / "words" / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"}
    (tmp_path / "words" / "tokenizer_config.json").write_text(json.dumps(settings))
    shape = SHAPES["plateau"]
    samples = run_of(shape, SEED)
    write_run(tmp_path / "run", samples)
    command = [sys.executable, SCRIPT, tmp_path / "run", "--tokenizer", tmp_path / "words"]
    command += ["--dataset-size", str(shape.size), "--json", tmp_path / "found.json"]
    subprocess.run(list(map(str, command)), check=True, timeout=300, capture_output=True)
    assert_same(ours(samples, shape.size), summary(json.loads((tmp_path / "found.json").read_text())))
