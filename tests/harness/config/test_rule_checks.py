"""Deviations that the user asked for are reported; other differing settings end the run."""

import pytest

from harness.config.benchmark import load_benchmark
from harness.config.rule_checks import (
    dataset_deviations,
    dataset_rule,
    locked_settings,
    offline_deviations,
    setting_deviations,
)
from harness.config.scenario import Scenario
from harness.errors import ConfigError

GPT_OSS = load_benchmark("gpt-oss-120b")
SERVER_ONLY = ("target_latency_ns", "target_latency_percentile", "max_async_queries")
COUNTS = "high: 1, medium: 1, none: 1"
PERMUTATION = "sample_concatenate_permutation"


def test_an_accuracy_run_locks_nothing_that_has_no_effect_there():
    server, latencies = Scenario.SERVER, {"ttft_latency", "tpot_latency"}
    dropped = locked_settings(GPT_OSS, server).keys() - locked_settings(GPT_OSS, server, accuracy=True).keys()
    assert dropped - latencies == {"min_duration_ms", *(f"server_{name}" for name in SERVER_ONLY)}
    assert latencies <= dropped


def test_a_compliance_test_locks_its_own_settings():
    audit = {"min_duration": 0, "sample_concatenate_permutation": 0, "ttft_latency": 5, "min_query_count": 9}
    locked = locked_settings(GPT_OSS, Scenario.SERVER, audit=audit)
    usual = locked_settings(GPT_OSS, Scenario.SERVER)
    changed = {name: value for name, value in locked.items() if value != usual[name]}
    expected = {"min_duration_ms": 0, "sample_concatenate_permutation": False, "ttft_latency": 5_000_000}
    assert changed == expected


# setting, LoadGen's value, keys of conf rows, samples of the dataset, fragments of the one deviation or None
ASKED = [
    ("min_duration_ms", 1000, ["min_duration"], 6396, ("min_duration_ms is 1000", "600000")),
    ("ttft_latency", 5_000_000_000, ["ttft_latency"], 6396, ("ttft_latency", "5000 ms", "3000 ms")),
    (PERMUTATION, False, [PERMUTATION], 6396, (PERMUTATION,)),
    ("performance_sample_count_override", 7, ["performance_sample_count_override"], 64, ("is 7", "6396")),
    ("accuracy_sample_count_override", 7, ["accuracy_sample_count_override"], 64, ("is 7", "4395")),
    # what MLCommons's checker or ours would refuse after the run
    ("server_target_latency_ns", 70_000_000_000, ["target_latency"], 6396, ("70000000000, the rules say 0",)),
    ("accuracy_log_sampling_target", 9, ["accuracy_log_sampling_target"], 6396, ("is 9, the rules say 0",)),
    # LoadGen's own mlperf.conf replaced by one of another year
    ("qsl_rng_seed", 5, ["qsl_rng_seed"], 6396, ("qsl_rng_seed is 5", "2085463073848966840")),
    ("sample_index_rng_seed", 5, ["sample_index_rng_seed"], 6396, ("sample_index_rng_seed is 5",)),
    ("schedule_rng_seed", 5, ["schedule_rng_seed"], 6396, ("schedule_rng_seed is 5",)),
    ("schedule_rng_seed", 64, ["schedule_rng_seed"], 64, ("schedule_rng_seed is 64",)),
    # longer than the rules ask for
    ("min_duration_ms", 600_001, ["min_duration"], 6396, None),
    # cut to the dataset, whose own size is told elsewhere
    ("performance_sample_count_override", 64, [], 64, None),
    ("accuracy_sample_count_override", 64, ["target_qps"], 64, None),
]


@pytest.mark.parametrize(("asked", "few"), [(6395, True), (6396, False)])
def test_offline_with_exactly_the_samples_of_the_dataset_is_no_deviation(asked, few):
    readback = {"min_query_count": asked, "min_duration_ms": 0, "offline_expected_qps": 1.0}
    found = offline_deviations(readback, GPT_OSS.dataset(accuracy=False))
    assert [line.startswith("Offline asks for 6,395 samples") for line in found] == [True] * few


UNASKED = [
    ("min_duration_ms", 1000, []),
    ("ttft_latency", 2_000_000_000, ["tpot_latency"]),
    ("qsl_rng_seed", 5, ["min_duration"]),
    ("performance_sample_count_override", 1024, ["accuracy_sample_count_override"]),
    ("performance_sample_count_override", 100_000, []),
]


@pytest.mark.parametrize(("name", "got", "keys", "samples", "fragments"), ASKED)
def test_what_was_asked_for_is_a_deviation(name, got, keys, samples, fragments):
    locked = locked_settings(GPT_OSS, Scenario.SERVER)
    readback = {**locked, name: got}
    assert got != locked[name]
    found = setting_deviations(locked, readback, keys, samples)
    if fragments is None:
        assert found == ()
        return
    (line,) = found
    assert [fragment for fragment in fragments if fragment not in line] == []


def test_single_stream_has_its_90th_percentile():
    locked = locked_settings(load_benchmark("llama3.1-8b-edge"), Scenario.SINGLE_STREAM)
    name = "single_stream_target_latency_percentile"
    (line,) = setting_deviations(locked, {**locked, name: 0.5}, ["target_latency_percentile"], 5000)
    assert f"{name} is 0.5, the rules say 0.9" in line


@pytest.mark.parametrize(("name", "got", "keys"), UNASKED)
def test_what_nobody_asked_for_is_an_error(name, got, keys):
    locked = locked_settings(GPT_OSS, Scenario.SERVER)
    with pytest.raises(ConfigError) as caught:
        setting_deviations(locked, {**locked, name: got}, keys, 6396)
    message = str(caught.value)
    assert f"{name} to {got}" in message
    assert str(locked[name]) in message


# rule, rows, efforts of the prompts, whether the benchmark has markers, fragments of each deviation
DATASETS = [
    (GPT_OSS.datasets["performance"], 6396, ["low"] * 6396, True, []),
    (GPT_OSS.datasets["accuracy"], 4395, ["high"] * 4395, True, []),
    (GPT_OSS.datasets["compliance"], 990, ["high"] * 990, True, []),
    (
        GPT_OSS.datasets["performance"],
        64,
        ["low"] * 64,
        True,
        [("64 samples", "6,396", "perf/perf_eval_ref.parquet")],
    ),
    (GPT_OSS.datasets["performance"], 6397, ["low"] * 6397, True, [("6,397 samples", "6,396")]),
    (GPT_OSS.datasets["performance"], 6396, ["high"] * 6396, True, [("not low", "high: 6396 of 6396")]),
    (GPT_OSS.datasets["accuracy"], 4395, ["high"] * 4394 + [None], True, [("not high", "none: 1 of 4395")]),
    (GPT_OSS.datasets["performance"], 4, ["low", "high", None, "medium"], True, [("4 samples",), (COUNTS,)]),
    (GPT_OSS.datasets["performance"], 6396, [None] * 6396, False, []),
    (load_benchmark("deepseek-r1").datasets["performance"], 4388, ["low"] * 4388, True, []),
]


@pytest.mark.parametrize(("rule", "samples", "efforts", "markers", "expected"), DATASETS)
def test_dataset_deviations(rule, samples, efforts, markers, expected):
    found = dataset_deviations(rule, samples, efforts, markers)
    for line, fragments in zip(found, expected, strict=True):
        assert all(fragment in line for fragment in fragments)


@pytest.mark.parametrize(
    ("accuracy", "audit", "samples", "expected"),
    [
        (False, False, 6396, "performance"),
        (False, False, 990, "performance"),
        (True, False, 4395, "accuracy"),
        (False, True, 990, "compliance"),
        (False, True, 6396, "performance"),
        (False, True, 64, "performance"),
    ],
)
def test_dataset_rule(accuracy, audit, samples, expected):
    rule = dataset_rule(GPT_OSS, accuracy=accuracy, audit=audit, samples=samples)
    assert rule == GPT_OSS.datasets[expected]
